"""Everything that travels between the server and its agents, versioned.

Server to agent: *commands*, one Celery task name each, short, idempotent and fenced by a token
(the attempt id). Agent to server: *reports*, numbered without gaps and confirmed, and
*heartbeats*, which expire. A message of another version is refused, never guessed at.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field

from farm.core.codec import content_hash, from_json, to_json
from farm.core.spec import JobSpec, NetworkProfile
from farm.core.trainer_lines import DatasetSource, Epoch, Failure, StepKind, TrainerResult
from farm.errors import InvalidSpec

WIRE_VERSION = 1
_GIB = 2**30


# --- facts about an agent ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a measurement was made on, and with which software."""

    cpu_model: str
    core_count: int  # of the agent's CPU set, not of the machine
    memory_bytes: int
    accelerators: tuple[str, ...] = ()
    kernel: str
    tensorflow_version: str | None
    python_version: str
    benchfarm_version: str

    @property
    def fingerprint(self) -> str:
        """The kind of machine: measurements of one kind may be compared, of two not.

        Machines of one kind differ by some pages of memory, and neither our version nor Python's
        patch level changes what a TensorFlow step costs; the kernel and TensorFlow may.
        """
        kind = dataclasses.replace(
            self,
            memory_bytes=round(self.memory_bytes / _GIB) * _GIB,
            python_version="",
            benchfarm_version="",
        )
        return content_hash(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What an agent says of itself with every heartbeat."""

    machine_id: str
    address: str  # what peers and probes connect to
    interface: str
    first_port: int
    last_port: int
    cpus: tuple[int, ...]
    labels: dict[str, str] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    hardware: Hardware


class AgentState(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"
    SPOOL_FULL = "spool_full"  # takes no new rank until the collector has confirmed more
    LEAVING = "leaving"  # told to stop; takes no new rank


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatEcho:
    """Proof of freshness without comparing clocks.

    The server's own clock reading from the last confirmation, and how long ago, by the agent's
    monotonic clock, it arrived. Their sum is when the beat was made, in the server's time, late
    by at most the confirmation's way.
    """

    server_time_s: float
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """`counter` grows with every beat of one `boot_id`; `agent_time_s` is only for display."""

    agent_id: str
    boot_id: str
    counter: int
    state: AgentState
    serving_token: int | None  # the attempt whose rank runs here, until its last process is gone
    highest_token: int  # the highest fencing token ever seen, as kept on the agent's disk
    agent_time_s: float
    echo: BeatEcho | None
    facts: AgentFacts


# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRank:
    token: int
    rank: int
    world_size: int
    roles: tuple[str, ...]  # the role processes of this rank, such as ("worker",)
    spec: JobSpec
    prepare_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAddress:
    rank: int
    host: str
    probe_port: int
    trainer_ports: tuple[int, ...]  # one for each role process, in the order of `roles`


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """All ranks are prepared: measure the untouched round-trip time to each of the others."""

    token: int
    addresses: tuple[RankAddress, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All have measured: apply the profile and verify it. None verifies the untouched network."""

    token: int
    profile: NetworkProfile | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Connect and train. Its receipt is tick 0 of this rank's series."""

    token: int
    cluster: dict[str, tuple[str, ...]]
    timeout_s: float  # until the first step is done


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """End the attempt's rank if it runs, and refuse every token up to this one from now on."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Reports of `generation` up to `number` are committed; the spool may forget them."""

    generation: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatConfirmed:
    boot_id: str
    counter: int
    server_time_s: float


Command = StartRank | Peers | Shape | Go | StopAttempt | Confirm | BeatConfirmed

COMMANDS: dict[str, type] = {
    "start_rank": StartRank,
    "peers": Peers,
    "shape": Shape,
    "go": Go,
    "stop_attempt": StopAttempt,
    "confirm": Confirm,
    "beat_confirmed": BeatConfirmed,
}
COMMAND_NAMES = {kind: name for name, kind in COMMANDS.items()}


# --- reports ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Barrier 1: ports are held, a probe listens, a trainer waits."""

    address: RankAddress
    framework: str
    dataset: DatasetSource
    prepare_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRtt:
    rank: int
    rtt_s: float  # median
    probe_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersMeasured:
    """Barrier 2: the untouched network."""

    rtts: tuple[PeerRtt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Barrier 3: the network as the training will find it."""

    emulator: str  # "none" for the untouched network
    rtts: tuple[PeerRtt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted:
    """Barrier 4: connected, first step done."""

    parameter_count: int
    gradient_bytes: int
    connect_s: float
    first_step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One 1 Hz reading of tick `tick` (seconds since go). None is not measured, 0 is measured.

    `cpu_*_ratio` are shares of the agent's CPU set (1.0: all its cores busy); a rate covers the
    second that ends at the tick.
    """

    tick: int
    machine_cpu_ratio: float | None = None
    machine_steal_ratio: float | None = None
    cpu_ratio: float | None = None  # the trainers' process tree
    memory_used_bytes: int | None = None  # machine
    resident_bytes: int | None = None  # the trainers' process tree
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    disk_read_operations_per_s: float | None = None
    disk_write_operations_per_s: float | None = None
    extra: dict[str, float] = field(default_factory=dict)  # such as gpu0_ratio

    def __post_init__(self) -> None:
        # The store counts ticks in 32 bits; one absurd report must not block its whole batch.
        if not 0 <= self.tick < 2**31:
            raise InvalidSpec("tick", self.tick, "a tick from 0 to 2**31 - 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """`begun_s`: seconds after this rank's go at which the chunk's first step began."""

    kind: StepKind
    first_step: int
    begun_s: float
    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.first_step < 2**31:
            raise InvalidSpec("first_step", self.first_step, "a step from 0 to 2**31 - 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnded:
    """The rank's last report: every process of it is gone and its profile is undone.

    Exactly one of `result` and `failure` is set. `timed_begun_s` is the result's begin of the
    timed window in seconds after go.
    """

    result: TrainerResult | None
    failure: Failure | None
    timed_begun_s: float | None
    log_tail: str


ReportBody = (
    Prepared | PeersMeasured | Shaped | RankStarted | Samples | StepTimes | Epoch | RankEnded
)

REPORTS: dict[str, type] = {
    "prepared": Prepared,
    "peers": PeersMeasured,
    "shaped": Shaped,
    "started": RankStarted,
    "samples": Samples,
    "steps": StepTimes,
    "epoch": Epoch,
    "ended": RankEnded,
}
REPORT_NAMES = {kind: name for name, kind in REPORTS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One numbered report. Numbers start at 1 and have no gap within a spool generation."""

    number: int
    token: int
    rank: int
    kind: str  # a key of REPORTS
    body: dict[str, object]

    def decoded(self) -> ReportBody:
        """Return the body as its class.

        Raises:
            InvalidSpec: unknown kind, or a body that does not fit it.
        """
        if self.kind not in REPORTS:
            raise InvalidSpec("kind", self.kind, f"one of {', '.join(REPORTS)}")
        body: ReportBody = from_json(REPORTS[self.kind], self.body, where=self.kind)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """Consecutive reports of one spool generation, in order."""

    agent_id: str
    generation: str
    reports: tuple[Report, ...]


# --- envelope ---------------------------------------------------------------------------------


def seal(message: object) -> dict[str, object]:
    """Wrap a message for the wire, with its version."""
    return {"version": WIRE_VERSION, "message": to_json(message)}


def unseal(kind: type, envelope: object) -> object:
    """Unwrap what `seal` made, as a `kind`.

    Raises:
        InvalidSpec: another version, or a message that is not a `kind`.
    """
    if not isinstance(envelope, dict) or "message" not in envelope:
        raise InvalidSpec("envelope", envelope, "a table with version and message")
    if envelope.get("version") != WIRE_VERSION:
        raise InvalidSpec("version", envelope.get("version"), f"wire version {WIRE_VERSION}")
    return from_json(kind, envelope["message"])
