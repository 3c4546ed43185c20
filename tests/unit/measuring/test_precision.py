from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence

import pytest

from farm.configuration.sweep import Precision
from farm.measuring.noise import Disturbance, NoiseKind
from farm.measuring.precision import (
    Repetition,
    RepetitionState,
    Run,
    Target,
    Timeline,
    cell_statistics,
    time_interval,
    timeline_of,
    variance_inflation,
)
from farm.measuring.precision import next_repetitions as next_of

CALM = (1.000, 1.001, 0.999)
NOISY = (1.00, 1.02, 0.98)
PRECISION = Precision()
# Job n was the run 100 n of its sweep, and in between others ran.
SPREAD = Timeline(
    Run(
        job_id=n if is_own else -n,
        place=100 * n + (not is_own),
        cell_hash=str(is_own),
        fingerprint="x",
        step_time_s=1.0,
    )
    for n in range(200)
    for is_own in (True, False)
)


def measured(*times_s: float | None, fingerprint: str = "x", first_id: int = 1) -> list[Repetition]:
    return [
        Repetition(
            job_id=first_id + i,
            state=RepetitionState.MEASURED,
            step_time_s=time_s,
            fingerprint=fingerprint,
        )
        for i, time_s in enumerate(times_s)
    ]


def without_time(state: RepetitionState, job_id: int = 100) -> Repetition:
    return Repetition(job_id=job_id, state=state)


def target(*repetitions: Repetition) -> Target | None:
    return cell_statistics(repetitions, PRECISION, SPREAD).target


def next_repetitions(repetitions: Sequence[Repetition], precision: Precision) -> int:
    return next_of(repetitions, precision, SPREAD)


def test_the_interval_of_three_is_that_of_students_table() -> None:
    interval = time_interval([1.0, 1.0, 1.0201], is_sequential=False)
    assert interval is not None
    # ln: 0, 0, 0.0199; mean 0.006633, s 0.011490; t(2) 4.30265.
    assert interval.low_s == pytest.approx(0.97833, rel=1e-4)
    assert interval.high_s == pytest.approx(1.03580, rel=1e-4)


def test_stopping_where_it_looks_narrow_is_paid_for_by_a_wider_interval() -> None:
    plain = time_interval(NOISY, is_sequential=False)
    sequential = time_interval(NOISY, is_sequential=True)
    assert plain is not None
    assert sequential is not None
    assert sequential.low_s < plain.low_s < plain.high_s < sequential.high_s


def test_fewer_than_three_have_no_interval() -> None:
    assert time_interval([1.0, 1.1], is_sequential=False) is None
    statistics = cell_statistics(measured(1.0, 1.1), None)
    assert (statistics.count, statistics.median_s, statistics.low_s) == (2, 1.05, None)
    assert statistics.half_width_ratio is None


def test_a_calm_cell_has_reached_its_target_after_the_least() -> None:
    assert target(*measured(*CALM)) is Target.REACHED
    assert next_repetitions(measured(*CALM), PRECISION) == 0


def test_back_to_back_runs_of_one_cell_reach_no_target() -> None:
    for timeline in (None, timeline_of((n, "a", "x", 1.0) for n in range(1, 5))):
        found = cell_statistics(measured(1.0, 1.0001, 0.9999, 1.0), PRECISION, timeline)
        assert found.target is Target.BACK_TO_BACK
        assert next_of(measured(1.0, 1.0001, 0.9999, 1.0), PRECISION, timeline) == 0


def disturbed(*times_s: float, first_id: int = 1) -> list[Repetition]:
    found = measured(*times_s, first_id=first_id)
    by_steal = Disturbance(0.5, (NoiseKind.STEAL,))
    return [dataclasses.replace(repetition, disturbance=by_steal) for repetition in found]


