"""Where looser targets would have ended the cells of a sweep that was repeated until precise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.jobs.precision import figures_of, stopped
from farm.cells.configuration import configuration_of
from farm.cells.json_forms import CellSummary, SweepCells
from farm.cells.table import CellLine, CellState
from farm.configuration.sweep import Precision
from farm.gang.lifecycle import JobState
from farm.measuring.precision import Repetition, RepetitionState, Run, Target, Timeline

STRICT = Precision()
QUIET = (1.0, 1.03, 0.97, 1.02, 0.99, 1.01, 1.0, 1.02, 0.98, 1.0)
NOISY = (1.0, 1.3, 0.8, 1.2, 0.9, 1.4, 0.7, 1.1, 1.3, 0.9)
# The repetitions of both batches take turns, with others in between.
SPREAD = Timeline(
    Run(
        job_id=100 * batch + i,
        place=100 * i + batch,
        cell_hash=str(batch),
        fingerprint=None,
        step_time_s=1.0,
    )
    for batch in (32, 64)
    for i in range(10)
)


def cell(times_s: Sequence[float], *, batch: int, machine_s: float = 100.0) -> CellSummary:
    repetitions = tuple(
        Repetition(job_id=100 * batch + i, state=RepetitionState.MEASURED, step_time_s=t)
        for i, t in enumerate(times_s)
    )
    spec = {"strategy": "single", "global_batch_size": batch}
    line = CellLine(
        cell_hash=str(batch),
        configuration=configuration_of(spec),
        state=CellState.MEASURED,
        job_states=(JobState.SUCCEEDED,) * len(repetitions),
        repetitions=repetitions,
        precision=STRICT,
        timeline=SPREAD,
    )
    return CellSummary(line=line, spec=spec, machine_s=machine_s)


def swept(*cells: CellSummary) -> SweepCells:
    return SweepCells(precision=STRICT, cells=cells)


def test_a_looser_target_ends_a_cell_earlier_at_its_own_mean_cost() -> None:
    [found] = stopped(swept(cell(QUIET, batch=32)), percent=10.0).cells
    assert found.line.statistics.target is Target.REACHED
    assert len(found.line.repetitions) == 3
    assert found.machine_s == pytest.approx(30.0)


def test_it_ends_where_the_rule_would_have_ended_it() -> None:
    """Not at the first repetition that would do, since several are added at once."""
    counts = [
        len(stopped(swept(cell(QUIET, batch=32)), percent=p).cells[0].line.repetitions)
        for p in (20.0, 5.0, 3.0, 2.1)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_what_is_too_noisy_for_any_target_stays_at_the_cap() -> None:
    found = stopped(swept(cell(QUIET, batch=32), cell(NOISY, batch=64)), percent=10.0)
    assert [c.line.statistics.target for c in found.cells] == [Target.REACHED, Target.CAP]
    assert len(found.cells[1].line.repetitions) == 10


def test_nothing_that_got_precise_is_no_figure() -> None:
    assert figures_of(swept(cell(NOISY, batch=64))) == []


def test_figures_hold_what_was_spent_against_a_fixed_number() -> None:
    cells = swept(cell(QUIET, batch=32), cell((1.0, 1.1, 0.95, *QUIET[:7]), batch=64))
    time, jobs = figures_of(stopped(cells, percent=5.0))
    assert time.name == "machine time until precise to 5 %"
    assert time.ours is not None
    assert time.baseline is not None
    assert time.ours < time.baseline
    assert (jobs.ours, jobs.baseline) == (time.ours / 10, time.baseline / 10)
