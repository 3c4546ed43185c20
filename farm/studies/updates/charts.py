"""Data of the figures on the page about update strategies. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from farm.charts.chart import Bars, BarSeries, ChartAxis, Figure, Mark
from farm.studies.orderings import Placed, PlacedValues
from farm.studies.run_groups import series_of
from farm.studies.updates.points import (
    DRAWN,
    EFFICIENCY,
    THROUGHPUT,
    TRAINED,
    NetworkKind,
    Row,
    UpdateKind,
    nodes_at,
    select,
)
from farm.text.display import byte_count, decimal, percent
from farm.text.plurals import counted

# Of a node, at which all strategies of the study were measured.
PUBLISHED_BATCH = 32

_AXES = {
    THROUGHPUT: ChartAxis(title="examples/s", write=decimal),
    EFFICIENCY: ChartAxis(title="of as many nodes alone", write=percent),
}
# From so many times the least value on, lines at the bottom of a linear axis cannot be told apart.
_FAR_APART = 4.0
_STUDY = {
    NetworkKind.ETHERNET: "the study, 1 Gbit/s Ethernet",
    NetworkKind.INFINIBAND: "the study, InfiniBand",
}


def kind_figures(published: PlacedValues, own: PlacedValues, *, of: str) -> list[Figure]:
    """Return a value against nodes, a line for each strategy: theirs, and ours by batch."""
    theirs = select(published[of], batch=PUBLISHED_BATCH, training_pass=TRAINED)
    ours = select(own[of], training_pass=TRAINED)
    batches = {
        p.at["batch"] for p in select(own[THROUGHPUT], training_pass=TRAINED) if nodes_at(p) > 1
    }
    panels = [
        *((title, select(theirs, network=network), True) for network, title in _STUDY.items()),
        *((f"here, {b} examples a node", select(ours, batch=b), False) for b in sorted(batches)),
    ]
    return [
        # An empty series keeps its name: all panels have the same key.
        _figure(title, {kind: select(points, kind=kind) for kind in DRAWN}, of=of, is_wide=is_wide)
        for title, points, is_wide in panels
    ]


def batch_figures(published: PlacedValues, own: PlacedValues) -> list[Figure]:
    """Return efficiency against nodes, a line for each batch of a node."""
    panels = {
        **{
            f"{title}: {UpdateKind.SERVERS}": select(
                published[EFFICIENCY], network=network, kind=UpdateKind.SERVERS
            )
            for network, title in _STUDY.items()
        },
        **{
            f"here: {kind}": select(own[EFFICIENCY], kind=kind)
            for kind in (UpdateKind.SERVERS, UpdateKind.RING)
        },
    }
    trained = {title: select(points, training_pass=TRAINED) for title, points in panels.items()}
    batches = sorted({int(p.at["batch"]) for points in trained.values() for p in points})
    return [
        _figure(
            title,
            {f"{batch} a node": select(points, batch=batch) for batch in batches},
            of=EFFICIENCY,
            is_wide=max(map(nodes_at, points), default=1) > 4,
        )
        for title, points in trained.items()
    ]


def _figure(title: str, lines: Mapping[str, Sequence[Placed]], *, of: str, is_wide: bool) -> Figure:
    values = [point.value for points in lines.values() for point in points]
    is_far_apart = bool(values) and max(values) >= _FAR_APART * min(values)
    is_log = is_far_apart and (of == THROUGHPUT or not is_wide)
    return Figure(
        title=title,
        summary=f"{of.capitalize()} against nodes: {title}.",
        x=ChartAxis(title="nodes", is_counted=True, is_log=is_wide),
        y=dataclasses.replace(_AXES[of], is_log=is_log),
        series=[
            series_of(name, (point.mark(x=nodes_at(point)) for point in points))
            for name, points in lines.items()
        ],
    )


def traffic_bars(rows: Sequence[Row]) -> list[Bars]:
    """Return what leaves a node for a step: one that trains on average, and the one with most."""

    def busiest(row: Row, place: int) -> Mark | None:
        value = busiest_bytes_per_step(row)
        return None if value is None else Mark(x=place, y=value)

    def average(row: Row, place: int) -> Mark | None:
        return row.span_mark("wire_bytes_per_step", x=place)

    gangs = [row for row in rows if row.nodes > 1]
    kinds, sizes = _kinds(gangs), sorted({row.nodes for row in gangs})
    found = {(row.kind, row.nodes): row for row in reversed(gangs)}
    return [
        Bars(
            title=title,
            summary=f"Bytes for a step by strategy and nodes: {title}.",
            x="strategy",
            y=ChartAxis(title="bytes for a step", write=byte_count),
            groups=kinds,
            series=[
                BarSeries(
                    name=counted(nodes, "node"),
                    marks=[
                        mark(row, place) if (row := found.get((kind, nodes))) else None
                        for place, kind in enumerate(kinds)
                    ],
                )
                for nodes in sizes
            ],
        )
        for title, mark in (
            ("sent by a node that trains", average),
            ("sent by the node that sends most", busiest),
        )
    ]


def memory_bars(rows: Sequence[Row]) -> Bars:
    """Return the memory of a process of either role, with the most nodes that were measured."""
    largest = [
        max((row for row in rows if row.kind == kind), key=lambda row: row.nodes)
        for kind in _kinds(rows)
    ]
    roles = {
        "process that trains": "worker_resident_bytes",
        "process that serves": "server_resident_bytes",
    }
    return Bars(
        title="memory of a process",
        summary="Memory by strategy, of a process that trains and of one that only serves.",
        x="strategy",
        y=ChartAxis(title="resident memory", write=byte_count),
        groups=[
            row.kind
            if row.kind == UpdateKind.ALONE
            else f"{row.kind}, {counted(row.nodes, 'node')}"
            for row in largest
        ],
        series=[
            BarSeries(
                name=name,
                marks=[row.span_mark(column, x=place) for place, row in enumerate(largest)],
            )
            for name, column in roles.items()
        ],
    )


def busiest_bytes_per_step(row: Row) -> float | None:
    """Return what the node that sends most sends for a step, one that only serves among them.

    Of a server's node only a rate is known, which is taken times the step's time.
    """
    rate, step_s = row.median_of("server_tx_bytes_per_s"), row.median_of("step_time_s")
    served = None if rate is None or step_s is None else rate * step_s
    sent = (served, row.median_of("largest_wire_bytes_per_step"))
    return max((value for value in sent if value is not None), default=None)


def _kinds(rows: Iterable[Row]) -> list[str]:
    found = {row.kind for row in rows}
    return [*(kind for kind in UpdateKind if kind in found), *sorted(found - set(UpdateKind))]
