"""JobSpec: the checked, immutable description of one job, which is sent to every rank."""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from farm.configuration.catalogue import PYTORCH_NAMES, TORCH
from farm.configuration.model_files import MODEL_CAPABILITY, file_of
from farm.configuration.own_data import READS_OWN_DATA, own_data
from farm.configuration.scripts import (
    LAUNCHERS,
    check_command,
    needed_capabilities,
    python_of,
    script_of,
)
from farm.errors import InvalidSpec
from farm.values.codec import content_hash, to_json

# Bounds that no real configuration reaches: they turn a slip of the pen into an error.
MAX_WORLD_SIZE = 4096
MAX_GLOBAL_BATCH_SIZE = 100_000_000
MAX_STEPS = 10_000_000
MAX_SEED = 2**31 - 1
MAX_TIME_LIMIT_S = 7 * 86400.0
# Of all ranks that tell an attempt's time, read at its end: some hundred megabytes. And of one rank
# of a job by epochs.
MOST_STEPS_READ = 25_000_000
MOST_STEPS_BY_EPOCHS = 4_000_000
MAX_ONE_WAY_DELAY_S = 10.0
# What netem tells apart; less is 0.
DELAY_RESOLUTION_S = 1e-9
LOSS_RESOLUTION_RATIO = 2.0**-32  # it compares a random number of 32 bits
# Of weights, dollars and seconds in a question: beyond any meaning, and far from overflow.
LARGEST = 1e12
# Below, one full packet takes more than a second, which no connection survives.
LEAST_BANDWIDTH_BYTES_PER_S = 1500.0

DEFAULT_WARMUP_STEPS = 5
DEFAULT_TIME_LIMIT_S = 3600.0

MAX_REPLICAS_PER_RANK = 64
MAX_GPUS_PER_RANK = 16
MAX_RANKS_PER_AGENT = 16
WORKER = "worker"  # the role of a process that trains
# What an agent says that can serve so many ranks at once, such as "ranks:4".
RANKS_CAPABILITY = "ranks:"
GPUS_CAPABILITY = "gpus:"

# Before the name of a network that an agent is in, such as "network:infiniband".
NETWORK_CAPABILITY = "network:"
# What an agent says that has the framework. Strategies of PyTorch ask for theirs by name.
TENSORFLOW = "tensorflow"
TENSORFLOW_PACKAGES = (TENSORFLOW, "tensorflow-cpu", "tensorflow-gpu", "tensorflow-aarch64")
TORCH_VERSION = "torch:"  # before the version in one more, such as "torch:2.13.0"
# What an agent says whose PyTorch finds all that torch.compile needs.
TORCH_COMPILE = "torch_compile"
# The capability of agents that can delay, lose and limit packets as a real network would.
EXACT_EMULATION = "network"
TCP_PROXY = "tcp_proxy"  # approximates: it loses nothing, and TCP does not notice its delay
VDE_LINK = "vde_link"  # exact, on a lab's hosts; it keeps packets in their order
MAX_LAB_BANDWIDTH_BYTES_PER_S = 12_500_000.0  # what each host of a lab has
UNTOUCHED = "none"  # the emulator of a network that nothing was asked of


class TrainingPass(enum.Enum):
    """How much of a step is run; an inference-like forward pass exchanges no gradients."""

    FORWARD = "forward"
    FORWARD_BACKWARD = "forward_backward"


class ServerPlacement(enum.Enum):
    """Where parameter servers run."""

    COLLOCATED = "collocated"  # server i is a second process of rank i modulo the world size
    APART = "apart"  # each on an agent of its own, in ranks after those that train


class OperatorPlacement(enum.Enum):
    """Which devices a rank's operators run on."""

    SOFT = "soft"  # the framework chooses, and moves what a device cannot do
    HARD = "hard"  # the CPU, and an error where an operator cannot run there


class Device(enum.Enum):
    """The device that a rank trains on."""

    AUTO = "auto"  # its share of its agent's GPUs, or the CPU where that is none
    CPU = "cpu"
    GPU = "gpu"  # GPUs of its own, or not at all


class Optimizer(enum.Enum):
    """How gradients become updates of the weights."""

    SGD = "sgd"
    ADAMW = "adamw"


