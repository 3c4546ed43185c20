"""Maps the study's names of update strategies to ours, with their differences."""

from __future__ import annotations

from dataclasses import dataclass

from farm.configuration.spec import ServerPlacement
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.study_run import StudyRun

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
