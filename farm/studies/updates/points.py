"""Throughput by kind of update and number of nodes, published and our own. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.configuration.spec import ServerPlacement, TrainingPass
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.study_run import StudyRun
from farm.studies.orderings import Placed
from farm.studies.run_groups import RunGroup

ETHERNET, INFINIBAND, LAB = "ethernet_1g", "infiniband_fdr", "lab"
TRAINED = TrainingPass.FORWARD_BACKWARD.value
FORWARD = TrainingPass.FORWARD.value
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

# In the order in which figures and tables have them.
DRAWN = (RING, GLOO, SERVERS, APART, COPIES, CENTRAL, ASYNCHRONOUS)
KINDS = (ALONE, *DRAWN, ONE_SERVER, ASYNCHRONOUS_APART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """A strategy of the study, `published`, beside ours; "" where one side has none."""

    kind: str
    published: str
    ours: str
    how_well: str


COUNTERPARTS = (
    Counterpart(
        kind=RING,
        published="TensorFlow `collective_allreduce`",
        ours="`mwms_ring`",
        how_well="well: TensorFlow's own collective operations, years of versions later",
    ),
    Counterpart(
        kind=GLOO,
        published="Caffe2 `ring_allreduce`",
        ours="`torch_ddp`",
        how_well="in part: another framework, Caffe2's successor, whose all-reduce on CPUs is "
        "Gloo's; it sends while the backward pass goes on",
    ),
    Counterpart(
        kind=SERVERS,
        published="TensorFlow `ps_collocated`",
        ours="`ps_sync`, a server on each node",
        how_well="in part: its table does not say whether its steps are synchronous",
    ),
    Counterpart(
        kind=APART,
        published="TensorFlow `ps_noncollocated`",
        ours="`ps_sync`, a server on a node of its own",
        how_well="in part: its table does not say how many nodes only serve; with soft placement "
        "alone, so that its table has `ps_collocated` once more, with that placement",
    ),
    Counterpart(
        kind=COPIES,
        published="TensorFlow `distributed_replicated`",
        ours="`replicated`, a server on each node",
        how_well="well: each node has weights of its own, which servers update and send back",
    ),
    Counterpart(
        kind=CENTRAL,
        published="TensorFlow `distributed_allreduce_pscpu`",
        ours="`central_reduce`",
        how_well="well, by its name: the sum on one CPU, copied back; which CPU it was its table "
        "does not say",
    ),
    Counterpart(
        kind=DISTRIBUTED_RING,
        published="TensorFlow `distributed_allreduce_ringx1`",
        ours="",
        how_well="none: a ring by name that goes like the central sum, to the last digit in two "
        "places",
    ),
    Counterpart(
        kind=ASYNCHRONOUS,
        published="",
        ours="`ps_async`",
        how_well="none in the tables that ship",
    ),
    Counterpart(
        kind=ONE_SERVER,
        published="",
        ours="`ps_sync`, one server for all",
        how_well="none: shows what one server has to send",
    ),
)

_PUBLISHED = {
    ("caffe2", "ring_allreduce"): GLOO,
    ("tensorflow", "collective_allreduce"): RING,
    ("tensorflow", "ps_collocated"): SERVERS,
    ("tensorflow", "ps_noncollocated"): APART,
    ("tensorflow", "distributed_replicated"): COPIES,
    ("tensorflow", "distributed_allreduce_pscpu"): CENTRAL,
    ("tensorflow", "distributed_allreduce_ringx1"): DISTRIBUTED_RING,
}
_WITHOUT_SERVERS = {
    "single": ALONE,
    "mwms_ring": RING,
    "torch_ddp": GLOO,
    "central_reduce": CENTRAL,
}


def published_kind(one: ImportedMeasurement) -> str:
    """Return the kind of a published measurement; what is unknown is a kind of its own."""
    name = one.strategy or ""
    kind = _PUBLISHED.get((one.framework or "", name), name)
    return SOFT_SERVERS if kind == SERVERS and one.placement == "soft" else kind


def own_kind(run: StudyRun) -> str:
    """Return the kind of a run; what has no counterpart in the study is a kind of its own."""
    name, servers = run.strategy or "", run.server_count or 0
    if name in _WITHOUT_SERVERS:
        return _WITHOUT_SERVERS[name]
    is_apart = run.server_placement == ServerPlacement.APART.value
    if name in ("ps_sync", "ps_async") and is_apart:
        return APART if name == "ps_sync" else ASYNCHRONOUS_APART
    if servers == run.world_size and not is_apart:
        return {"ps_sync": SERVERS, "ps_async": ASYNCHRONOUS, "replicated": COPIES}.get(name, name)
    return ONE_SERVER if name == "ps_sync" and servers == 1 else name


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputPoint:
    """The throughput of all nodes together, examples per second; `low` to `high`: 95 %, or None.

    `nodes` counts those that only serve, too, `batch` is of one node that trains. One node has no
    network, and stands as the first point of the lines of each. `alone`: what one node of the same
    framework has by itself, None if nobody measured it.
    """

    kind: str
    network: str
    training_pass: str
    batch: int
    nodes: int
    throughput: float
    low: float | None = None
    high: float | None = None
    alone: float | None = None

    @property
    def efficiency(self) -> float | None:
        """Return the throughput of a node over that of one alone: weak scaling."""
        return None if self.alone is None else self.throughput / (self.nodes * self.alone)

    def placed(self, *, of: str) -> Placed | None:
        """Return its "throughput" or "efficiency" as a value that orderings are asked of."""
        scale = 1.0
        if of == "efficiency":
            if self.alone is None:
                return None
            scale = 1 / (self.nodes * self.alone)
        low, high = (None if end is None else end * scale for end in (self.low, self.high))
        axes = ("kind", "network", "training_pass", "batch", "nodes")
        at = {axis: getattr(self, axis) for axis in axes}
        return Placed(at=at, value=self.throughput * scale, low=low, high=high)


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
        return self.first.global_batch_size // self.first.world_size

    @property
    def training_pass(self) -> str:
        return self.first.training_pass or TRAINED


def nodes_of(run: StudyRun) -> int:
    """Return how many nodes a run took: those that train, and those that only serve."""
    is_apart = run.server_placement == ServerPlacement.APART.value
    return run.world_size + ((run.server_count or 0) if is_apart else 0)


def own_points(rows: Iterable[Row]) -> list[ThroughputPoint]:
    """Return our points, lines with their one node at the beginning."""
    points = []
    for row in rows:
        value = row.median_of("throughput_examples_per_s")
        if value is None:
            continue
        low, high = row.interval_of("throughput_examples_per_s") or (None, None)
        points.append(
            ThroughputPoint(
                kind=row.kind,
                network=LAB,
                training_pass=row.training_pass,
                batch=row.batch,
                nodes=row.nodes,
                throughput=value,
                low=low,
                high=high,
            )
        )
    return _from_one_node(points, alone=ALONE)


def published_points(measurements: Iterable[ImportedMeasurement]) -> list[ThroughputPoint]:
    """Return the study's points: repetitions by their median, one node on both networks."""
    values: dict[ThroughputPoint, list[float]] = {}
    for one in measurements:
        if one.step_time_s is None:
            continue
        for network in (one.network,) if one.network else (ETHERNET, INFINIBAND):
            place = ThroughputPoint(
                kind=published_kind(one),
                network=network,
                training_pass=one.training_pass,
                batch=one.global_batch_size // one.world_size,
                nodes=one.world_size,
                throughput=0.0,
            )
            values.setdefault(place, []).append(one.global_batch_size / one.step_time_s)
    points = [
        dataclasses.replace(place, throughput=statistics.median(found))
        for place, found in values.items()
    ]
    # Most strategies were not measured on one node: there each is what this one is, too.
    return _from_one_node(points, alone=SERVERS)


