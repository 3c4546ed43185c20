"""Throughput by kind of update and number of nodes, published and our own. Pure.

Values are the examples per second of all nodes together, and their ratio to that of as many single
nodes, which is weak scaling. Their axes are `kind`, `network`, `training_pass`, `batch` and
`nodes`. Nodes that only serve are counted, too; `batch` is that of one node that trains. One node
uses no network: it is the first point of the lines of every network.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from typing import cast

from farm.configuration.spec import ServerPlacement, TrainingPass
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.study_run import StudyRun
from farm.studies.orderings import Coordinates, Placed, PlacedValues
from farm.studies.run_groups import RunGroup, placed_of

THROUGHPUT, EFFICIENCY = "throughput", "efficiency"

TRAINED = TrainingPass.FORWARD_BACKWARD.value
FORWARD = TrainingPass.FORWARD.value


class NetworkKind(enum.StrEnum):
    ETHERNET = "ethernet_1g"
    INFINIBAND = "infiniband_fdr"
    LAB = "lab"


class UpdateKind(enum.StrEnum):
    """Kinds of update, in the order of tables. What is none of them stands by its own name."""

    ALONE = "one node"
    RING = "ring"
    GLOO = "ring of Gloo"
    SERVERS = "servers on all nodes"
    APART = "server apart"
    COPIES = "servers, own copies"
    CENTRAL = "central sum"
    ASYNCHRONOUS = "asynchronous servers"
    ONE_SERVER = "one server on a node"
    ASYNCHRONOUS_APART = "asynchronous server apart"
    # Strategies of the study that have no line of their own in its figures.
    SOFT_SERVERS = "servers on all nodes, soft placement"
    DISTRIBUTED_RING = "ring of all-reduces"


# The lines of figures against nodes.
DRAWN = (
    UpdateKind.RING,
    UpdateKind.GLOO,
    UpdateKind.SERVERS,
    UpdateKind.APART,
    UpdateKind.COPIES,
    UpdateKind.CENTRAL,
    UpdateKind.ASYNCHRONOUS,
)

_PUBLISHED = {
    ("caffe2", "ring_allreduce"): UpdateKind.GLOO,
    ("tensorflow", "collective_allreduce"): UpdateKind.RING,
    ("tensorflow", "ps_collocated"): UpdateKind.SERVERS,
    ("tensorflow", "ps_noncollocated"): UpdateKind.APART,
    ("tensorflow", "distributed_replicated"): UpdateKind.COPIES,
    ("tensorflow", "distributed_allreduce_pscpu"): UpdateKind.CENTRAL,
    ("tensorflow", "distributed_allreduce_ringx1"): UpdateKind.DISTRIBUTED_RING,
}
_WITHOUT_SERVERS = {
    "single": UpdateKind.ALONE,
    "mwms_ring": UpdateKind.RING,
    "torch_ddp": UpdateKind.GLOO,
    "central_reduce": UpdateKind.CENTRAL,
}


def published_kind(one: ImportedMeasurement) -> str:
    """Return the kind of a published measurement; what is unknown is a kind of its own."""
    name = one["strategy"] or ""
    kind = _PUBLISHED.get((one.framework or "", name), name)
    return (
        UpdateKind.SOFT_SERVERS
        if kind == UpdateKind.SERVERS and one["placement"] == "soft"
        else kind
    )


def own_kind(run: StudyRun) -> str:
    """Return the kind of a run; what has no counterpart in the study is a kind of its own."""
    name, servers = run["strategy"] or "", run["server_count"]
    if name in _WITHOUT_SERVERS:
        return _WITHOUT_SERVERS[name]
    is_apart = run["server_placement"] == ServerPlacement.APART.value
    if name in ("ps_sync", "ps_async") and is_apart:
        return UpdateKind.APART if name == "ps_sync" else UpdateKind.ASYNCHRONOUS_APART
    if servers == run["world_size"] and not is_apart:
        return {
            "ps_sync": UpdateKind.SERVERS,
            "ps_async": UpdateKind.ASYNCHRONOUS,
            "replicated": UpdateKind.COPIES,
        }.get(name, name)
    return UpdateKind.ONE_SERVER if name == "ps_sync" and servers == 1 else name


class Row(RunGroup):
    """The successful runs of one configuration of ours."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        return own_kind(self.first)

    @property
    def nodes(self) -> int:
        return nodes_of(self.first)

    @property
    def batch(self) -> int:
        return self.global_batch_size // self.world_size

    @property
    def training_pass(self) -> str:
        return cast(str, self.first["training_pass"])


