"""The updates study: throughput, bytes and memory of update strategies, and its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.files.bars import draw_bars
from farm.charts.files.charts import draw_charts
from farm.importers.contracts import read_publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study
from farm.studies.orderings import Placed, judge, orderings_table
from farm.studies.run_groups import one_kind, run_groups
from farm.studies.text import MISSING, kb, listing, mb, ms, percent, significant, span, table
from farm.studies.updates import charts
from farm.studies.updates.charts import PUBLISHED_BATCH, busiest_bytes_per_step
from farm.studies.updates.claims import EFFICIENCY, ORDERINGS, THROUGHPUT
from farm.studies.updates.points import (
    APART,
    ASYNCHRONOUS,
    ASYNCHRONOUS_APART,
    CENTRAL,
    COPIES,
    COUNTERPARTS,
    ETHERNET,
    GLOO,
    INFINIBAND,
    KINDS,
    ONE_SERVER,
    RING,
    SERVERS,
    TRAINED,
    Row,
    ThroughputPoint,
    as_soft,
    own_points,
    placed,
    published_points,
)

_AXES = (
    *("training_pass", "strategy", "server_placement", "server_count", "world_size"),
    *("global_batch_size", "replicas_per_rank", "steps_between_averages"),
)
# Up to here no link of a server limits the study's InfiniBand.
_FEW_NODES = 8
_Values = Mapping[str, Sequence[Placed]]
_SHARED_OUT = (RING, GLOO, SERVERS, COPIES, ASYNCHRONOUS)
_OVER_ONE_NODE = (CENTRAL, ONE_SERVER)


def updates_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    refuse_other_work(
        runs, "model", "data set", "delay", compares="strategies at one model, data set and delay"
    )
    kept = one_kind(runs, study="updates")
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
        apart=_apart_finding(published),
        counterparts=_counterparts_table(),
        traffic=_traffic_table(shown),
        memory=_memory_table(shown),
        orderings=orderings_table(
            ORDERINGS,
            published=_placed(published),
            own=_placed(as_soft(own_points(_rows(conditions.undisturbed(kept))))),
        ),
        configurations=_configurations_table(
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
        _agreement(there, here),
        *_throughput_findings(shown, own, published),
        *_byte_findings(shown),
        _memory_finding(shown),
    ]
    return [line for line in found if line]


def _placed(points: Sequence[ThroughputPoint]) -> dict[str, list[Placed]]:
    return {of: placed(points, of=of) for of in (THROUGHPUT, EFFICIENCY)}


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
    lines = {
        "updates-throughput": charts.throughput_figures,
        "updates-efficiency": charts.efficiency_figures,
        "updates-batch": charts.batch_figures,
    }
    return (
        *(Drawing(name, partial(draw_charts, of(published, own))) for name, of in lines.items()),
        Drawing("updates-traffic", partial(draw_bars, charts.traffic_bars(rows), columns=2)),
        Drawing("updates-memory", partial(draw_bars, [charts.memory_bars(rows)])),
    )


def _agreement(published: _Values, own: _Values) -> str:
    """Say of how many orderings of the study the same can be said here."""
    same = other = open_ = 0
    for ordering in ORDERINGS:
        there = judge(ordering, published[ordering.of]).holds
        here = judge(ordering, own[ordering.of]).holds
        if there is None:
            continue
        same += here is there
        other += here is not None and here is not there
        open_ += here is None
    total = same + other + open_
    return (
        f"Of {total} [orderings](#which-orderings-agree) that the study's tables show, {same} hold"
        f" here too, {other} are the other way round, and {open_} cannot be told."
    )


def _throughput_findings(
    rows: Sequence[Row], own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]
) -> list[str]:
    """Say which gang is the fastest, and what nodes are worth; `rows` are of the main batch."""
    gangs = [row for row in rows if row.nodes > 1 and row.training_pass == TRAINED]
    found = []
    for nodes in sorted({row.nodes for row in gangs}):
        there = [row for row in gangs if row.nodes == nodes and _examples_per_s(row)]
        if len(there) < 2:
            continue
        fastest, slowest = max(there, key=_examples_per_s), min(there, key=_examples_per_s)
        found.append(
            f"On {nodes} nodes *{fastest.kind}* trains most,"
            f" {significant(_examples_per_s(fastest))} examples a second, and"
            f" *{slowest.kind}* least, {significant(_examples_per_s(slowest))}."
        )
    batch = rows[0].batch if rows else 0
    for kind in (RING, SERVERS):
        ours = _efficiency_of_two(own, kind=kind, batch=batch)
        theirs = _efficiency_of_two(published, kind=kind, batch=PUBLISHED_BATCH, network=ETHERNET)
        if ours is not None and theirs is not None:
            larger = _of_larger_batches(own, kind=kind, above=batch)
            found.append(
                f"Of two nodes with *{kind}* each does {percent(ours)} of what one does alone,"
                f" {percent(theirs)} in the study on Ethernet{larger}."
            )
    return found


def _byte_findings(rows: Sequence[Row]) -> list[str]:
    """Say how what a node sends grows with the nodes."""
    found = []
    for kind, who in (
        (RING, "a rank of the ring"),
        (CENTRAL, "the place of the central sum"),
        (ONE_SERVER, "the node of a single server"),
    ):
        line = sorted((r for r in rows if r.kind == kind), key=lambda row: row.nodes)
        sent = [(row, busiest_bytes_per_step(row), _node_bytes(row)) for row in line]
        known = [(row.nodes, most, theory) for row, most, theory in sent if most and theory]
        if len(known) < 2:
            continue
        (few, first, expected_first), (many, last, expected_last) = known[0], known[-1]
        found.append(
            f"From {few} to {many} nodes what {who} sends for a step goes from"
            f" {kb(first)} kB to {kb(last)} kB, by a factor of"
            f" {last / first:.2f}; theory says {expected_last[1] / expected_first[1]:.2f}."
        )
    for row in rows:
        most, mine = busiest_bytes_per_step(row), row.median_of("wire_bytes_per_step")
        if row.kind == APART and most and mine and row.median_of("server_tx_bytes_per_s"):
            found.append(
                f"A server on a node of its own sends {kb(most)} kB for a step of"
                f" {row.first.world_size} nodes that train, {most / mine:.1f} times as much as"
                " each of them."
            )
    return found


def _memory_finding(rows: Iterable[Row]) -> str:
    """Say what a process that serves takes beside one that trains."""
    ratios = [
        serves / trains
        for row in rows
        if (serves := row.median_of("server_resident_bytes"))
        and (trains := row.median_of("worker_resident_bytes"))
    ]
    if not ratios:
        return ""
    low, high = percent(min(ratios)), percent(max(ratios))
    spread = low if low == high else f"{low} to {high}"
    return (
        f"A process that only serves takes {spread} of the memory of one that trains: what either"
        " takes is the framework far more than a small model's weights."
    )


def _apart_finding(published: Sequence[ThroughputPoint]) -> str:
    """Say what the study's own table lets guess of the nodes that only serve."""
    shares = [
        (p.nodes, p.efficiency * p.nodes / (p.nodes - 1))
        for p in sorted(published, key=lambda one: one.nodes)
        if p.kind == APART
        and p.network == INFINIBAND
        and p.training_pass == TRAINED
        and p.efficiency is not None
        and 1 < p.nodes <= _FEW_NODES
    ]
    texts = [f"{percent(share)} at {nodes}" for nodes, share in shares]
    return (
        "Of its servers apart the table does not say how many there are; on InfiniBand *n* nodes"
        f" reach {listing(texts)} nodes of what *n - 1* would alone, as if one of them only served."
    )


