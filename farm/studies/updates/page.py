"""The page on strategies of update: every number in it comes from the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from farm.errors import FarmError
from farm.importers.graur2019 import GRAUR2019
from farm.importers.published import read_publication
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, Page
from farm.studies.orderings import Placed, orderings_table
from farm.studies.run_groups import one_kind, run_groups
from farm.studies.text import MISSING, kb, listing, significant, span
from farm.studies.updates import charts
from farm.studies.updates.claims import EFFICIENCY, ORDERINGS, THROUGHPUT
from farm.studies.updates.findings import (
    agreement,
    apart_finding,
    byte_findings,
    memory_finding,
    throughput_findings,
)
from farm.studies.updates.points import (
    TRAINED,
    Row,
    ThroughputPoint,
    as_soft,
    own_points,
    placed,
    published_points,
)
from farm.studies.updates.tables import (
    configurations_table,
    counterparts_table,
    memory_table,
    traffic_table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXES = (
    *("training_pass", "strategy", "server_placement", "server_count", "world_size"),
    *("global_batch_size", "replicas_per_rank", "steps_between_averages"),
)


def updates_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    _refuse_other_work(runs)
    kept = one_kind(runs)
    if not kept:
        raise FarmError("the updates study has no measured run to show")
    rows = _rows(kept)
    own = own_points(rows)
    published = published_points(read_publication(GRAUR2019).measurements)
    main = _main_batch(rows)
    shown = [row for row in rows if row.batch == main and row.training_pass == TRAINED]
    template = Template(files("farm.studies.updates").joinpath("page.md").read_text())

    def claims(some: Sequence[StudyRun]) -> Sequence[str]:
        return _findings(_rows(some), published)

    text = template.substitute(
        findings=conditions.findings(kept, claims),
        verdicts_rest_on=conditions.verdicts_rest_on(kept),
        **_conditions(runs, kept, rows),
        citation=GRAUR2019.citation,
        what=GRAUR2019.what,
        main=str(main),
        apart=apart_finding(published),
        counterparts=counterparts_table(),
        traffic=traffic_table(shown),
        memory=memory_table(shown),
        orderings=orderings_table(
            ORDERINGS,
            published=_placed(published),
            own=_placed(as_soft(own_points(_rows(conditions.undisturbed(kept))))),
        ),
        configurations=configurations_table(
            rows, {(p.kind, p.training_pass, p.batch, p.nodes): p for p in own}
        ),
    )
    return Page(text=text, drawings=_drawings(shown, own, published))


def _rows(runs: Sequence[StudyRun]) -> list[Row]:
    return [Row(runs=group.runs) for group in run_groups(runs, _AXES)]


def _findings(rows: Sequence[Row], published: Sequence[ThroughputPoint]) -> list[str]:
    own = own_points(rows)
    main = _main_batch(rows)
    shown = [row for row in rows if row.batch == main and row.training_pass == TRAINED]
    there, here = _placed(published), _placed(as_soft(own))
    found = [
        agreement(there, here),
        *throughput_findings(shown, own, published),
        *byte_findings(shown),
        memory_finding(shown),
    ]
    return [line for line in found if line]


def _placed(points: Sequence[ThroughputPoint]) -> dict[str, list[Placed]]:
    return {of: placed(points, of=of) for of in (THROUGHPUT, EFFICIENCY)}


def _refuse_other_work(runs: Sequence[StudyRun]) -> None:
    """Its rows are told apart by strategy, nodes and batch alone: other work would be pooled."""
    refuse_other_work(
        {
            "model": {run.model for run in runs},
            "data set": {run.dataset for run in runs},
            # One node has no network.
            "delay": {run.one_way_delay_s for run in runs if run.world_size > 1},
        },
        compares="strategies at one model, data set and delay",
    )


def _main_batch(rows: Sequence[Row]) -> int:
    """Return the batch of a node that most configurations have; the smallest of several."""
    counts = Counter(row.batch for row in rows)
    return min(counts, key=lambda batch: (-counts[batch], batch))


def _conditions(
    runs: Sequence[StudyRun], kept: Sequence[StudyRun], rows: Sequence[Row]
) -> dict[str, str]:
    first = kept[0]
    frameworks = sorted({run.framework for run in kept if run.framework})
    steps = sorted({run.timed_step_count for run in kept if run.timed_step_count})
    gradients = max((run.gradient_bytes or 0 for run in kept), default=0)
    cores = max(run.core_count for run in kept)
    most = max(row.nodes for row in rows)
    return {
        "model": first.model or MISSING,
        "dataset": first.dataset or MISSING,
        "parameters": significant(max((r.parameter_count or 0 for r in kept), default=0)),
        "gradients": kb(gradients),
        "nodes": span(map(str, sorted({row.nodes for row in rows}))),
        "batches": listing([str(batch) for batch in sorted({row.batch for row in rows})]),
        "runs": str(len(kept)),
        "configurations_count": str(len(rows)),
        "repetitions": span(map(str, sorted({len(row.runs) for row in rows}))),
        "steps": span(map(str, steps)),
        "frameworks": listing(frameworks) if frameworks else MISSING,
        "machine": conditions.machine(kept),
        "noise": conditions.noise(kept, of="rank"),
        "left_out": conditions.left_out(runs, kept),
        "sharing": _sharing(most, cores),
    }


def _sharing(most_nodes: int, core_count: int) -> str:
    if most_nodes <= core_count:
        return "Every node had a core of its own."
    return (
        f"{most_nodes} nodes shared {core_count} cores, also with the farm itself, so that a node"
        " more brings less computing than a machine of its own would, or none."
    )


def _drawings(
    rows: Sequence[Row], own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]
) -> tuple[Drawing, ...]:
    return (
        Drawing("updates-throughput", partial(_throughput, own, published)),
        Drawing("updates-efficiency", partial(_efficiency, own, published)),
        Drawing("updates-batch", partial(_batches, own, published)),
        Drawing("updates-traffic", partial(_traffic, rows)),
        Drawing("updates-memory", partial(_memory, rows)),
    )


def _throughput(own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]) -> Figure:
    from farm.charts.files.charts import draw_charts

    return draw_charts(charts.throughput_figures(published, own))


def _efficiency(own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]) -> Figure:
    from farm.charts.files.charts import draw_charts

    return draw_charts(charts.efficiency_figures(published, own))


def _batches(own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]) -> Figure:
    from farm.charts.files.charts import draw_charts

    return draw_charts(charts.batch_figures(published, own))


def _traffic(rows: Sequence[Row]) -> Figure:
    from farm.charts.files.bars import draw_bars

    return draw_bars(charts.traffic_bars(rows), columns=2)


def _memory(rows: Sequence[Row]) -> Figure:
    from farm.charts.files.bars import draw_bars

    return draw_bars([charts.memory_bars(rows)])