def lines(points: Iterable[ThroughputPoint]) -> dict[str, list[ThroughputPoint]]:
    """Return the points of each kind, by nodes."""
    found: dict[str, list[ThroughputPoint]] = {}
    for point in sorted(points, key=lambda one: one.nodes):
        found.setdefault(point.kind, []).append(point)
    return found


def placed(points: Iterable[ThroughputPoint], *, of: str) -> list[Placed]:
    """Return the values that orderings are asked of."""
    return [value for point in points if (value := point.placed(of=of)) is not None]


def as_soft(points: Sequence[ThroughputPoint]) -> list[ThroughputPoint]:
    """Return points as under soft placement, which is the only one that ours have."""
    soft = [dataclasses.replace(p, kind=SOFT_SERVERS) for p in points if p.kind == SERVERS]
    return [*points, *soft]


def _from_one_node(points: Sequence[ThroughputPoint], *, alone: str) -> list[ThroughputPoint]:
    """Give each line its one node: its own, or else that of `alone` in the same framework."""
    ones = {(p.kind, p.network, p.training_pass, p.batch): p for p in points if p.nodes == 1}
    found: list[ThroughputPoint] = []
    seen = set()
    for point in points:
        condition = (point.network, point.training_pass, point.batch)
        one = ones.get((point.kind, *condition))
        if one is None and point.kind != GLOO:
            one = ones.get((alone, *condition))
        found.append(dataclasses.replace(point, alone=one.throughput if one else None))
        key = (point.kind, *condition)
        # A server apart needs a second node.
        if one and key not in ones and key not in seen and point.kind != APART:
            seen.add(key)
            found.append(dataclasses.replace(one, kind=point.kind, alone=one.throughput))
    return found
