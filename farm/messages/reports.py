"""Reports of an agent about a rank: numbered without gaps, kept until confirmed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from farm.configuration.spec import MAX_RANKS_PER_AGENT, MAX_WORLD_SIZE
from farm.errors import InvalidSpec
from farm.messages.agents import check_agent_id, check_short
from farm.messages.commands import RankAddress
from farm.messages.trainer_lines import DatasetSource, Epoch, Failure, StepKind, TrainerResult
from farm.values.codec import UNDECODED, from_json
from farm.values.ranges import (
    EXTRAS,
    ByteSize,
    Count,
    CountedShare,
    Duration,
    FiniteFloat,
    Identifier,
    Length,
    LongText,
    Range,
    Rate,
    Share,
    ShortText,
    Span,
)

# Agents stay below both, so that no log can fill the store.
LONGEST_LOG_CHARACTERS = 8 * 1024 * 1024
LONGEST_LOG_PART_CHARACTERS = 36 * 1024
MOST_SAMPLES_AT_ONCE = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Barrier 1: ports are held, a probe listens, a trainer waits.

    `device_control_s`: of the slowest of the agent's ranks; None where one trains on no GPU.
    """

    address: RankAddress
    framework: ShortText
    dataset: DatasetSource
    model_sha256: ShortText | None = None
    device_control_s: Duration | None = None
    prepare_s: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRtt:
    rank: Count
    rtt_s: Duration  # median
    probe_count: Count


PeerRtts = Annotated[tuple[PeerRtt, ...], Length(MAX_WORLD_SIZE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerBandwidth:
    """What arrived at a peer when this rank sent as much as it could, headers included."""

    rank: Count
    bytes_per_s: Rate
    byte_count: ByteSize  # timed


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersMeasured:
    """Barrier 2: the untouched network, and the machine itself.

    `control_s`: how long the agent's cores took for a fixed piece of work, None if it was not run.
    """

    rtts: PeerRtts
    control_s: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Barrier 3: the network as the training will find it.

    `bandwidths`: where the profile limits them and the round trips are as asked. `loaded_rtts`:
    round trips beside one bulk stream of this rank's, to the peer that it goes to. Empty where
    they were not measured; `loaded_rtt_unknown` says why.
    """

    emulator: ShortText  # "none" for the untouched network
    rtts: PeerRtts
    bandwidths: Annotated[tuple[PeerBandwidth, ...], Length(MAX_WORLD_SIZE)] = ()
    loaded_rtts: PeerRtts = ()
    loaded_rtt_unknown: LongText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted:
    """Barrier 4: connected, first step done."""

    parameter_count: ByteSize | None  # as large as its bytes may be
    gradient_bytes: ByteSize | None
    connect_s: Span
    first_step_s: Span
    weights_checksum: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One 1 Hz reading of tick `tick` (seconds since go). None is not measured, 0 is measured.

    `cpu_*_ratio` are shares of the agent's CPU set (1.0: all its cores busy); a rate covers the
    second that ends at the tick.
    """

    tick: Count
    machine_cpu_ratio: Share | None = None
    machine_steal_ratio: Share | None = None
    cpu_ratio: CountedShare | None = None  # the trainers' process tree
    memory_used_bytes: ByteSize | None = None  # machine
    resident_bytes: ByteSize | None = None  # the trainers' process tree
    net_rx_bytes_per_s: Rate | None = None
    net_tx_bytes_per_s: Rate | None = None
    disk_read_bytes_per_s: Rate | None = None
    disk_write_bytes_per_s: Rate | None = None
    disk_read_operations_per_s: Rate | None = None
    disk_write_operations_per_s: Rate | None = None
    swap_bytes_per_s: Rate | None = None  # to and from swap, the whole machine
    throttled_ratio: Share | None = None  # share of the second held back by a CPU quota
    # Such as gpu0_ratio.
    extra: Annotated[dict[str, float], EXTRAS] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    samples: Annotated[tuple[Sample, ...], Length(MOST_SAMPLES_AT_ONCE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """`begun_s`: seconds after go at which the chunk's first step began.

    `process`: which of the agent's ranks made them. Those of others than the first are reported
    where ranks do not step together.
    """

    process: Annotated[int, Range(0, MAX_RANKS_PER_AGENT - 1)] = 0
    kind: StepKind
    first_step: Count
    begun_s: Span
    times_s: tuple[Duration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """A piece of the output of a rank's trainers.

    `first_character`: where in the rank's log it begins. Bytes that are no UTF-8 are replaced.
    """

    first_character: Annotated[int, Range(0, LONGEST_LOG_CHARACTERS - 1)]
    text: Annotated[str, Length(LONGEST_LOG_PART_CHARACTERS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnded:
    """The rank's last report.

    The agent sends it when every process of the rank is gone and its network profile is undone, or
    when it refused or lost the rank. The collector makes one where the rank sent nonsense.
    Exactly one of `result` and `failure` is set. `timed_begun_s` is the result's begin of the
    timed window in seconds after go. `rtts`: after a profile was undone; empty where the peers
    could not be asked any more.
    """

    result: TrainerResult | None
    failure: Failure | None
    timed_begun_s: Span | None
    log_tail: Annotated[str, Length(LONGEST_LOG_PART_CHARACTERS)]
    rtts: PeerRtts = ()


ReportBody = (
    Prepared
    | PeersMeasured
    | Shaped
    | RankStarted
    | Samples
    | StepTimes
    | Epoch
    | LogPart
    | RankEnded
)

REPORTS: dict[str, type] = {
    "prepared": Prepared,
    "peers": PeersMeasured,
    "shaped": Shaped,
    "started": RankStarted,
    "samples": Samples,
    "steps": StepTimes,
    "epoch": Epoch,
    "log": LogPart,
    "ended": RankEnded,
}
REPORT_NAMES = {kind: name for name, kind in REPORTS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One numbered report. Numbers start at 1 and have no gap within a spool generation."""

    number: Annotated[int, Range(1, 2**63 - 1)]
    token: Identifier
    rank: Count
    kind: str  # a key of REPORTS
    body: dict[str, object] = field(metadata=UNDECODED)  # `decoded` reads it

    def __post_init__(self) -> None:
        # The store keeps what is refused, too, and counts ranks in 32 bits.
        if self.number < 1:
            raise InvalidSpec("number", self.number, "a number from 1")
        if not 0 <= self.rank < 2**31:
            raise InvalidSpec("rank", self.rank, "a rank from 0 to 2**31 - 1")
        check_short(self.kind, name="kind")

    def decoded(self) -> ReportBody:
        """Return the body as its class.

        Raises:
            InvalidSpec: unknown kind, or a body that does not fit it.
        """
        if self.kind not in REPORTS:
            raise InvalidSpec("kind", self.kind, f"one of {', '.join(REPORTS)}")
        body: ReportBody = from_json(REPORTS[self.kind], self.body, where=self.kind)
        if isinstance(body, RankEnded) and body.result is not None:
            body.result.check_details()
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """Consecutive reports of one spool generation, in order."""

    agent_id: str
    generation: str
    reports: tuple[Report, ...]

    def __post_init__(self) -> None:
        check_agent_id(self.agent_id)
        check_short(self.generation, name="generation")
        if not self.reports:
            raise InvalidSpec("reports", [], "at least one report")
