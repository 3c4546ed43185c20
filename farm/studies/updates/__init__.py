"""The updates study: throughput, bytes and memory of update strategies, and its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from farm.charts.files.bars import draw_bars
from farm.charts.files.charts import draw_charts
from farm.importers.contracts import read_publication
from farm.importers.graur2019 import GRAUR2019
from farm.measuring.study_run import StudyRun
from farm.studies import conditions, tables
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study, write_page
from farm.studies.orderings import PlacedValues, agreement, orderings_table
from farm.studies.run_groups import one_kind, run_groups
from farm.studies.text import MISSING, kb, listing, mb, ms, percent, significant, span
from farm.studies.updates import charts
from farm.studies.updates.charts import PUBLISHED_BATCH, busiest_bytes_per_step
from farm.studies.updates.claims import ORDERINGS
from farm.studies.updates.points import (
    EFFICIENCY,
    THROUGHPUT,
    TRAINED,
    NetworkKind,
    Row,
    UpdateKind,
    as_soft,
    nodes_at,
    own_values,
    published_values,
    select,
)

_AXES = (
    *("training_pass", "strategy", "server_placement", "server_count", "world_size"),
    *("global_batch_size", "replicas_per_rank", "steps_between_averages"),
)
# Up to here no link of a server limits the study's InfiniBand.
_FEW_NODES = 8
_SHARED_OUT = (
    UpdateKind.RING,
    UpdateKind.GLOO,
    UpdateKind.SERVERS,
    UpdateKind.COPIES,
    UpdateKind.ASYNCHRONOUS,
)
_OVER_ONE_NODE = (UpdateKind.CENTRAL, UpdateKind.ONE_SERVER)
_RowColumn = tuple[str, Callable[[Row], str]]


def updates_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    refuse_other_work(
        runs,
        *("model", "data set", "delay"),
        compares="strategies at one model, data set and delay",
    )
    kept = one_kind(runs, study="updates")
    rows = _ordered(_rows(kept))
    own, published = own_values(rows), published_values(read_publication(GRAUR2019).measurements)
    batch = _main_batch(rows)
    main = _trained(rows, batch)
    texts = conditions.texts(runs, kept, rows, of="rank") | {
        "citation": GRAUR2019.citation,
        "what": GRAUR2019.what,
        "parameters": significant(max(run.parameter_count or 0 for run in kept)),
        "nodes": span(map(str, sorted({row.nodes for row in rows}))),
        "node_batches": listing([str(batch) for batch in sorted({row.batch for row in rows})]),
        "configurations_count": str(len(rows)),
        "sharing": _sharing(max(row.nodes for row in rows), max(run.core_count for run in kept)),
        "main": str(batch),
        "findings": conditions.findings(kept, lambda some: _findings(_rows(some), published)),
        "apart": _apart_finding(published),
        "traffic": _traffic_table(main),
        "memory": tables.table_of(main, _MEMORY),
        "orderings": orderings_table(
            ORDERINGS,
            published=published,
            own=as_soft(own_values(_rows(conditions.undisturbed(kept)))),
        ),
        "configurations": _configurations_table(rows, own),
    }
    kinds = partial(charts.kind_figures, published, own)
    return write_page(
        "updates",
        texts,
        Drawing("updates-throughput", partial(draw_charts, kinds(of=THROUGHPUT))),
        Drawing("updates-efficiency", partial(draw_charts, kinds(of=EFFICIENCY))),
        Drawing("updates-batch", partial(draw_charts, charts.batch_figures(published, own))),
        Drawing("updates-traffic", partial(draw_bars, charts.traffic_bars(main), columns=2)),
        Drawing("updates-memory", partial(draw_bars, [charts.memory_bars(main)])),
    )


def _rows(runs: Sequence[StudyRun]) -> list[Row]:
    return [Row(runs=group.runs) for group in run_groups(runs, _AXES)]


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """Return rows by pass, batch, strategy and nodes."""
    places: dict[str, int] = {kind: place for place, kind in enumerate(UpdateKind)}
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


def _main_batch(rows: Sequence[Row]) -> int:
    """Return the batch of a node that most configurations have; the smallest of several."""
    counts = Counter(row.batch for row in rows)
    return min(counts, key=lambda batch: (-counts[batch], batch))


def _trained(rows: Sequence[Row], batch: int) -> list[Row]:
    return [row for row in rows if row.batch == batch and row.training_pass == TRAINED]


def _sharing(most_nodes: int, core_count: int) -> str:
    if most_nodes <= core_count:
        return "Every node had a core of its own."
    return (
        f"{most_nodes} nodes shared {core_count} cores, also with the farm itself, so that a node"
        " more brings less computing than a machine of its own would, or none."
    )


def _findings(rows: Sequence[Row], published: PlacedValues) -> list[str]:
    if not rows:
        return []
    own, batch = own_values(rows), _main_batch(rows)
    main = _trained(rows, batch)
    same, other, unknown = agreement(ORDERINGS, published=published, own=as_soft(own))
    return [
        f"Of {same + other + unknown} [orderings](#which-orderings-agree) that the study's "
        "tables"
        f" show, {same} hold here too, {other} are the other way round, and {unknown} cannot be"
        " told.",
        *_throughput_findings(main),
        *_efficiency_findings(own, published, batch=batch),
        *_byte_findings(main),
        *_memory_finding(main),
    ]


def _throughput_findings(rows: Sequence[Row]) -> list[str]:
    """Say which gang is the fastest."""
    found = []
    for nodes in sorted({row.nodes for row in rows if row.nodes > 1}):
        there = [row for row in rows if row.nodes == nodes and _examples_per_s(row)]
        if len(there) < 2:
            continue
        fastest, slowest = max(there, key=_examples_per_s), min(there, key=_examples_per_s)
        found.append(
            f"On {nodes} nodes *{fastest.kind}* trains most,"
            f" {significant(_examples_per_s(fastest))} examples a second, and"
            f" *{slowest.kind}* least, {significant(_examples_per_s(slowest))}."
        )
    return found


def _examples_per_s(row: Row) -> float:
    return row.median_of("throughput_examples_per_s") or 0.0


def _efficiency_findings(own: PlacedValues, published: PlacedValues, *, batch: int) -> list[str]:
    """Say what two nodes are worth; `batch`: of a node, the one that is held against theirs."""
    found = []
    for kind in (UpdateKind.RING, UpdateKind.SERVERS):
        of_two: dict[str, float | str] = {"kind": kind, "nodes": 2, "training_pass": TRAINED}
        ours = {int(p.at["batch"]): p.value for p in reversed(select(own[EFFICIENCY], **of_two))}
        theirs = select(
            published[EFFICIENCY], **of_two, batch=PUBLISHED_BATCH, network=NetworkKind.ETHERNET
        )
        if batch not in ours or not theirs:
            continue
        larger = [f"{percent(ours[b])} with {b}" for b in sorted(ours) if b > batch]
        found.append(
            f"Of two nodes with *{kind}* each does {percent(ours[batch])} of what one does alone,"
            f" {percent(theirs[0].value)} in the study on Ethernet"
            + (f"; here {listing(larger)} examples a node." if larger else ".")
        )
    return found


def _byte_findings(rows: Sequence[Row]) -> list[str]:
    """Say how what a node sends grows with the nodes."""
    found = []
    for kind, who in (
        (UpdateKind.RING, "a rank of the ring"),
        (UpdateKind.CENTRAL, "the place of the central sum"),
        (UpdateKind.ONE_SERVER, "the node of a single server"),
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
        if (
            row.kind == UpdateKind.APART
            and most
            and mine
            and row.median_of("server_tx_bytes_per_s")
        ):
            found.append(
                f"A server on a node of its own sends {kb(most)} kB for a step of"
                f" {row.world_size} nodes that train, {most / mine:.1f} times as much as"
                " each of them."
            )
    return found


def _memory_finding(rows: Iterable[Row]) -> list[str]:
    """Say what a process that serves takes beside one that trains."""
    ratios = [
        serves / trains
        for row in rows
        if (serves := row.median_of("server_resident_bytes"))
        and (trains := row.median_of("worker_resident_bytes"))
    ]
    if not ratios:
        return []
    return [
        f"A process that only serves takes {span(map(percent, sorted(ratios)))} of the memory of"
        " one that trains: what either takes is the framework far more than a small model's"
        " weights."
    ]


def _apart_finding(published: PlacedValues) -> str:
    """Say what the study's own table lets guess of the nodes that only serve."""
    points = select(
        published[EFFICIENCY],
        kind=UpdateKind.APART,
        network=NetworkKind.INFINIBAND,
        training_pass=TRAINED,
    )
    shares = [(nodes_at(p), p.value) for p in points if 1 < nodes_at(p) <= _FEW_NODES]
    texts = [f"{percent(value * nodes / (nodes - 1))} at {nodes}" for nodes, value in shares]
    return (
        "Of its servers apart the table does not say how many there are; on InfiniBand *n* nodes"
        f" reach {listing(texts)} nodes of what *n - 1* would alone, as if one of them only served."
    )


