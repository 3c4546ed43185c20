import dataclasses

import pytest

from farm.recommend.contracts import Basis
from farm.recommend.sweeps.expectation import Expectation, ExpectedJob, expectation, step_count
from tests.factories import job_spec
from tests.fakes.step_times import HALF_WIDTH, prediction


def job(step_time_s: float | None = 0.5, **changes: object) -> ExpectedJob:
    """Ten timed steps after five to warm up."""
    known = Basis.UNKNOWN if step_time_s is None else Basis.INTERPOLATED
    return ExpectedJob(
        spec=job_spec(**changes),
        prediction=prediction(
            step_time_s, basis=known, unknown_because=None if step_time_s else "too little"
        ),
        instance_type="small",
        train_examples_count=100,
    )


def add_up(*jobs: ExpectedJob, overhead_s: float | None = None) -> Expectation:
    return expectation(jobs, overhead_s=overhead_s, prices_usd_per_hour={"small": 3.6})


def test_steps_and_their_warm_up_take_time() -> None:
    found = add_up(job(), job(step_time_s=1.0))
    assert found.training_s == pytest.approx(15 * 0.5 + 15 * 1.0)
    assert found.training_high_s == pytest.approx(22.5 * (1 + HALF_WIDTH))
    assert (found.job_count, found.known_count) == (2, 2)


def test_every_machine_of_a_gang_is_paid_for_and_its_start_too() -> None:
    found = add_up(job(world_size=2), overhead_s=2.5)
    assert found.machine_s == pytest.approx(2 * (15 * 0.5 + 2.5))
    assert found.cost_usd == pytest.approx(20 * 3.6 / 3600)


def test_jobs_of_which_nothing_is_known_are_counted_by_reason() -> None:
    found = add_up(job(), job(step_time_s=None), job(step_time_s=None))
    assert found.unknown == {"too little": 2}
    assert found.known_count == 1


def test_without_a_price_the_cost_is_not_known() -> None:
    found = expectation([job()], overhead_s=None, prices_usd_per_hour={})
    assert found.cost_usd is None
    assert add_up().cost_usd is None


def test_an_epoch_has_a_last_step_that_may_be_partial() -> None:
    assert step_count(job_spec(epochs=2), 100) == 5 + 2 * 4
    assert step_count(job_spec(epochs=2), None) is None


def test_the_ends_of_the_intervals_are_added_up() -> None:
    found = add_up(job(), job(world_size=2), overhead_s=1.0)
    assert found.training_low_s == pytest.approx(15.0 * (1 - HALF_WIDTH))
    assert found.training_high_s == pytest.approx(15.0 * (1 + HALF_WIDTH))
    # Three machines work for 7.5 s each, and start for 1 s, of which no interval is known.
    price = 3.6 / 3600
    assert found.cost_usd == pytest.approx((22.5 + 3) * price)
    assert found.cost_low_usd == pytest.approx((22.5 * (1 - HALF_WIDTH) + 3) * price)
    assert found.cost_high_usd == pytest.approx((22.5 * (1 + HALF_WIDTH) + 3) * price)


def test_machine_time_is_told_by_instance_type_with_the_price_that_was_used() -> None:
    unnamed = dataclasses.replace(job(), instance_type=None)
    found = add_up(job(), unnamed, job(step_time_s=None))
    assert [(m.instance_type, m.price_usd_per_hour) for m in found.machines] == [
        (None, None),
        ("small", 3.6),
    ]
    assert [m.machine_s for m in found.machines] == pytest.approx([7.5, 7.5])
    assert found.machine_s == pytest.approx(15.0)
    assert found.cost_usd is None
    assert add_up().machines == ()