def nodes_of(run: StudyRun) -> int:
    """Return how many nodes a run took: those that train, and those that only serve."""
    is_apart = run["server_placement"] == ServerPlacement.APART.value
    return cast(int, run["world_size"] + (run["server_count"] if is_apart else 0))


def own_values(rows: Iterable[Row]) -> PlacedValues:
    """Return our values, lines with their one node at the beginning."""
    found = []
    for row in rows:
        at: Coordinates = {
            "kind": row.kind,
            "network": NetworkKind.LAB,
            "training_pass": row.training_pass,
            "batch": row.batch,
            "nodes": row.nodes,
        }
        placed = placed_of(row.values_of("throughput_examples_per_s"), at)
        if placed is not None:
            found.append(placed)
    return _from_one_node(found, alone=UpdateKind.ALONE)


def published_values(measurements: Iterable[ImportedMeasurement]) -> PlacedValues:
    """Return the study's values: repetitions by their median, one node on both networks."""
    values: dict[tuple[tuple[str, float | str], ...], list[float]] = {}
    for one in measurements:
        if one["step_time_s"] is None:
            continue
        for network in (
            (one["network"],) if one["network"] else (NetworkKind.ETHERNET, NetworkKind.INFINIBAND)
        ):
            at: Coordinates = {
                "kind": published_kind(one),
                "network": network,
                "training_pass": one["training_pass"],
                "batch": one["global_batch_size"] // one["world_size"],
                "nodes": one["world_size"],
            }
            values.setdefault(tuple(at.items()), []).append(
                one["global_batch_size"] / one["step_time_s"]
            )
    points = [Placed(at=dict(at), value=statistics.median(v)) for at, v in values.items()]
    # Most strategies were not measured on one node: there each is what this one is, too.
    return _from_one_node(points, alone=UpdateKind.SERVERS)


def select(points: Iterable[Placed], **at: float | str) -> list[Placed]:
    """Return the values at these places, those of fewer nodes first."""
    found = [p for p in points if all(p.at[axis] == value for axis, value in at.items())]
    return sorted(found, key=nodes_at)


def nodes_at(point: Placed) -> int:
    """Return of how many nodes a value is."""
    return int(point.at["nodes"])


def as_soft(values: PlacedValues) -> PlacedValues:
    """Return values as under soft placement, too, which is the only one that ours have."""
    return {
        of: [
            *points,
            *(
                p.moved(kind=UpdateKind.SOFT_SERVERS)
                for p in points
                if p.at["kind"] == UpdateKind.SERVERS
            ),
        ]
        for of, points in values.items()
    }


def _from_one_node(points: Sequence[Placed], *, alone: str) -> PlacedValues:
    """Give each line its one node, its own or else that of `alone` in the same framework.

    Efficiency is in terms of it; where nobody measured it, there is none.
    """

    def line(point: Placed, kind: float | str) -> tuple[float | str, ...]:
        return (kind, *(point.at[axis] for axis in ("network", "training_pass", "batch")))

    ones = {line(p, p.at["kind"]): p for p in points if nodes_at(p) == 1}
    throughput, efficiency, seen = [], [], set(ones)
    for point in points:
        kind = point.at["kind"]
        key = line(point, kind)
        one = ones.get(key)
        if one is None and kind != UpdateKind.GLOO:
            one = ones.get(line(point, alone))
        found = [point]
        # A server apart needs a second node.
        if one and key not in seen and kind != UpdateKind.APART:
            seen.add(key)
            found.append(one.moved(kind=kind))
        throughput += found
        if one:
            efficiency += [p.scaled(1 / (nodes_at(p) * one.value)) for p in found]
    return {THROUGHPUT: throughput, EFFICIENCY: efficiency}
