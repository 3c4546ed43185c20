"""Data of the figures on the page about update strategies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farm.charts.chart import Bars, BarSeries, ChartAxis, ChartSeries, Figure, Mark
from farm.studies.updates.points import (
    ALONE,
    DRAWN,
    ETHERNET,
    INFINIBAND,
    KINDS,
    LAB,
    RING,
    SERVERS,
    TRAINED,
    Row,
    ThroughputPoint,
    lines,
)
from farm.text.display import byte_count, decimal, percent

# Of a node, at which all strategies of the study were measured.
PUBLISHED_BATCH = 32

_NODES = ChartAxis(title="nodes", is_counted=True)
_NODES_LOG = ChartAxis(title="nodes", is_counted=True, is_log=True)
_THROUGHPUT = ChartAxis(title="examples/s", write=decimal)
_THROUGHPUT_LOG = ChartAxis(title="examples/s", write=decimal, is_log=True)
_EFFICIENCY = ChartAxis(title="of as many nodes alone", write=percent)
_EFFICIENCY_LOG = ChartAxis(title="of as many nodes alone", write=percent, is_log=True)
# From so many times the least value on, lines at the bottom of a linear axis cannot be told apart.
_FAR_APART = 4.0
_STUDY = {ETHERNET: "the study, 1 Gbit/s Ethernet", INFINIBAND: "the study, InfiniBand"}


def batches_of(points: Sequence[ThroughputPoint], *, network: str = LAB) -> list[int]:
    """Return the batches of a node at which several nodes trained, the smallest first."""
    return sorted({p.batch for p in points if p.network == network and p.nodes > 1 and _trained(p)})


def throughput_figures(
    published: Sequence[ThroughputPoint], own: Sequence[ThroughputPoint]
) -> list[Figure]:
    """Return throughput against nodes, a line for each strategy: theirs, and ours by batch."""
    return [_by_kind(*panel, is_efficiency=False) for panel in _panels(published, own)]


def efficiency_figures(
    published: Sequence[ThroughputPoint], own: Sequence[ThroughputPoint]
) -> list[Figure]:
    """Return the same relative to one node, which makes the two comparable."""
    return [_by_kind(*panel, is_efficiency=True) for panel in _panels(published, own)]


def batch_figures(
    published: Sequence[ThroughputPoint], own: Sequence[ThroughputPoint]
) -> list[Figure]:
    """Return efficiency against nodes, a line for each batch of a node."""
    panels = [
        *((f"{_STUDY[net]}: {SERVERS}", net, SERVERS, published) for net in (ETHERNET, INFINIBAND)),
        *((f"here: {kind}", LAB, kind, own) for kind in (SERVERS, RING)),
    ]
    found = [
        (title, [p for p in points if p.network == net and p.kind == kind and _trained(p)])
        for title, net, kind, points in panels
    ]
    batches = sorted({point.batch for _, points in found for point in points})
    figures = []
    for title, points in found:
        series = [(f"{batch} a node", [p for p in points if p.batch == batch]) for batch in batches]
        figures.append(_figure(title, series, is_efficiency=True))
    return figures


def traffic_bars(rows: Sequence[Row]) -> list[Bars]:
    """Return what leaves a node for a step: one that trains on average, and the one with most."""
    kinds = _kinds(row for row in rows if row.nodes > 1)
    return [
        _bars(title, column, kinds, rows)
        for title, column in (
            ("sent by a node that trains", "wire_bytes_per_step"),
            ("sent by the node that sends most", "busiest"),
        )
    ]


def memory_bars(rows: Sequence[Row]) -> Bars:
    """Return the memory of a process of either role, with the most nodes that were measured."""
    largest = [
        max((row for row in rows if row.kind == kind), key=lambda row: row.nodes)
        for kind in _kinds(rows)
    ]
    series = []
    for name, column in (
        ("process that trains", "worker_resident_bytes"),
        ("process that serves", "server_resident_bytes"),
    ):
        marks = [_span_mark(row, column, place) for place, row in enumerate(largest)]
        series.append(BarSeries(name=name, marks=marks))
    return Bars(
        title="memory of a process",
        summary="Memory by strategy, of a process that trains and of one that only serves.",
        x="strategy",
        y=ChartAxis(title="resident memory", write=byte_count),
        groups=[
            row.kind if row.kind == ALONE else f"{row.kind}, {_nodes_text(row.nodes)}"
            for row in largest
        ],
        series=series,
    )


def busiest_bytes_per_step(row: Row) -> float | None:
    """Return what the node that sends most sends for a step, one that only serves among them.

    Of a server's node only a rate is known, which is taken times the step's time.
    """
    rate, step_s = row.median_of("server_tx_bytes_per_s"), row.median_of("step_time_s")
    served = [] if rate is None or step_s is None else [rate * step_s]
    trained = row.median_of("largest_wire_bytes_per_step")
    return max([*served, *([] if trained is None else [trained])], default=None)


def _panels(
    published: Sequence[ThroughputPoint], own: Sequence[ThroughputPoint]
) -> list[tuple[str, list[ThroughputPoint], bool]]:
    panels = [
        (
            title,
            [
                p
                for p in published
                if p.network == net and p.batch == PUBLISHED_BATCH and _trained(p)
            ],
            True,
        )
        for net, title in _STUDY.items()
    ]
    for batch in batches_of(own):
        shown = [p for p in own if p.batch == batch and _trained(p)]
        panels.append((f"here, {batch} examples a node", shown, False))
    return panels


def _by_kind(
    title: str, points: Sequence[ThroughputPoint], is_wide: bool, *, is_efficiency: bool
) -> Figure:
    by_kind = lines(points)
    # An empty series keeps its name: all panels have the same key.
    series = [(kind, by_kind.get(kind, [])) for kind in DRAWN]
    return _figure(title, series, is_efficiency=is_efficiency, is_wide=is_wide)


def _figure(
    title: str,
    series: Sequence[tuple[str, Sequence[ThroughputPoint]]],
    *,
    is_efficiency: bool,
    is_wide: bool | None = None,
) -> Figure:
    nodes = [point.nodes for _, points in series for point in points]
    is_wide = max(nodes, default=1) > 4 if is_wide is None else is_wide
    is_log = _are_far_apart([point for _, points in series for point in points], is_efficiency)
    return Figure(
        title=title,
        summary=f"{'Efficiency' if is_efficiency else 'Throughput'} against nodes: {title}.",
        x=_NODES_LOG if is_wide else _NODES,
        y=(_EFFICIENCY_LOG if is_log and not is_wide else _EFFICIENCY)
        if is_efficiency
        else (_THROUGHPUT_LOG if is_log else _THROUGHPUT),
        series=[
            ChartSeries(
                name=name,
                marks=[
                    mark
                    for point in sorted(points, key=lambda one: one.nodes)
                    if (mark := _mark(point, is_efficiency=is_efficiency)) is not None
                ],
            )
            for name, points in series
        ],
    )


def _are_far_apart(points: Sequence[ThroughputPoint], is_efficiency: bool) -> bool:
    values = [p.efficiency if is_efficiency else p.throughput for p in points]
    known = [value for value in values if value is not None]
    return bool(known) and max(known) >= _FAR_APART * min(known)


def _mark(point: ThroughputPoint, *, is_efficiency: bool) -> Mark | None:
    value = point.placed(of="efficiency" if is_efficiency else "throughput")
    if value is None:
        return None
    return Mark(x=float(point.nodes), y=value.value, low=value.low, high=value.high)


def _bars(title: str, column: str, kinds: Sequence[str], rows: Sequence[Row]) -> Bars:
    series = []
    for nodes in sorted({row.nodes for row in rows if row.nodes > 1}):
        marks: list[Mark | None] = []
        for place, kind in enumerate(kinds):
            row = next((r for r in rows if r.kind == kind and r.nodes == nodes), None)
            marks.append(None if row is None else _traffic_mark(row, column, place))
        series.append(BarSeries(name=_nodes_text(nodes), marks=marks))
    return Bars(
        title=title,
        summary=f"Bytes for a step by strategy and nodes: {title}.",
        x="strategy",
        y=ChartAxis(title="bytes for a step", write=byte_count),
        groups=kinds,
        series=series,
    )


def _traffic_mark(row: Row, column: str, place: int) -> Mark | None:
    if column == "busiest":
        value = busiest_bytes_per_step(row)
        return None if value is None else Mark(x=place, y=value)
    return _span_mark(row, column, place)


def _span_mark(row: Row, column: str, place: int) -> Mark | None:
    value, ends = row.median_of(column), row.span_of(column)
    if value is None or ends is None:
        return None
    return Mark(x=place, y=value, low=ends[0], high=ends[1])


def _kinds(rows: Iterable[Row]) -> list[str]:
    found = {row.kind for row in rows}
    return [kind for kind in KINDS if kind in found] + sorted(found - set(KINDS))


def _nodes_text(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _trained(point: ThroughputPoint) -> bool:
    return point.training_pass == TRAINED
