"""Checks claims of the study of update strategies against our own measurements. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from farm.studies.orderings import Coordinates, Ordering
from farm.studies.updates.points import (
    EFFICIENCY,
    FORWARD,
    THROUGHPUT,
    TRAINED,
    NetworkKind,
    UpdateKind,
)

_EXCHANGE_RULES = (
    "a node of the study computes for nine seconds before it exchanges 100 MB; here the exchange "
    "of a small model takes longer than its computing. Where it does, a second node costs more "
    "than it brings, as with Caffe2 in the study"
)
_SHARED_CORES = (
    "where nodes share cores, as three hosts of a lab on two, another brings no computing of its "
    "own, and takes part in the exchange"
)
_TWO_CLOSE = (
    "at three nodes at most, and with what takes most of a step being the same bytes over the same "
    "links, the two differ in how many messages wait for each other, and not in what is sent"
)


def _where(
    *kinds: str,
    batch: int | None = 32,
    training_pass: str | None = TRAINED,
    networks: tuple[str, ...] = (NetworkKind.ETHERNET, NetworkKind.INFINIBAND, NetworkKind.LAB),
    least_nodes: int = 2,
    most_nodes: int = 1_000,
) -> Callable[[Coordinates], bool]:
    """Admit what was measured there; None: any batch, or either pass."""

    return lambda at: (
        at["kind"] in kinds
        and batch in (None, at["batch"])
        and training_pass in (None, at["training_pass"])
        and at["network"] in networks
        and least_nodes <= float(at["nodes"]) <= most_nodes
    )


_ALONG_NODES = partial(Ordering, of=THROUGHPUT, along="nodes", is_rising=True)
_BY_BATCH = partial(
    Ordering,
    along="batch",
    is_rising=True,
    because="the exchange does not depend on the batch, so that it can only weigh less",
)
_BY_PASS = partial(Ordering, along="training_pass", is_rising=True, order=(TRAINED, FORWARD))


def _grows(kind: str, *, because: str = _SHARED_CORES) -> Ordering:
    says = f"From two nodes on, throughput grows with them: {kind}"
    return _ALONG_NODES(says=says, where=_where(kind), because=because)


def _slower(
    slow: str, fast: str, *, says: str, because: str, least_nodes: int = 2, most_nodes: int = 1_000
) -> Ordering:
    return Ordering(
        says=says,
        of=THROUGHPUT,
        along="kind",
        is_rising=True,
        order=(slow, fast),
        where=_where(slow, fast, least_nodes=least_nodes, most_nodes=most_nodes),
        because=because,
    )


ORDERINGS = (
    *(
        _ALONG_NODES(
            says=f"Two nodes train more than one: {kind}",
            where=_where(kind, least_nodes=1, most_nodes=2),
            because=_EXCHANGE_RULES,
        )
        for kind in (UpdateKind.RING, UpdateKind.SERVERS)
    ),
    Ordering(
        says="Two nodes train less than one: ring of Gloo",
        of=THROUGHPUT,
        along="nodes",
        is_rising=False,
        where=_where(UpdateKind.GLOO, least_nodes=1, most_nodes=2),
        because="Caffe2's one node was more than four times as fast as TensorFlow's, which leaves "
        "more to lose",
    ),
    *(_grows(kind) for kind in (UpdateKind.RING, UpdateKind.SERVERS, UpdateKind.COPIES)),
    _grows(
        UpdateKind.CENTRAL,
        because="the place that sums up receives and sends once more for each node, which a slow "
        "link cannot hide. In the study, too, its throughput hardly grows from eight nodes on",
    ),
    *(
        Ordering(
            says=f"With more nodes each of them does less: {kind}",
            of=EFFICIENCY,
            along="nodes",
            is_rising=False,
            where=_where(kind, least_nodes=1),
            because="only noise can make nodes quicker that wait for each other",
        )
        for kind in (UpdateKind.SERVERS, UpdateKind.CENTRAL)
    ),
    _slower(
        UpdateKind.SERVERS,
        UpdateKind.RING,
        says="The ring is faster than servers on all nodes",
        because="both send 2 (n - 1) / n G from each node. " + _TWO_CLOSE,
    ),
    _slower(
        UpdateKind.CENTRAL,
        UpdateKind.RING,
        says="The ring is faster than the central sum",
        because=_TWO_CLOSE,
    ),
    _slower(
        UpdateKind.CENTRAL,
        UpdateKind.SERVERS,
        says="Servers on all nodes are faster than the central sum",
        because="a server on each node shares the summing out, but is a process more on the same "
        "cores",
    ),
    _slower(
        UpdateKind.COPIES,
        UpdateKind.SERVERS,
        says="Own copies of the weights make servers on all nodes slower",
        because="both send gradients and receive weights once in a step, the one at its end and "
        "the other at its beginning, so that the same bytes go the same way",
    ),
    _slower(
        UpdateKind.APART,
        UpdateKind.SOFT_SERVERS,
        says="At up to 8 nodes a server apart is slower than servers on all of them",
        because="one link of a server takes what all others send",
        most_nodes=8,
    ),
    _BY_BATCH(
        says="A larger batch of each node raises throughput: servers on all nodes",
        of=THROUGHPUT,
        where=_where(UpdateKind.SERVERS, batch=None),
    ),
    _BY_BATCH(
        says="A larger batch of each node raises what each does of one alone: servers on all "
        "nodes, without InfiniBand",
        of=EFFICIENCY,
        where=_where(
            UpdateKind.SERVERS, batch=None, networks=(NetworkKind.ETHERNET, NetworkKind.LAB)
        ),
    ),
    _BY_PASS(
        says="The forward pass alone is faster: ring",
        of=THROUGHPUT,
        where=_where(UpdateKind.RING, training_pass=None, least_nodes=1),
        because="without a backward pass there is less to compute, and nothing to exchange",
    ),
    _BY_PASS(
        says="The forward pass alone leaves nodes faster, beside one alone: ring",
        of=EFFICIENCY,
        where=_where(UpdateKind.RING, training_pass=None),
        because=_SHARED_CORES,
    ),
    _slower(
        UpdateKind.RING,
        UpdateKind.GLOO,
        says="On one node Gloo's framework is faster than TensorFlow",
        because="Caffe2 computed ResNet-50 with another library than TensorFlow 1.13 did; of this "
        "small model a step is mostly what a framework itself takes",
        least_nodes=1,
        most_nodes=1,
    ),
    _slower(
        UpdateKind.GLOO,
        UpdateKind.RING,
        says="From two nodes on Gloo's ring is slower than TensorFlow's",
        because="PyTorch sends while its backward pass goes on, and its ring sends the same bytes "
        "over the same links",
    ),
    Ordering(
        says="InfiniBand is faster than Ethernet: servers on all nodes",
        of=THROUGHPUT,
        along="network",
        is_rising=True,
        order=(NetworkKind.ETHERNET, NetworkKind.INFINIBAND, NetworkKind.LAB),
        where=_where(UpdateKind.SERVERS, batch=None, training_pass=None),
        because="not measured here: a lab has one kind of link. What slower links cost by their "
        "delay, the latency study says",
    ),
)
