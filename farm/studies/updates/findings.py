"""What the runs of the study of strategies of update say, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from farm.studies.orderings import Placed, judge
from farm.studies.text import kb, listing, percent, significant
from farm.studies.updates.charts import PUBLISHED_BATCH, busiest_bytes_per_step
from farm.studies.updates.claims import ORDERINGS
from farm.studies.updates.kinds import APART, CENTRAL, ONE_SERVER, RING, SERVERS
from farm.studies.updates.points import ETHERNET, INFINIBAND, TRAINED, Row, ThroughputPoint
from farm.studies.updates.tables import node_bytes

# Up to here no link of a server limits the study's InfiniBand.
_FEW_NODES = 8

Values = Mapping[str, Sequence[Placed]]


def agreement(published: Values, own: Values) -> str:
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


def throughput_findings(
    rows: Sequence[Row], own: Sequence[ThroughputPoint], published: Sequence[ThroughputPoint]
) -> list[str]:
    """Say which gang is the fastest, and what nodes are worth; `rows` are of the main batch."""
    gangs = [row for row in rows if row.nodes > 1 and row.training_pass == TRAINED]
    found = []
    for nodes in sorted({row.nodes for row in gangs}):
        there = [row for row in gangs if row.nodes == nodes and _throughput(row)]
        if len(there) < 2:
            continue
        fastest, slowest = max(there, key=_throughput), min(there, key=_throughput)
        found.append(
            f"On {nodes} nodes *{fastest.kind}* trains most, {significant(_throughput(fastest))}"
            f" examples a second, and *{slowest.kind}* least,"
            f" {significant(_throughput(slowest))}."
        )
    batch = rows[0].batch if rows else 0
    for kind in (RING, SERVERS):
        ours = _efficiency(own, kind=kind, batch=batch)
        theirs = _efficiency(published, kind=kind, batch=PUBLISHED_BATCH, network=ETHERNET)
        if ours is not None and theirs is not None:
            larger = _of_larger_batches(own, kind=kind, above=batch)
            found.append(
                f"Of two nodes with *{kind}* each does {percent(ours)} of what one does alone,"
                f" {percent(theirs)} in the study on Ethernet{larger}."
            )
    return found


def byte_findings(rows: Sequence[Row]) -> list[str]:
    """Say how what a node sends grows with the nodes."""
    found = []
    for kind, who in (
        (RING, "a rank of the ring"),
        (CENTRAL, "the place of the central sum"),
        (ONE_SERVER, "the node of a single server"),
    ):
        line = sorted((r for r in rows if r.kind == kind), key=lambda row: row.nodes)
        sent = [(row, busiest_bytes_per_step(row), node_bytes(row)) for row in line]
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


def memory_finding(rows: Iterable[Row]) -> str:
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


def apart_finding(published: Sequence[ThroughputPoint]) -> str:
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


def _throughput(row: Row) -> float:
    return row.median_of("throughput_examples_per_s") or 0.0


def _efficiency(
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
        if (ratio := _efficiency(points, kind=kind, batch=batch)) is not None
    ]
    return f"; here {listing(parts)} examples a node" if parts else ""
