"""Which repetitions of a cell count, and the medians of these."""

from __future__ import annotations

from dataclasses import dataclass

from farm.measuring.aggregate import Aggregate, aggregate
from farm.measuring.noise import UNDISTURBED, Disturbance, NoiseKind
from farm.measuring.precision import Repetition, RepetitionState
from farm.measuring.quantities import QUANTITIES_BY_NAME

QUANTITIES = [QUANTITIES_BY_NAME[name] for name in ("step_time_s", "time_per_epoch_s")]
LITTLE = Disturbance(0.9, (NoiseKind.STEAL,))
MUCH = Disturbance(0.1, (NoiseKind.FOREIGN_LOAD,))


@dataclass(frozen=True)
class Row:
    number: int
    step_time_s: float | None = None
    time_per_epoch_s: float | None = None
    disturbance: Disturbance = UNDISTURBED


def repetition_of(row: Row) -> Repetition:
    return Repetition(
        job_id=row.number,
        state=RepetitionState.MEASURED,
        step_time_s=row.step_time_s,
        disturbance=row.disturbance,
    )


def found(*rows: Row) -> Aggregate[Row]:
    return aggregate(rows, repetition_of, quantities=QUANTITIES)


def numbers(rows: tuple[Row, ...]) -> list[int]:
    return [row.number for row in rows]


def test_disturbed_repetitions_are_set_aside_beside_undisturbed_ones() -> None:
    one = found(Row(1, 0.1), Row(2, 0.5, disturbance=MUCH), Row(3, 0.2, 4.0), Row(4, 0.6, 9.0))
    assert (numbers(one.counted), numbers(one.set_aside)) == ([1, 3, 4], [2])
    assert one.medians == {"step_time_s": 0.2, "time_per_epoch_s": 6.5}
    assert one.disturbed == (MUCH,)


def test_where_all_are_disturbed_each_counts_by_its_weight() -> None:
    one = found(
        Row(1, 0.1, disturbance=LITTLE),
        Row(2, 0.5, disturbance=MUCH),
        Row(3, 0.6, disturbance=MUCH),
    )
    assert (numbers(one.counted), one.set_aside) == ([1, 2, 3], ())
    assert one.medians["step_time_s"] == 0.1


def test_without_a_step_time_all_count() -> None:
    one = found(Row(1, None, 3.0), Row(2, None, 5.0, MUCH), Row(3, None, 4.0))
    assert (numbers(one.counted), one.set_aside) == ([1, 2, 3], ())
    assert one.medians == {"step_time_s": None, "time_per_epoch_s": 4.0}


def test_a_step_time_that_no_clock_can_show_does_not_count() -> None:
    assert numbers(found(Row(1, 1e10), Row(2, 0.1)).counted) == [2]
    assert found(Row(1, 1e10, 3.0)).medians == {"step_time_s": None, "time_per_epoch_s": 3.0}


def test_nothing_has_no_medians() -> None:
    assert found() == Aggregate(
        counted=(),
        set_aside=(),
        disturbed=(),
        medians={"step_time_s": None, "time_per_epoch_s": None},
    )