def _node_bytes(row: Row) -> tuple[float, float] | None:
    """Return what theory says that leaves a node for a step: of one that trains on average, and
    of the one that sends most. None where there is no theory, or nothing is exchanged.

    What a process sends to another one of its own node does not leave it.
    """
    gradient_bytes, n = row.median_of("gradient_bytes"), row.world_size
    if gradient_bytes is None or n < 2:
        return None
    ring = 2 * (n - 1) / n * gradient_bytes
    if row.kind in _SHARED_OUT:
        return ring, ring
    if row.kind in _OVER_ONE_NODE:
        return ring, (n - 1) * gradient_bytes
    if row.kind in (UpdateKind.APART, UpdateKind.ASYNCHRONOUS_APART):
        return gradient_bytes, n * gradient_bytes
    return None


_NAMES: tuple[_RowColumn, ...] = (
    ("strategy", lambda row: row.kind),
    ("nodes", lambda row: str(row.nodes)),
)
_MEMORY: tuple[_RowColumn, ...] = (
    *_NAMES,
    tables.median("trains (MB)", "worker_resident_bytes", mb),
    tables.least_to_most("worker_resident_bytes", mb),
    tables.median("serves (MB)", "server_resident_bytes", mb),
    tables.least_to_most("server_resident_bytes", mb),
)


