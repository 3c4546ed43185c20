"""Machine time of a real sweep whose cells are repeated until they are precise.

Cells of differing noise (one machine and a ring of two, small batches and large ones) are
measured with TensorFlow on an embedded farm of two agents, with `repetitions = "auto"` and its
defaults: 3 to 10 repetitions, until half of the 95 % interval of the median step time is at most
2 % of it.

The baseline is what a fixed number of repetitions would have cost that is enough for every cell
which got precise, namely as many as the most demanding of them needed, of every cell, at that
cell's own mean cost. Cells that ended at the cap count the same on both sides:
farm.measuring.machine_time.

The same for looser targets, on the same repetitions: a looser target would have ended each cell
earlier, and where is known, as the rule that ends them is a function of the repetitions alone. So
there is a figure, too, on a machine that is too noisy for the first target.

No limit: how much is saved depends on how much the cells differ.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import BenchmarkFigure, run_benchmark, say
from benchmarks.live import BenchmarkFarm, running_farm
from farm.broker.wake_up import WakeReason
from farm.cells.json_forms import CellSummary, SweepCells
from farm.cells.reading import first_cells, read_sweep
from farm.configuration.sweep import Precision
from farm.errors import FarmError
from farm.measuring.precision import Target, next_repetitions
from farm.recommend.prices import Prices
from farm.store.engine import reading, writing
from farm.submission import plan, submit

_WITHIN_S = 900.0
# Each trains for about a second: a step takes 1 to 30 ms.
_CASES: tuple[dict[str, Any], ...] = (
    {"strategy": "single", "world_size": 1, "global_batch_size": 32, "steps": 400},
    {"strategy": "single", "world_size": 1, "global_batch_size": 256, "steps": 100},
    {"strategy": "single", "world_size": 1, "global_batch_size": 1024, "steps": 40},
    {"strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 300},
    {"strategy": "mwms_ring", "world_size": 2, "global_batch_size": 256, "steps": 150},
    {"strategy": "mwms_ring", "world_size": 2, "global_batch_size": 1024, "steps": 60},
)
_WORKLOAD = {"model": "small_cnn", "dataset": "digits", "warmup_steps": 10}


_LOOSER_PERCENT = (5.0, 10.0, 20.0)


def measure(given: argparse.Namespace) -> Sequence[BenchmarkFigure]:
    """Run the sweep; a quick one has two cells that are precise at once.

    Raises:
        FarmError: no cell got precise to any of the targets.
    """
    cases = [{**_WORKLOAD, **case} for case in (_CASES[:2] if given.quick else _CASES)]
    sweep: dict[str, Any] = {"name": "precision", "repetitions": "auto", "case": cases}
    if given.quick:
        sweep["precision_percent"] = 50.0
    with running_farm(agents=2, settings={}) as farm:
        say(f"{len(cases)} cells")
        found = run_sweep(farm, sweep)
    assert found.precision is not None
    target_percent = found.precision.target_ratio * 100
    targets = [found, *(stopped(found, percent=p) for p in _LOOSER_PERCENT if p > target_percent)]
    figures = [figure for target in targets for figure in figures_of(target)]
    if not figures:
        shown = "; ".join(describe(cell) for cell in found.cells)
        raise FarmError(f"no cell got precise; is the machine quiet? {shown}")
    return figures


def run_sweep(farm: BenchmarkFarm, sweep: dict[str, Any]) -> SweepCells:
    """Run a sweep to its end and return its cells."""
    planned = plan(sweep)
    with writing(farm.engine) as session:
        sweep_id = submit(session, planned, now=dt.datetime.now(dt.UTC)).sweep_id
    farm.wake.send(WakeReason.REQUESTED)
    farm.finish(sweep_id, within_s=_WITHIN_S)
    with reading(farm.engine) as session:
        return first_cells(session, read_sweep(session, sweep_id, prices=Prices()))


def stopped(found: SweepCells, *, percent: float) -> SweepCells:
    """Return the cells where a looser target would have ended them, at their own mean cost."""
    assert found.precision is not None
    looser = dataclasses.replace(found.precision, target_ratio=percent / 100)
    return dataclasses.replace(
        found,
        precision=looser,
        cells=tuple(_stopped(cell, looser) for cell in found.cells),
    )


def _stopped(cell: CellSummary, looser: Precision) -> CellSummary:
    whole, timeline = cell.line.repetitions, cell.line.timeline
    kept = whole[: looser.min_repetitions]
    while len(kept) < len(whole) and (more := next_repetitions(kept, looser, timeline)):
        kept = whole[: len(kept) + more]
    return dataclasses.replace(
        cell,
        line=dataclasses.replace(cell.line, repetitions=kept, precision=looser),
        machine_s=cell.machine_s * len(kept) / len(whole),
    )


def figures_of(found: SweepCells) -> list[BenchmarkFigure]:
    """Return machine time and number of jobs, both against a fixed number of repetitions.

    None at all where no cell got precise, so that there is nothing to compare with.
    """
    saved = found.saving
    if saved is None or found.precision is None:
        return []
    percent = found.precision.target_ratio * 100
    counts = Counter(cell.line.statistics.target for cell in found.cells)
    against = f"{saved.fixed_repetitions} repetitions of every cell"
    job_count = sum(len(cell.line.repetitions) for cell in found.cells)
    fixed_count = sum(
        saved.fixed_repetitions
        if cell.line.statistics.target is Target.REACHED
        else len(cell.line.repetitions)
        for cell in found.cells
    )
    return [
        BenchmarkFigure(
            name=f"machine time until precise to {percent:g} %",
            unit="s",
            ours=saved.machine_s,
            baseline=saved.fixed_machine_s,
            against=against,
            note=(
                f"{saved.machine_hours_saved:.4f} machine hours saved; {counts[Target.REACHED]} of "
                f"{len(found.cells)} cells reached the target, {counts[Target.CAP]} the cap: "
                + "; ".join(describe(cell) for cell in found.cells)
            ),
        ),
        BenchmarkFigure(
            name=f"jobs until precise to {percent:g} %",
            unit="jobs",
            ours=float(job_count),
            baseline=float(fixed_count),
            against=against,
        ),
    ]


def describe(cell: CellSummary) -> str:
    """Name a cell and say how precise it got."""
    known = cell.line.statistics
    half = known.half_width_ratio
    precise = "without an interval" if half is None else f"± {half * 100:.1f} %"
    return (
        f"{cell.spec['strategy']} batch {cell.spec['global_batch_size']} {precise} in {known.count}"
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure))
