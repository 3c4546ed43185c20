"""What the stopping rule promises, by simulation with fixed seeds, and what holds for any times."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.configuration.sweep import LEAST_REPETITIONS, Precision
from farm.measuring.precision import (
    ASSUMED_CORRELATION,
    Repetition,
    RepetitionState,
    Run,
    Target,
    Timeline,
    cell_statistics,
    next_repetitions,
    time_interval,
    timeline_of,
)
from tests.interval_coverage import (
    CORRELATIONS,
    INDEPENDENT,
    PART,
    SHAPES,
    autoregressive,
    cells_row,
    steps_row,
    sweeps,
)

MEASURING = Path(__file__).parents[3] / "docs" / "measuring.md"

times = st.floats(1e-6, 1e3)
precisions = st.builds(
    Precision,
    target_ratio=st.floats(0.001, 0.5),
    min_repetitions=st.integers(3, 5),
    max_repetitions=st.integers(5, 30),
)


def repetition(job_id: int, time_s: float) -> Repetition:
    return Repetition(job_id=job_id, state=RepetitionState.MEASURED, step_time_s=time_s)


def far_apart(count: int) -> Timeline:
    """So many runs of a cell, between which others ran for long."""
    return Timeline(
        Run(
            job_id=i // 2 if i % 2 == 0 else -i,
            place=100 * i,
            cell_hash=f"{i % 2}",
            fingerprint=None,
            step_time_s=1.0,
        )
        for i in range(2 * count)
    )


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_at_stopping_covers_the_true_median(shape: str, correlation: float) -> None:
    """With neighbours in time that are alike, and noise that is not log-normal."""
    line, coverages = cells_row(shape, correlation)
    assert min(coverages) >= 0.9
    assert line in PART.read(MEASURING)


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_interval_within_a_run_covers_the_true_median(shape: str, correlation: float) -> None:
    line, coverages = steps_row(shape, correlation)
    assert min(coverages) >= 0.9
    assert line in PART.read(MEASURING)


def test_a_sweep_of_one_cell_never_says_that_its_target_was_reached() -> None:
    targets = {one.target for one in sweeps("log-normal", 0.0, 1)}
    assert targets == {Target.BACK_TO_BACK, Target.CAP}
    assert Target.REACHED in {one.target for one in sweeps("log-normal", 0.0, 2)}


def test_taking_neighbours_for_independent_would_cover_far_less() -> None:
    line, coverages = cells_row("log-normal", 0.6, spacing=INDEPENDENT)
    assert coverages[0] < 0.82 < coverages[1] < 0.92
    assert line in PART.read(MEASURING)


@pytest.mark.parametrize(("correlation", "noises"), [(0.0, 2), (0.6, 2), (0.6, 9)])
def test_the_correlation_of_neighbours_is_found_whatever_the_noise_of_their_cells(
    correlation: float, noises: float
) -> None:
    """Half of the cells are as many times as noisy as the others."""
    found = []
    for seed in range(20):
        draw = random.Random(seed)
        values = autoregressive(draw, correlation)
        order = [cell for _ in range(10) for cell in draw.sample(range(20), 20)]
        timeline = timeline_of(
            (i, str(cell), "x", math.exp((noises if cell % 2 else 1) * 0.01 * next(values)))
            for i, cell in enumerate(order)
        )
        runs = timeline.runs(range(len(order)))
        assert runs is not None
        found.append(timeline.correlation(runs[-1]))
    # What is assumed weighs a tenth here, and the estimate is rounded up.
    expected = (20 * ASSUMED_CORRELATION + 190 * correlation) / 210
    assert statistics.fmean(found) == pytest.approx(expected + 0.025, abs=0.06)


def test_the_plain_interval_would_not_cover_at_stopping() -> None:
    """What the wider one is for: it fails where the noise is about the target's size."""
    draw = random.Random(1)
    covered = 0
    for _ in range(1000):
        times_s: list[float] = []
        while len(times_s) < Precision().max_repetitions:
            times_s.append(math.exp(draw.gauss(0.0, 0.025)))
            interval = time_interval(times_s, is_sequential=False)
            if interval and interval.high_s - interval.low_s <= 2 * 0.02:
                break
        assert interval is not None
        covered += interval.low_s <= 1 <= interval.high_s
    assert covered / 1000 < 0.925


def test_half_of_what_is_missing_takes_hardly_more_than_one_at_a_time() -> None:
    used = {"half": 0, "one": 0}
    rng = random.Random(2)
    timeline = far_apart(10)
    for _ in range(1000):
        times_s = [math.exp(rng.gauss(0.0, 0.015)) for _ in range(10)]
        repetitions = [repetition(i, time_s) for i, time_s in enumerate(times_s)]
        for rule in used:
            count = 3
            while more := next_repetitions(repetitions[:count], Precision(), timeline):
                count += more if rule == "half" else 1
            used[rule] += count
    assert used["half"] <= 1.02 * used["one"]


@given(st.lists(times, min_size=3, max_size=12), st.booleans())
def test_an_interval_lies_around_the_geometric_mean_and_scales_with_the_unit(
    times_s: list[float], is_sequential: bool
) -> None:
    interval = time_interval(times_s, is_sequential=is_sequential)
    assert interval is not None
    middle_s = statistics.geometric_mean(times_s)
    assert interval.low_s <= middle_s * (1 + 1e-9)
    assert interval.high_s >= middle_s * (1 - 1e-9)
    scaled = time_interval([1000 * t for t in times_s], is_sequential=is_sequential)
    assert scaled is not None
    assert scaled.low_s == pytest.approx(1000 * interval.low_s, rel=1e-6)


@given(
    st.lists(st.tuples(st.sampled_from(RepetitionState), times), max_size=12),
    precisions,
    st.booleans(),
)
def test_repetitions_always_come_to_an_end(
    states: list[tuple[RepetitionState, float]],
    precision: Precision,
    is_spread: bool,
) -> None:
    repetitions = [
        Repetition(
            job_id=i,
            state=state,
            step_time_s=time_s if state is RepetitionState.MEASURED else None,
        )
        for i, (state, time_s) in enumerate(states)
    ]
    timeline = far_apart(12) if is_spread else None
    count = next_repetitions(repetitions, precision, timeline)
    found = cell_statistics(repetitions, precision, timeline)
    assert 0 <= count <= max(0, precision.max_repetitions - len(repetitions))
    is_pending = any(r.state is RepetitionState.PENDING for r in repetitions)
    # It is said to run exactly as long as something runs or is about to.
    assert (found.target is Target.RUNNING) == (is_pending or count > 0)
    assert found.target is not (Target.BACK_TO_BACK if is_spread else Target.REACHED)
    if found.target in (Target.REACHED, Target.BACK_TO_BACK):
        assert found.count >= LEAST_REPETITIONS
        assert found.half_width_ratio is not None
        assert found.half_width_ratio <= precision.target_ratio * (1 + 1e-9)
