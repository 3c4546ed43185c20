"""Messages about agents: facts, state and heartbeats."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Annotated

from farm.errors import InvalidSpec
from farm.values.codec import content_hash
from farm.values.fields import SHORT_NAME, SHORT_NAME_EXPECTED
from farm.values.ranges import (
    ByteSize,
    Count,
    Identifier,
    Length,
    LongText,
    Port,
    Range,
    ShortText,
    Span,
    UnixTime,
)

# An agent's clock may be this far off; beyond, pages and commands say so beside its times.
CLOCK_TOLERANCE_S = 1.0
HEARTBEAT_S = 5.0  # from one heartbeat to the next, unless an agent's settings say otherwise
# A capability: this agent lets only a gang's peers reach the gang's ports.
CLOSES_PORTS = "closes_ports"
# Another one: its trainers run as a user of their own.
TRAINER_USER = "trainer_user"
_GIB = 2**30
_MOST_CORES = 4096  # of one machine
_MOST_ACCELERATORS = 64
_MOST_PROGRAMS = 20
_MOST_LABELS = 100
_MOST_CAPABILITIES = 1000

CoreCount = Annotated[float, Range(1e-3, _MOST_CORES, "cores")]


def check_agent_id(text: str) -> str:
    """Return what may name an agent, its queue, its pages and its files.

    Raises:
        InvalidSpec: it may not.
    """
    if not SHORT_NAME.fullmatch(text):
        raise InvalidSpec("agent_id", text, SHORT_NAME_EXPECTED)
    return text


def check_short(text: str, *, name: str, most: int = 64) -> None:
    """Check the length of a text that the store keeps in a column.

    One that it did not take would cost all that is stored with it a try in vain.

    Raises:
        InvalidSpec: it is longer, or not all of it can be shown, such as half a surrogate pair.
    """
    if len(text) > most or not text.isprintable():
        raise InvalidSpec(name, text, f"at most {most} characters, all of them printable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The hardware and software of a measurement."""

    cpu_model: ShortText
    # Of the agent's CPU set, not of the machine; fewer where a CPU quota does not allow for them.
    core_count: CoreCount
    memory_bytes: ByteSize  # of the machine, or the limit of the agent's control groups
    accelerators: Annotated[tuple[ShortText, ...], Length(_MOST_ACCELERATORS)] = ()
    # Beside them, such as {"driver": "550.54.15", "CUDA": "12.4"}.
    accelerator_software: Annotated[dict[str, ShortText], Length(_MOST_PROGRAMS)] = field(
        default_factory=dict
    )
    kernel: ShortText
    tensorflow_version: ShortText | None
    python_version: ShortText
    benchfarm_version: ShortText

    def __post_init__(self) -> None:
        if self.core_count == int(self.core_count):  # written as a whole number, as ever
            object.__setattr__(self, "core_count", int(self.core_count))

    @property
    def fingerprint(self) -> str:
        """The kind of machine: measurements of one kind may be compared, of two not.

        Machines of one kind differ by some pages of memory, and neither our version nor Python's
        patch level changes what a TensorFlow step costs; the kernel, TensorFlow and the software
        of accelerators may.
        """
        kind = dataclasses.replace(
            self,
            memory_bytes=round(self.memory_bytes / _GIB) * _GIB,
            python_version="",
            benchfarm_version="",
        )
        # A machine without accelerators is of the kind that it was before their software was known.
        left_out = ("accelerator_software",) if not self.accelerator_software else ()
        return content_hash(
            {n: v for n, v in dataclasses.asdict(kind).items() if n not in left_out}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """An agent's report about itself in every heartbeat."""

    machine_id: ShortText
    address: ShortText  # what peers and probes connect to
    interface: ShortText
    first_port: Port
    last_port: Port
    cpus: Annotated[tuple[Count, ...], Length(_MOST_CORES)]
    gpus: Annotated[
        tuple[ShortText, ...], Length(_MOST_ACCELERATORS)
    ] = ()  # UUIDs, as far as known
    labels: Annotated[dict[str, ShortText], Length(_MOST_LABELS)] = field(default_factory=dict)
    capabilities: Annotated[tuple[ShortText, ...], Length(_MOST_CAPABILITIES)] = ()
    hardware: Hardware
    trouble: LongText | None = None  # why it takes no rank, as long as that has to be mended

    def __post_init__(self) -> None:
        check_short(self.machine_id, name="machine_id", most=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The reports in the agent's spool that the collector has not confirmed.

    `oldest_s`: for how long the oldest of it has waited, to a heartbeat; None where nothing waits.
    """

    report_count: Identifier
    byte_count: ByteSize
    oldest_s: Span | None


class AgentState(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"  # serves a rank, or has not got rid of all that one has left
    SPOOL_FULL = "spool_full"  # takes no new rank until the collector has confirmed more
    LEAVING = "leaving"  # told to stop; takes no new rank


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatEcho:
    """Proof of freshness without comparing clocks.

    The server's own clock reading from the last confirmation, and how long ago, by the agent's
    monotonic clock, it arrived. Their sum is when the beat was made, in the server's time, late
    by at most the confirmation's way.
    """

    server_time_s: UnixTime
    elapsed_s: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPiece:
    """The one piece of a script's bundle that the agent requests now.

    `bundle`: the first digits of its sha256; `number`: of the piece, from 0.
    """

    bundle: ShortText
    number: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """`counter` grows with every beat of one `boot_id`; `agent_time_s` is only for display."""

    agent_id: str
    boot_id: ShortText
    counter: Identifier
    state: AgentState
    # The attempt whose rank runs here, until its last process is gone.
    serving_token: Identifier | None
    highest_token: Identifier  # the highest fencing token ever seen, as kept on the agent's disk
    agent_time_s: UnixTime
    echo: BeatEcho | None
    facts: AgentFacts
    # Proportional memory of the warm trainer, if there is one.
    template_bytes: ByteSize | None = None
    backlog: Backlog | None = None
    disk_free_bytes: ByteSize | None = None  # where its spool is
    wanted: WantedPiece | None = None  # answered by a `BundlePiece`

    def __post_init__(self) -> None:
        check_agent_id(self.agent_id)
        check_short(self.boot_id, name="boot_id")
