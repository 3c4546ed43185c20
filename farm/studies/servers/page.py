"""The servers study's page: every number in it comes from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.files.charts import draw_charts
from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, Page
from farm.studies.orderings import Placed, claims_table
from farm.studies.servers.claims import CLAIMS, claimed_values
from farm.studies.servers.figures import accuracy_figure, time_figures, waiting_figure
from farm.studies.servers.findings import findings
from farm.studies.servers.lines import ServerLines, server_lines
from farm.studies.servers.tables import accuracy_table, idleness_table, times_table
from farm.studies.text import MISSING, delay_ms, kb, listing, span, whole


def servers_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no gang has a time, or the gangs did not do the same work.
    """
    lines = server_lines(runs)
    template = Template(files("farm.studies.servers").joinpath("page.md").read_text())
    text = template.substitute(
        **_set_up(lines),
        **_method(runs, lines),
        findings=conditions.findings(lines.runs, lambda some: findings(server_lines(some))),
        verdicts_rest_on=conditions.verdicts_rest_on(lines.runs),
        times=times_table(lines),
        idleness=idleness_table(lines),
        accuracies=accuracy_table(lines),
        claims=claims_table(CLAIMS, own=_claimed(lines.runs)),
    )
    figures = [*time_figures(lines), waiting_figure(lines), accuracy_figure(lines)]
    # Each with a key of its own: not all have the same lines.
    draw = partial(draw_charts, figures, columns=2, shares_legend=False, row_height_in=2.9)
    return Page(text=text, drawings=(Drawing("servers", draw),))


def _claimed(runs: Sequence[StudyRun]) -> Mapping[str, Sequence[Placed]]:
    """Return what the claims are held against; nothing where no undisturbed gang is left."""
    try:
        return claimed_values(server_lines(conditions.undisturbed(runs)))
    except FarmError:
        return {}


def _set_up(lines: ServerLines) -> dict[str, str]:
    first = lines.first
    steps = sorted({point.first.steps_per_epoch or 0 for point in lines.points})
    return {
        "model": f"`{first.model}`",
        "dataset": f"`{first.dataset}`",
        "parameters": whole(first.parameter_count),
        "gradients": kb(first.gradient_bytes or 0),
        "ranks": str(first.world_size),
        "servers": "1 server" if first.server_count == 1 else f"{first.server_count} servers",
        "place": "on a host of its own" if first.server_placement == "apart" else "beside a rank",
        "batch": str(first.global_batch_size),
        "share": str(first.global_batch_size // first.world_size),
        "epochs": "1 epoch" if first.epochs == 1 else f"{first.epochs or MISSING} epochs",
        "steps": span(map(str, steps)),
        "delays": listing([delay_ms(delay_s) for delay_s in lines.delays_s]),
    }


def _method(runs: Sequence[StudyRun], lines: ServerLines) -> dict[str, str]:
    counts = sorted(len(group.runs) for group in [*lines.points, *lines.alone.values()])
    return {
        "machine": conditions.machine(lines.runs),
        "count": str(len(lines.runs)),
        "repetitions": span(map(str, counts)),
        "sharing": _sharing(lines),
        "round_trips": conditions.round_trips(lines.runs),
        "noise": conditions.noise(lines.runs, of="rank"),
        "left_out": conditions.left_out(runs, lines.runs),
    }


def _sharing(lines: ServerLines) -> str:
    first = lines.first
    hosts = first.world_size
    if first.server_placement == "apart":
        hosts += first.server_count or 0
    cores = max(point.first.core_count for point in lines.points)
    if cores >= hosts:
        return f"Each of a gang's {hosts} hosts had a core of its own."
    return f"The {hosts} hosts of a gang shared {cores} {'core' if cores == 1 else 'cores'}."