def test_disturbed_repetitions_count_only_where_there_are_no_others() -> None:
    quiet, loud = measured(*CALM), disturbed(*(3 * t for t in CALM), first_id=50)
    assert cell_statistics([*loud, *quiet], PRECISION, SPREAD) == cell_statistics(
        quiet, PRECISION, SPREAD
    )
    assert cell_statistics(loud, PRECISION, SPREAD).median_s == 3 * statistics.median(CALM)


def test_disturbed_repetitions_count_by_their_weight() -> None:
    heavy, light = disturbed(1.0, 2.0)
    light = dataclasses.replace(light, disturbance=Disturbance(0.1, (NoiseKind.STEAL,)))
    assert cell_statistics([heavy, light], None).median_s == 1.0


def test_a_target_is_not_reached_on_disturbed_repetitions_alone() -> None:
    assert target(*disturbed(*CALM)) is Target.DISTURBED
    assert next_repetitions(disturbed(*CALM), PRECISION) == 0


def test_equal_times_have_an_interval_of_some_width() -> None:
    found = cell_statistics(measured(1.0, 1.0, 1.0), PRECISION, SPREAD)
    assert found.low_s is not None
    assert found.high_s is not None
    assert found.low_s < 1.0 < found.high_s


def test_runs_on_other_hardware_are_not_between_those_of_a_cell() -> None:
    """They were on other machines, so a sweep of one cell stays one of back-to-back runs."""
    order = [(1, "a", "x"), (10, "a", "y"), (2, "a", "x"), (11, "b", "y"), (3, "a", "x")]
    timeline = timeline_of((job_id, cell, kind, 1.0) for job_id, cell, kind in order)
    found = cell_statistics(measured(1.0, 1.0001, 0.9999), Precision(), timeline)
    alone = cell_statistics(measured(1.0, 1.0001, 0.9999), Precision())
    assert (found.target, found.low_s) == (Target.BACK_TO_BACK, alone.low_s)


