"""The lines between an agent and its trainer: JSON, one object a line.

The agent writes one `Assignment` and, when the gang may connect, one `GoLine` to the trainer's
standard input, and keeps the pipe open: when it closes, the trainer ends. The trainer writes
events to its standard output, each `{"event": NAME, ...the fields of its class}`; everything
that libraries print goes to standard error. Instants named `*_monotonic_s` are CLOCK_MONOTONIC of
the machine, which the agent shares with its trainer, so the two may be subtracted.

Order of events: `ready`, (go), `user_code` if the model is a user's own, `started`, then any number
of `progress`, `steps` and `epoch`, and at the end exactly one `result` or `failure`.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Annotated

from farm.configuration.spec import WORKER, JobSpec
from farm.errors import InvalidSpec
from farm.sampling.names import LOOPBACK_INTERFACE
from farm.values.codec import from_json, parsed, to_json
from farm.values.ranges import (
    ByteSize,
    Count,
    CountedShare,
    Duration,
    FiniteFloat,
    Length,
    LongText,
    Share,
    ShortText,
    Span,
    Throughput,
)


class FailureKind(enum.Enum):
    """Why a rank failed. The first group is a property of the configuration, the rest is not."""

    OUT_OF_MEMORY = "out_of_memory"
    NOT_A_NUMBER = "not_a_number"  # the loss became NaN or infinite
    DIVERGED = "diverged"  # the loss stayed finite but grew out of all proportion
    TRAINER_RAISED = "trainer_raised"  # an exception of the training itself
    TIME_LIMIT = "time_limit"  # it made progress, but was not done within the job's limit

    DATASET_MISSING = "dataset_missing"  # this agent lacks the data set's files
    MODEL_MISSING = "model_missing"  # or the file of a user's own model, or does not allow it

    PEER_LOST = "peer_lost"  # a collective failed because another rank went away
    KILLED = "killed"  # an unexplained signal
    STALLED = "stalled"  # no progress within the limit
    PORT_TAKEN = "port_taken"
    RENDEZVOUS = "rendezvous"  # a barrier was missed
    AGENT_LOST = "agent_lost"  # its lease ran out
    REFUSED = "refused"  # the agent was busy, full or shutting down, or no trainer started
    NETWORK = "network"  # the profile could not be applied, is not as asked, or went away
    VERSIONS_DIFFER = "versions_differ"  # the ranks' frameworks are not of one version
    DISTURBED = "disturbed"  # something else used the machine while it was measured
    SENSELESS = "senseless"  # the server could make nothing of what was reported


CONFIGURATION_FAILURES = frozenset(
    {
        FailureKind.OUT_OF_MEMORY,
        FailureKind.NOT_A_NUMBER,
        FailureKind.DIVERGED,
        FailureKind.TRAINER_RAISED,
        FailureKind.TIME_LIMIT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLimits:
    """The most that a trainer may use; None: as much as its agent may.

    `process_count`: all processes and threads of its user.
    """

    memory_bytes: int | None = None  # of its own, written or to be written
    process_count: int | None = None
    open_file_count: int | None = None
    file_bytes: int | None = None  # of one file
    cpu_s: int | None = None  # on all cores together


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """First line in: everything a trainer may know before its peers are known."""

    job: JobSpec
    rank: int
    local_rank: int = 0  # among those of its agent
    role: str = WORKER
    cpus: tuple[int, ...]  # the trainer pins itself to these before importing anything heavy
    # UUIDs of the GPUs that it may see; None: those that its environment says.
    gpus: tuple[str, ...] | None = None
    data_dir: str | None = None  # FARM_DATA_DIR; None searches the usual places
    model_file: str | None = None  # where this agent has the file that the job's model names
    script: str | None = None  # likewise, of a script
    agent_uid: int | None = None  # the agent's user, who may own the script
    python: str | None = None  # the interpreter that runs the script; None: the trainer's own
    folder_prefix: str | None = None  # of the path of a folder that a script may change
    interface: str = LOOPBACK_INTERFACE  # whose byte counters are read around the timed steps
    peer_timeout_s: float = 60.0
    limits: TrainerLimits = TrainerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class GoLine:
    """Second line in: the gang may connect. `cluster`: role to host:port, in order of index."""

    cluster: dict[str, tuple[str, ...]]
    task_index: int
    batch_weights: tuple[float, ...] | None = None  # of each rank that trains; None: even


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSource:
    """The source of the examples; stored with every result."""

    name: ShortText
    origin: LongText  # such as a path, "scikit-learn 1.9.1" or "synthetic, seed 0"
    sha256: ShortText
    is_synthetic: bool
    train_examples_count: Count
    test_examples_count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Imported, data loaded; waiting for go. Nothing is connected yet."""

    import_s: Span
    framework: ShortText  # such as "tensorflow 2.21.0"
    dataset: DatasetSource
    model_sha256: ShortText | None = None  # of the file, if the model is a user's own
    device_control_s: Span | None = (
        None  # of PyTorch on a GPU: see `farm.trainers.torch.gpu_control_run`
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """Code of the user's own runs from now on, or has returned.

    A process that ends in between without a word was ended by that code: by `os._exit`, or by a
    library that it called and that crashed.
    """

    name: str  # such as "model file:mine.py"
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The gang is connected and its first step is done. None: a script's is not known.

    `weights_checksum`: of the weights before that step, of a user's own model; alike on all ranks.
    """

    parameter_count: ByteSize | None
    gradient_bytes: ByteSize | None
    connect_s: Span
    first_step_s: Span
    weights_checksum: FiniteFloat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """At most once a second; its absence is how an agent notices a stalled trainer."""

    step_count: Count  # steps done, warm-up included


class StepKind(enum.Enum):
    WARMUP = "warmup"
    TIMED = "timed"
    PARTIAL = "partial"  # an epoch's last step with fewer examples: kept, not in the median
    PROFILED = "profiled"  # run under the framework's profiler: kept, not in the median


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Wall times of consecutive steps of one kind; sent in chunks, none left out."""

    kind: StepKind
    first_step: Count  # 0 is the first step after start, warm-up included
    begun_monotonic_s: Span  # when the chunk's first step began
    times_s: tuple[Duration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One pass over the training set; accuracy is on the test split, by rank 0 only."""

    epoch: Count  # from 0
    train_s: Duration  # the sum of its steps, evaluation excluded
    step_count: Count
    train_loss: FiniteFloat | None  # mean over this rank's examples
    val_loss: FiniteFloat | None
    val_accuracy_ratio: Share | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """The parts of a step's time, from steps run under the profiler.

    `idle_ratios`: of each of them, the share in which this rank computed nothing.
    """

    step_count: Count
    step_time_s: Duration  # median while profiled: beside the plain median it states the cost
    compute_s: Span  # per step: everything that is not communication
    communication_s: Span  # per step: inside collectives, transfer and waiting together
    idle_ratios: Annotated[tuple[Share, ...], Length(MOST_PROFILED_STEPS)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A strategy's counts of one rank's exchange, over the full timed steps.

    `push_s` and `pull_s` are means per step: sending, and waiting for and receiving what comes
    back; None where the strategy cannot tell. `staleness_counts[k]` is how many of this rank's
    updates were applied to weights that others had updated k times since it read them; None for
    synchronous strategies, whose gradients are never stale.
    """

    update_count: Count  # weight updates that this rank's steps have had a part in
    push_s: Span | None = None
    pull_s: Span | None = None
    staleness_counts: Annotated[tuple[Count, ...], Length(MOST_STALENESSES)] | None = None


MOST_PROFILED_STEPS = 1000
MOST_STALENESSES = 100_000

# Among a result's details.
TIMED_PARTS = "timed_parts"
INTERFACE = "interface"
WINDOW_TRAINING_S = "window_training_s"  # the timed parts together
SCRIPT_TIMES = "script_times"
# A step of a script that takes so many medians holds something else, such as a checkpoint.
PAUSE_MEDIANS = 5.0
WINDOW_CPU_RATIO = "window_cpu_ratio"  # of the rank's cores, by this process in the timed parts


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPart:
    """A stretch of timed steps, in seconds after the first of all began."""

    begin_s: Span
    end_s: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTimes:
    """Further reports of a user's script, beside its timed steps. None: not known.

    `pause_s`: between these, such as Keras' validation after an epoch; `data_wait_s`: waiting for
    PyTorch's DataLoader; both of all timed steps together, as is `examples_count`, of this rank,
    or of all ranks of its agent.
    `epoch_count`: of one that trains to its end; `steps_per_epoch`: of the last of these.
    """

    pause_s: Span
    data_wait_s: Span | None
    examples_count: Count | None
    epoch_count: Count | None
    steps_per_epoch: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowUse:
    """The usage of a trainer's process while steps were timed; None: not counted.

    Bytes are those of the interface; on loopback, which carries those of every rank, the payload of
    the process's own connections.
    """

    cpu_ratio: float | None = None
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    window_training_s: Span | None
    window_cpu_ratio: CountedShare | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerResult:
    """The last line of a trainer that succeeded."""

    timed_step_count: Count  # steps of the full global batch
    window_step_count: Count  # all steps whose bytes were counted: partial ones, too
    timed_window_s: Duration  # from the begin of the first timed step to the end of the last
    timed_begun_monotonic_s: Span
    interface_rx_bytes: ByteSize | None  # counted over the timed window, on the whole interface
    interface_tx_bytes: ByteSize | None
    payload_rx_bytes: ByteSize | None  # likewise, of this process's own TCP connections alone
    payload_tx_bytes: ByteSize | None
    train_loss: FiniteFloat | None
    val_accuracy_ratio: Share | None
    peak_resident_bytes: ByteSize
    seed: Count
    profile: StepProfile | None = None
    exchange: Exchange | None = None
    peak_flop_per_s: Throughput | None = None  # of a matrix product, before the steps
    peak_device_memory_bytes: ByteSize | None = None  # of the GPU with most
    # For batches that are loaded, in all steps of the window; a script's is among its times.
    data_wait_s: Span | None = None
    details: dict[str, object] = field(default_factory=dict)

    def check_details(self) -> None:
        """Raises InvalidSpec: what is read of the details later is not what it has to be."""
        _ = self.timed_parts, self.window_use, self.script_times

    @property
    def timed_parts(self) -> tuple[TimedPart, ...] | None:
        """Return the stretches of a second or more, in which a sample may lie; None: not told.

        By epochs there is one for each, since ranks evaluate and wait in between.

        Raises:
            InvalidSpec: what the trainer told is no such list.
        """
        stored = self.details.get(TIMED_PARTS)
        if stored is None:
            return None
        parts: tuple[TimedPart, ...] = from_json(tuple[TimedPart, ...], stored, where=TIMED_PARTS)
        return parts

    @property
    def script_times(self) -> ScriptTimes | None:
        """Return the reports of a user's script; None: it was none.

        Raises:
            InvalidSpec: what the trainer told are no numbers.
        """
        stored = self.details.get(SCRIPT_TIMES)
        if stored is None:
            return None
        times: ScriptTimes = from_json(ScriptTimes, stored, where=SCRIPT_TIMES)
        return times

    @property
    def interface(self) -> object:
        """Return the name of the interface whose bytes were counted; None: not known."""
        return self.details.get(INTERFACE)

    @property
    def window_use(self) -> WindowUse:
        """Return the means over the timed parts, from counters read where each begins and ends.

        Raises:
            InvalidSpec: what the trainer told are no numbers.
        """
        stored = {name: self.details.get(name) for name in (WINDOW_TRAINING_S, WINDOW_CPU_RATIO)}
        window = from_json(_Window, stored)
        training_s = window.window_training_s
        if training_s is None or training_s <= 0:
            return WindowUse()
        if self.interface == LOOPBACK_INTERFACE:
            received, sent = self.payload_rx_bytes, self.payload_tx_bytes
        else:
            received, sent = self.interface_rx_bytes, self.interface_tx_bytes
        return WindowUse(
            cpu_ratio=window.window_cpu_ratio,
            net_rx_bytes_per_s=None if received is None else received / training_s,
            net_tx_bytes_per_s=None if sent is None else sent / training_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last line of a trainer that failed; also an agent's report of a dead trainer."""

    kind: FailureKind
    message: LongText

    @property
    def is_of_configuration(self) -> bool:
        """Whether the same configuration would fail again on any machine."""
        return self.kind in CONFIGURATION_FAILURES


TrainerEvent = Ready | UserCode | Started | Progress | Steps | Epoch | TrainerResult | Failure

_EVENTS: dict[str, type] = {
    "ready": Ready,
    "user_code": UserCode,
    "started": Started,
    "progress": Progress,
    "steps": Steps,
    "epoch": Epoch,
    "result": TrainerResult,
    "failure": Failure,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}


def write_event(event: TrainerEvent) -> str:
    """Render one event as its line, newline included."""
    fields = to_json(event)
    assert isinstance(fields, dict)
    return json.dumps({"event": _NAMES[type(event)], **fields}, allow_nan=False) + "\n"


def read_event(line: str) -> TrainerEvent:
    """Parse a trainer's line.

    Raises:
        InvalidSpec: not JSON, an unknown event, or a field of another type.
    """
    data = parsed(line, where="trainer line")
    name = data.pop("event", None) if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in _EVENTS:
        raise InvalidSpec("event", name, f"one of {', '.join(_EVENTS)}")
    event: TrainerEvent = from_json(_EVENTS[name], data, where=name)
    return event