def _examples_per_s(row: Row) -> float:
    return row.median_of("throughput_examples_per_s") or 0.0


def _efficiency_of_two(
    points: Sequence[ThroughputPoint], *, kind: str, batch: int, network: str | None = None
) -> float | None:
    return next(
        (
            p.efficiency
            for p in points
            if (p.kind, p.batch, p.nodes, p.training_pass) == (kind, batch, 2, TRAINED)
            and network in (None, p.network)
        ),
        None,
    )


def _of_larger_batches(points: Sequence[ThroughputPoint], *, kind: str, above: int) -> str:
    batches = sorted({p.batch for p in points if p.kind == kind and p.batch > above})
    parts = [
        f"{percent(ratio)} with {batch}"
        for batch in batches
        if (ratio := _efficiency_of_two(points, kind=kind, batch=batch)) is not None
    ]
    return f"; here {listing(parts)} examples a node" if parts else ""


def _counterparts_table() -> str:
    """Say which strategy of the study is which of ours."""
    text = table(
        ["here called", "the study", "ours", "how well they correspond"],
        [[c.kind, c.published or MISSING, c.ours or MISSING, c.how_well] for c in COUNTERPARTS],
    )
    return text.replace("---:", ":---")  # words, not numbers


def _node_bytes(row: Row) -> tuple[float, float] | None:
    """Return what theory says that leaves a node for a step: of one that trains on average, and
    of the one that sends most. None where there is no theory, or nothing is exchanged.

    What a process sends to another one of its own node does not leave it.
    """
    gradient_bytes, n = row.median_of("gradient_bytes"), row.first.world_size
    if gradient_bytes is None or n < 2:
        return None
    ring = 2 * (n - 1) / n * gradient_bytes
    if row.kind in _SHARED_OUT:
        return ring, ring
    if row.kind in _OVER_ONE_NODE:
        return ring, (n - 1) * gradient_bytes
    if row.kind in (APART, ASYNCHRONOUS_APART):
        return gradient_bytes, n * gradient_bytes
    return None