class ComputePrecision(enum.Enum):
    """The numbers in which the layers are computed; weights and gradients are float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class ActivationCheckpointing(enum.Enum):
    """Whether the backward pass recomputes values of the forward pass."""

    OFF = "off"
    ON = "on"


class Compilation(enum.Enum):
    """What compiles the model before it is trained."""

    NONE = "none"
    TORCH_COMPILE = "torch_compile"
    XLA = "xla"


class InputPipeline(enum.Enum):
    """The source of a step's examples."""

    MEMORY = "memory"
    LOADER = "loader"


class LearningRateScaling(enum.Enum):
    """How the learning rate follows the global batch size."""

    NONE = "none"
    LINEAR = "linear"
    SQRT = "sqrt"


class BatchSplit(enum.Enum):
    """How a global batch is shared among the ranks."""

    EVEN = "even"
    BY_SPEED = "by_speed"  # in proportion to what each agent's control run said of its speed


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConditions:
    """What happens to packets on a network: one field for each axis of a network profile.

    The defaults are a network that nobody changes. A limit is None where there is none.
    """

    one_way_delay_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    packet_loss_ratio: float = 0.0
    jitter_s: float = 0.0

    @property
    def conditions(self) -> tuple[float | None, ...]:
        """The values in the order of CONDITIONS, in base units."""
        values: tuple[float | None, ...] = _values_of_conditions(self)
        return values

    @property
    def by_field(self) -> dict[str, Any]:
        """The same by field, to make something else that has them."""
        return dict(zip(CONDITIONS, self.conditions, strict=True))

    @property
    def is_untouched(self) -> bool:
        """Whether nothing is done to packets."""
        return self.conditions == _NOTHING


# The names of the fields.
CONDITIONS = tuple(one.name for one in dataclasses.fields(NetworkConditions))
_values_of_conditions = operator.attrgetter(*CONDITIONS)
_NOTHING = _values_of_conditions(NetworkConditions())


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorFacts:
    """An emulator that a job may ask for by name, and which conditions it can make, by field."""

    name: str
    conditions: frozenset[str]
    is_exact: bool = True  # it does to packets what a real network does