def test_the_interval_is_wider_the_closer_in_time_the_repetitions_were() -> None:
    repetitions = measured(*NOISY)
    widths = []
    for gap in (1, 2, 5, 100):
        runs = [
            (n // gap + 1 if n % gap == 0 else -n, "a" if n % gap == 0 else "b", "x", 1.0)
            for n in range(2 * gap + 1)
        ]
        known = cell_statistics(repetitions, PRECISION, timeline_of(runs))
        assert known.half_width_ratio is not None
        widths.append(known.half_width_ratio)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == cell_statistics(repetitions, PRECISION).half_width_ratio
    independent = time_interval(NOISY, is_sequential=True)
    assert independent is not None
    assert widths[-1] == pytest.approx((independent.high_s - independent.low_s) / 2)


def test_what_comes_later_does_not_change_the_verdict_on_a_cell() -> None:
    rng = random.Random(1)
    runs = [(n, f"cell {n % 3}", "x", rng.uniform(0.9, 1.1)) for n in range(60)]
    early, late = timeline_of(runs[:12]), timeline_of(runs)
    first = early.runs([0, 3, 6, 9])
    assert first is not None
    assert early.correlation(first[-1]) == late.correlation(first[-1])


def test_the_inflation_of_neighbours_that_correlate() -> None:
    # Three in a row at 0.6: D = (3 + 2 (0.6 + 0.6 + 0.36)) / 9 = 0.68, and 2 D / (1 - D) = 4.25.
    assert variance_inflation((1, 1), 0.6) == pytest.approx(4.25)
    assert variance_inflation((1, 1), 0.0) == 1.0
    assert variance_inflation((50, 50), 0.6) == pytest.approx(1.0)


def test_a_noisy_cell_goes_on_by_half_of_what_it_seems_to_need() -> None:
    assert target(*measured(*NOISY)) is Target.RUNNING
    # A spread of 2 % takes 8 repetitions: 5 are missing.
    assert next_repetitions(measured(*NOISY), PRECISION) == 3
    # With 7.9 % it is far beyond the cap of 10.
    assert next_repetitions(measured(1.0, 1.08, 0.93), PRECISION) == 4


def test_equal_times_are_as_precise_as_can_be() -> None:
    assert target(*measured(2.0, 2.0, 2.0)) is Target.REACHED


def test_nothing_is_added_while_a_repetition_is_outstanding() -> None:
    repetitions = [*measured(*NOISY), without_time(RepetitionState.PENDING)]
    assert next_repetitions(repetitions, PRECISION) == 0
    assert target(*repetitions) is Target.RUNNING


def test_the_cap_ends_it() -> None:
    repetitions = measured(*NOISY * 3, 1.0)
    wide = measured(*(1.0, 1.5) * 5)
    assert target(*wide) is Target.CAP
    assert next_repetitions(wide, PRECISION) == 0
    assert next_repetitions(repetitions[:9], Precision(target_ratio=0.001)) == 1


@pytest.mark.parametrize("times_s", [(), (1.0,), NOISY])
def test_a_configuration_that_cannot_run_is_not_repeated(times_s: tuple[float, ...]) -> None:
    repetitions = [*measured(*times_s), without_time(RepetitionState.STOPPED)]
    assert target(*repetitions) is Target.ENDED
    assert next_repetitions(repetitions, PRECISION) == 0


def test_a_cell_that_was_precise_before_one_was_cancelled_has_reached_its_target() -> None:
    assert target(*measured(*CALM), without_time(RepetitionState.STOPPED)) is Target.REACHED


def test_what_machines_lost_is_made_up_for_and_counts_towards_the_cap() -> None:
    lost = [without_time(RepetitionState.LOST, job_id=100 + i) for i in range(8)]
    assert next_repetitions([*measured(1.0, 1.0), *lost[:1]], PRECISION) == 1
    assert next_repetitions([*measured(1.0, 1.0), *lost], PRECISION) == 0
    assert target(*measured(1.0, 1.0), *lost) is Target.CAP


def test_where_machines_lost_all_there_is_nothing_to_go_by() -> None:
    repetitions = [without_time(RepetitionState.LOST, job_id=i) for i in range(3)]
    assert target(*repetitions) is Target.ENDED
    assert next_repetitions(repetitions, PRECISION) == 0


def test_hardware_is_not_pooled_and_the_kind_with_most_repetitions_is_judged() -> None:
    repetitions = [*measured(*CALM), *measured(5.0, 5.0, fingerprint="y", first_id=10)]
    statistics = cell_statistics(repetitions, PRECISION, SPREAD)
    assert (statistics.count, statistics.median_s) == (3, 1.0)
    assert statistics.target is Target.REACHED


def test_repetitions_of_other_hardware_count_towards_the_cap() -> None:
    others = measured(*[5.0] * 4, fingerprint="y", first_id=10)
    repetitions = [*measured(*(1.0, 1.5) * 3), *others]
    assert target(*repetitions) is Target.CAP


def test_an_outlier_is_named_and_counts() -> None:
    statistics = cell_statistics(measured(1.0, 1.01, 0.99, 1.3), None)
    assert statistics.outlier_job_ids == (4,)
    assert statistics.count == 4
    assert statistics.high_s is not None
    assert statistics.high_s > 1.3


def test_a_measurement_without_a_step_time_is_none_of_the_repetitions() -> None:
    repetitions = measured(None, None, None)
    assert cell_statistics(repetitions, PRECISION).count == 0
    assert next_repetitions(repetitions, PRECISION) == 0


@pytest.mark.parametrize("times_s", [(1e-200, 1.0, 1e200), (5e-324,) * 3, (1e300,) * 3])
def test_times_that_no_clock_has_measured_are_none(times_s: tuple[float, ...]) -> None:
    """An agent may report any number, and what follows from it must not stop the scheduler."""
    repetitions = measured(*times_s)
    assert next_repetitions(repetitions, PRECISION) in (0, 2)
    assert cell_statistics(repetitions, PRECISION).half_width_ratio is None