def _traffic_table(rows: Sequence[Row]) -> str:
    """Write what leaves a node for a step, beside what has to."""
    shown = []
    for row in _ordered(rows):
        theory = _node_bytes(row)
        measured = row.median_of("wire_bytes_per_step"), busiest_bytes_per_step(row)
        if theory is None:
            continue
        cells = [row.kind, str(row.nodes)]
        for expected, found in zip(theory, measured, strict=True):
            over = None if found is None else found / expected - 1
            cells += [kb(expected), kb(found), percent(over, is_signed=True)]
        shown.append(cells)
    titles = ["a node: theory (kB)", "measured (kB)", "", "the most: theory (kB)", "measured (kB)"]
    return table(["strategy", "nodes", *titles, ""], shown)


def _memory_table(rows: Sequence[Row]) -> str:
    """Write the memory of a process by its role."""
    shown = []
    for row in _ordered(rows):
        cells = [row.kind, str(row.nodes)]
        for column in ("worker_resident_bytes", "server_resident_bytes"):
            ends = row.span_of(column)
            cells += [mb(row.median_of(column)), span(map(mb, ends)) if ends else MISSING]
        shown.append(cells)
    spread = "least to most"
    return table(
        ["strategy", "nodes", "trains (MB)", spread, "serves (MB)", spread],
        shown,
    )


def _configurations_table(
    rows: Sequence[Row], efficiencies: Mapping[tuple[str, str, int, int], ThroughputPoint]
) -> str:
    """Write every configuration with its medians."""
    shown = []
    for row in _ordered(rows):
        ends = row.span_of("throughput_examples_per_s")
        point = efficiencies.get((row.kind, row.training_pass, row.batch, row.nodes))
        shown.append(
            [
                row.kind,
                f"`{row.first.strategy or MISSING}`",
                str(row.nodes),
                str(row.batch),
                row.training_pass.replace("_", " and "),
                str(len(row.runs)),
                significant(row.median_of("throughput_examples_per_s")),
                span(map(significant, ends)) if ends else MISSING,
                percent(point.efficiency if point else None),
                ms(row.median_of("step_time_s")),
                percent(row.median_of("idle_ratio")),
            ]
        )
    titles = ["", "nodes", "batch of a node", "pass", "runs", "examples/s", "least to most"]
    return table(["strategy", *titles, "of as many alone", "step (ms)", "idle"], shown)


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Return rows by pass, batch, strategy and nodes."""
    places = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(
        rows,
        key=lambda r: (
            r.training_pass != "forward_backward",
            r.batch,
            places.get(r.kind, len(places)),
            r.kind,
            r.nodes,
        ),
    )


UPDATES_STUDY = Study(
    name="updates",
    summary="throughput, bytes and memory of strategies of update on up to 3 machines",
    place=LabHosts(3),
    page_file="studies/updates.md",
    page=updates_page,
    modules=("torch",),
)