EMULATOR_FACTS = (
    EmulatorFacts(
        name="tc_netem",
        conditions=frozenset(
            {"one_way_delay_s", "bandwidth_bytes_per_s", "packet_loss_ratio", "jitter_s"}
        ),
    ),
    EmulatorFacts(
        name=TCP_PROXY,
        conditions=frozenset({"one_way_delay_s", "bandwidth_bytes_per_s", "jitter_s"}),
        is_exact=False,
    ),
    EmulatorFacts(
        name=VDE_LINK,
        # It keeps packets in order, so that one late packet would delay all behind it.
        conditions=frozenset({"one_way_delay_s", "bandwidth_bytes_per_s", "packet_loss_ratio"}),
    ),
)
EMULATOR_NAMES = tuple(facts.name for facts in EMULATOR_FACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProfile(NetworkConditions):
    """The network requested of an emulator. No profile (None) is the untouched network."""

    def __post_init__(self) -> None:
        _within("one_way_delay_s", self.one_way_delay_s, 0.0, MAX_ONE_WAY_DELAY_S)
        _within("jitter_s", self.jitter_s, 0.0, MAX_ONE_WAY_DELAY_S)
        if not 0.0 <= self.packet_loss_ratio < 1.0:
            raise InvalidSpec("packet_loss_ratio", self.packet_loss_ratio, "a ratio in [0, 1)")
        bandwidth = self.bandwidth_bytes_per_s
        if bandwidth is not None and not 0 < bandwidth < math.inf:
            raise InvalidSpec("bandwidth_bytes_per_s", bandwidth, "a finite number above 0")

    def beyond(self, emulator: str | None) -> tuple[str, ...]:
        """Return the requested conditions, by field, that the emulator cannot produce.

        `emulator`: one of EMULATOR_NAMES; None: whichever is exact.
        """
        able: frozenset[str] = frozenset().union(
            *(
                facts.conditions
                for facts in EMULATOR_FACTS
                if (facts.is_exact if emulator is None else facts.name == emulator)
            )
        )
        usual = NetworkConditions().by_field
        return tuple(
            name
            for name, value in self.by_field.items()
            if value != usual[name] and name not in able
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One configuration to be measured once.

    A global batch of B over n replicas gives the first B mod n replicas one example more. Exactly
    one of `steps` (timed steps after the warm-up) and `epochs` is set; neither lets a script train
    to its end. `labels` restricts which agents may serve the job. Names are checked against the
    registries at submission, not here.

    `world_size` counts the ranks that train, of which `ranks_per_agent` run on one agent. A gang
    agrees, reports and is judged by agent: the first rank of each speaks for it, and is called by
    the agent's place in the gang. `replicas_per_rank`, `steps_between_averages` and the servers'
    fields matter to the strategies that use them, and keep their defaults for others.

    Raises:
        InvalidSpec: a value is out of range or two contradict each other.
    """

    model: str
    dataset: str
    strategy: str
    world_size: int
    global_batch_size: int
    server_count: int = 0
    network: NetworkProfile | None = None
    emulator: str | None = None  # one of EMULATOR_NAMES; None: any that is exact
    training_pass: TrainingPass = TrainingPass.FORWARD_BACKWARD
    steps: int | None = None
    epochs: int | None = None
    warmup_step_count: int = DEFAULT_WARMUP_STEPS
    seed: int = 0
    repetition: int = 0
    repeat: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    time_limit_s: float = DEFAULT_TIME_LIMIT_S
    server_placement: ServerPlacement = ServerPlacement.COLLOCATED
    replicas_per_rank: int = 1
    steps_between_averages: int = 1
    placement: OperatorPlacement = OperatorPlacement.SOFT
    batch_split: BatchSplit = BatchSplit.EVEN
    interface: str | None = None  # the name of one of the agents' networks; None: their first
    axes: dict[str, object] = field(default_factory=dict)  # those without a field of their own

    def __post_init__(self) -> None:
        for name in ("model", "dataset", "strategy"):
            if not getattr(self, name):
                raise InvalidSpec(name, getattr(self, name), "a name")
        _within("world_size", self.world_size, 1, MAX_WORLD_SIZE)
        _within("server_count", self.server_count, 0, MAX_WORLD_SIZE)
        _within("replicas_per_rank", self.replicas_per_rank, 1, MAX_REPLICAS_PER_RANK)
        _within("steps_between_averages", self.steps_between_averages, 1, MAX_STEPS)
        _within("global_batch_size", self.global_batch_size, 1, MAX_GLOBAL_BATCH_SIZE)
        if self.global_batch_size < self.replica_count:
            raise InvalidSpec(
                "global_batch_size",
                self.global_batch_size,
                f"at least one example for each of {self.replica_count} replicas",
            )
        each = self.axes.get("ranks_per_agent", 1)
        if type(each) is not int or not 1 <= each <= MAX_RANKS_PER_AGENT:
            expected = f"a whole number from 1 to {MAX_RANKS_PER_AGENT}"
            raise InvalidSpec("ranks_per_agent", each, expected)
        if self.world_size % each:
            expected = f"a multiple of ranks_per_agent, {self.ranks_per_agent}"
            raise InvalidSpec("world_size", self.world_size, expected)
        check_command(self.model)
        own_data(self.dataset)
        is_script = script_of(self.model) is not None
        is_told = (self.steps is not None, self.epochs is not None)
        if all(is_told) or not (any(is_told) or is_script):
            raise InvalidSpec(
                "steps", {"steps": self.steps, "epochs": self.epochs}, "either steps or epochs"
            )
        if self.epochs is not None and is_script:
            raise InvalidSpec(
                "epochs", self.epochs, "steps, since only the script knows its epochs"
            )
        if self.steps is not None:
            _within("steps", self.steps, 1, MAX_STEPS)
        if self.epochs is not None:
            _within("epochs", self.epochs, 1, MAX_STEPS)
        _within("warmup_step_count", self.warmup_step_count, 0, MAX_STEPS)
        _within("seed", self.seed, 0, MAX_SEED)
        _within("repetition", self.repetition, 0, MAX_STEPS)
        _within("time_limit_s", self.time_limit_s, 1.0, MAX_TIME_LIMIT_S)

    @property
    def replica_count(self) -> int:
        """Copies of the model that train together."""
        return self.world_size * self.replicas_per_rank

    @property
    def ranks_per_agent(self) -> int:
        """Ranks that train on one agent."""
        return cast(int, self.axes.get("ranks_per_agent", 1))

    @property
    def device(self) -> Device:
        """What its ranks train on."""
        return Device(self.axes.get("device", Device.AUTO.value))

    @property
    def gpus_per_rank(self) -> int | None:
        """GPUs of each rank that trains: one for each replica, or as many as a script asks for.

        None: its share of those of its agent.
        """
        if self.device is Device.AUTO:
            return None
        if self.device is Device.CPU:
            return 0
        return max(self.replicas_per_rank, cast(int, self.axes.get("gpus_per_rank", 1)))

    @property
    def training_agent_count(self) -> int:
        """Agents of ranks that train; those of servers apart come after them."""
        return self.world_size // self.ranks_per_agent

    @property
    def agent_count(self) -> int:
        """Agents that the gang needs; the last ones may only serve parameters."""
        return self.training_agent_count + self.serving_agent_count

    @property
    def serving_agent_count(self) -> int:
        """Agents of servers apart, which train nothing."""
        return self.server_count if self.server_placement is ServerPlacement.APART else 0

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        """The role processes of each agent, in order; the first speaks for its agent."""
        training = self.training_agent_count
        servers: list[list[str]] = [[] for _ in range(self.agent_count)]
        is_apart = self.server_placement is ServerPlacement.APART
        for server in range(self.server_count):
            servers[training + server if is_apart else server % training] += ["ps"]
        workers = (WORKER,) * self.ranks_per_agent
        return tuple(
            (*(workers if place < training else ()), *of_agent)
            for place, of_agent in enumerate(servers)
        )

    def rank_of(self, place: int, process: int) -> int:
        """Return the rank of a process by its agent's place in the gang; a server's own number.

        `process`: its index among the roles of that agent.
        """
        training = self.training_agent_count
        if place >= training:
            return self.world_size + place - training
        return place * self.ranks_per_agent + min(process, self.ranks_per_agent - 1)

    @property
    def required_capabilities(self) -> frozenset[str]:
        """What every agent of the gang must be able to do."""
        found = set()
        if self.network is not None and not self.network.is_untouched:
            found.add(self.emulator or EXACT_EMULATION)
        if self.interface is not None:
            found.add(f"{NETWORK_CAPABILITY}{self.interface}")
        if python_of(self.model) is None:
            if self.strategy.startswith(PYTORCH_NAMES):
                found.add(TORCH)
            elif self.strategy == LAUNCHERS["tensorflow"].name:
                found.add(TENSORFLOW)
        if self.axes.get("compile") == Compilation.TORCH_COMPILE.value:
            found.add(TORCH_COMPILE)
        if self.ranks_per_agent > 1:
            found.add(f"{RANKS_CAPABILITY}{self.ranks_per_agent}")
        if self.gpus_per_rank:
            found.add(f"{GPUS_CAPABILITY}{self.ranks_per_agent * self.gpus_per_rank}")
        if (file := file_of(self.model)) is not None:
            found.add(f"{MODEL_CAPABILITY}{file}")
        if own_data(self.dataset) is not None:
            found.add(READS_OWN_DATA)
        return frozenset(found) | needed_capabilities(self.model)

    @property
    def content_hash(self) -> str:
        """The identity of the job's content: equal specifications hash alike."""
        return content_hash(self)

    @property
    def cell_hash(self) -> str:
        """The identity shared by the repetitions of one configuration."""
        return content_hash(dataclasses.replace(self, repetition=0, seed=0))

    def per_replica_batch_size(self, replica: int, *, examples_count: int | None = None) -> int:
        """Examples that `replica` gets of a global batch, or of a partial one of that size."""
        total = self.global_batch_size if examples_count is None else examples_count
        quotient, remainder = divmod(total, self.replica_count)
        return quotient + (1 if replica < remainder else 0)


def spec_json(spec: JobSpec | Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification, or a stored one, for an answer, named as sweep files name it.

    Only there: the hashes of cells are made of stored names, and agents are sent them.
    """
    written = cast(dict[str, Any], to_json(spec))
    # `warmup_step_count` is the former name; it goes with 0.2.0.
    return {**written, "warmup_steps": written.get("warmup_step_count")}


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidSpec(name, value, f"a number from {low} to {high}")
