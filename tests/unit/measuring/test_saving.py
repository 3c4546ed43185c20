import pytest

from farm.measuring.machine_time import CellCost, saving
from farm.measuring.precision import Target


def cost(target: Target, count: int, machine_s: float) -> CellCost:
    return CellCost(target=target, repetition_count=count, machine_s=machine_s)


def test_a_fixed_number_has_to_do_for_the_most_demanding_cell() -> None:
    found = saving([cost(Target.REACHED, 3, 300.0), cost(Target.REACHED, 9, 3600.0)])
    assert found is not None
    assert found.fixed_repetitions == 9
    assert found.machine_s == 3900.0
    assert found.fixed_machine_s == pytest.approx(900.0 + 3600.0)
    assert found.machine_hours_saved == pytest.approx(600 / 3600)


def test_a_cell_that_is_not_precise_costs_the_same_either_way() -> None:
    found = saving(
        [
            cost(Target.REACHED, 4, 40.0),
            cost(Target.REACHED, 5, 50.0),
            cost(Target.CAP, 10, 1000.0),
            cost(Target.ENDED, 0, 7.0),
            cost(Target.RUNNING, 3, 30.0),
        ]
    )
    assert found is not None
    assert (found.fixed_repetitions, found.machine_s) == (5, 1127.0)
    assert found.fixed_machine_s - found.machine_s == pytest.approx(10.0)


def test_as_long_as_no_cell_is_precise_there_is_nothing_to_compare() -> None:
    assert saving([]) is None
    assert saving([cost(Target.CAP, 10, 1.0), cost(Target.RUNNING, 2, 1.0)]) is None