def _traffic_table(rows: Sequence[Row]) -> str:
    """Write what leaves a node for a step, beside what has to."""

    def theory(row: Row, place: int) -> float | None:
        found = _node_bytes(row)
        return found[place] if found else None

    def columns(who: str, place: int, measured: Callable[[Row], float | None]) -> list[_RowColumn]:
        def over(row: Row) -> str:
            found, expected = measured(row), theory(row, place)
            ratio = found / expected - 1 if found is not None and expected else None
            return percent(ratio, is_signed=True)

        return [
            (f"{who}: theory (kB)", lambda row: kb(theory(row, place))),
            ("measured (kB)", lambda row: kb(measured(row))),
            ("", over),
        ]

    return tables.table_of(
        [row for row in rows if _node_bytes(row) is not None],
        [
            *_NAMES,
            *columns("a node", 0, lambda row: row.median_of("wire_bytes_per_step")),
            *columns("the most", 1, busiest_bytes_per_step),
        ],
    )


def _configurations_table(rows: Sequence[Row], own: PlacedValues) -> str:
    """Write every configuration with its medians."""

    def efficiency(row: Row) -> str:
        at = {axis: getattr(row, axis) for axis in ("kind", "training_pass", "batch", "nodes")}
        points = select(own[EFFICIENCY], **at)
        return percent(points[-1].value if points else None)

    columns: list[_RowColumn] = [
        ("strategy", lambda row: row.kind),
        ("", lambda row: f"`{row.first['strategy'] or MISSING}`"),
        ("nodes", lambda row: str(row.nodes)),
        ("batch of a node", lambda row: str(row.batch)),
        ("pass", lambda row: row.training_pass.replace("_", " and ")),
        tables.RUNS_COLUMN,
        tables.median("examples/s", "throughput_examples_per_s", significant),
        tables.least_to_most("throughput_examples_per_s", significant),
        ("of as many alone", efficiency),
        tables.median("step (ms)", "step_time_s", ms),
        tables.median("idle", "idle_ratio", percent),
    ]
    return tables.table_of(rows, columns)


UPDATES_STUDY = Study(
    name="updates",
    summary="throughput, bytes and memory of strategies of update on up to 3 machines",
    place=LabHosts(3),
    page_file="studies/updates.md",
    page=updates_page,
    modules=("torch",),
)
