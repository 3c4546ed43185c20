"""The processes study's page: every number in it comes from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.files.bars import draw_bars
from farm.charts.files.charts import draw_charts
from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, Page
from farm.studies.orderings import Placed, claims_table
from farm.studies.processes.claims import CLAIMS, claimed_values
from farm.studies.processes.figures import learning_bars, time_figures
from farm.studies.processes.findings import findings
from farm.studies.processes.set_ups import SetUps, set_ups
from farm.studies.processes.tables import learning_table, times_table
from farm.studies.text import MISSING, kb, listing, span, whole


def processes_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no run has a time, or the runs are not of the same work.
    """
    found = set_ups(runs)
    template = Template(files("farm.studies.processes").joinpath("page.md").read_text())
    text = template.substitute(
        **_set_up(found),
        **_method(runs, found),
        findings=conditions.findings(found.runs, lambda some: findings(set_ups(some))),
        verdicts_rest_on=conditions.verdicts_rest_on(found.runs),
        times=times_table(found),
        learning=learning_table(found),
        claims=claims_table(CLAIMS, own=_claimed(found.runs)),
    )
    return Page(
        text=text,
        drawings=(
            Drawing("processes-time", partial(draw_charts, time_figures(found), columns=2)),
            Drawing("processes-learning", partial(draw_bars, learning_bars(found), columns=2)),
        ),
    )


def _claimed(runs: Sequence[StudyRun]) -> Mapping[str, Sequence[Placed]]:
    """Return what the claims are held against; nothing where no undisturbed run is left."""
    try:
        return claimed_values(set_ups(conditions.undisturbed(runs)))
    except FarmError:
        return {}


def _set_up(found: SetUps) -> dict[str, str]:
    first = found.runs[0]
    gradients = max((run.gradient_bytes or 0 for run in found.runs), default=0)
    return {
        "model": f"`{first.model}`",
        "dataset": f"`{first.dataset}`",
        "parameters": whole(first.parameter_count),
        "gradients": kb(gradients),
        "epochs": "1 epoch" if first.epochs == 1 else f"{first.epochs or MISSING} epochs",
        "batches": listing([str(batch) for batch in found.batches]),
        "set_ups": listing([one.name for one in found.all]),
    }


def _method(runs: Sequence[StudyRun], found: SetUps) -> dict[str, str]:
    counts = sorted(len(point.runs) for one in found.all for point in one.points)
    steps = sorted({run.timed_step_count for run in found.runs if run.timed_step_count})
    return {
        "machine": conditions.machine(found.runs),
        "cores": _cores(found),
        "count": str(len(found.runs)),
        "repetitions": span(map(str, counts)),
        "timed": span(map(str, steps)),
        "noise": conditions.noise(found.runs, of="rank"),
        "left_out": conditions.left_out(runs, found.runs),
    }


def _cores(found: SetUps) -> str:
    """Say how many cores each set-up had, as its agents told."""
    parts = []
    for one in found.all:
        counts = sorted({run.core_count for point in one.points for run in point.runs})
        cores = span(map(str, counts))
        parts.append(f"{one.name} had {cores} {'core' if cores == '1' else 'cores'}")
    return listing(parts)
