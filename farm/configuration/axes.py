"""The axes of a configuration, each declared once, in AXES.

An axis is a list in a `[[case]]` table of a sweep file and one value of each job. Its declaration
gives what sweep files, the API, the form, tables, charts, exports and imports need to know; to add
an axis, add its declaration. A value is in base units inside the farm (seconds, bytes per second,
ratios) and in the unit of the axis' name outside.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from farm.configuration.catalogue import TRAINING_AXES, StrategyFacts
from farm.configuration.learning_rate import MAX_LEARNING_RATE, REFERENCE_BATCH_SIZE
from farm.configuration.model_size import PipelineCut
from farm.configuration.scripts import MOST_MODEL_CHARACTERS
from farm.configuration.spec import (
    CONDITIONS,
    DELAY_RESOLUTION_S,
    EMULATOR_NAMES,
    LOSS_RESOLUTION_RATIO,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_GPUS_PER_RANK,
    MAX_ONE_WAY_DELAY_S,
    MAX_RANKS_PER_AGENT,
    MAX_REPLICAS_PER_RANK,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    NETWORK_NAME,
    TENSORFLOW,
    TORCH,
    UNTOUCHED,
    ActivationCheckpointing,
    BatchSplit,
    Compilation,
    ComputePrecision,
    Device,
    InputPipeline,
    JobSpec,
    LearningRateScaling,
    OperatorPlacement,
    Optimizer,
    ServerPlacement,
    TrainingPass,
)
from farm.errors import InvalidSpec
from farm.text.display import bit_rate, count, duration, percent
from farm.values.fields import Amount, Name, OneOf, Type, Whole, canonical

Value: TypeAlias = str | int | float | None

# A thousand bits to a terabit: beyond any link, and far from what would overflow a float.
MIN_BANDWIDTH_MBIT_PER_S, MAX_BANDWIDTH_MBIT_PER_S = 1e-3, 1_000_000
DEFAULT_LEARNING_RATE = 0.02
MIB = 2**20
MAX_DATA_WORKERS = 64
DEFAULT_BUCKET_BYTES, MAX_BUCKET_MIB = 25.0 * MIB, 100_000  # PyTorch's default
# Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models".
DEFAULT_OUTER_LEARNING_RATE, DEFAULT_OUTER_MOMENTUM = 0.7, 0.9
_NO_VALUE = object()
# A strategy that has nothing but options of training.
_ALONE = StrategyFacts(name="", summary="", framework="", axes=TRAINING_AXES)
_FIELDS_OF_JOBS = frozenset(field.name for field in dataclasses.fields(JobSpec))


class AxisKind(enum.Enum):
    """What an axis belongs to, in the order in which pages offer axes to compare along."""

    SIZE = "size"
    PROFILE = "profile"  # asked of the network emulator; one field each of NetworkConditions
    STRATEGY = "strategy"
    WORKLOAD = "workload"
    SETUP = "setup"  # of a strategy
    LINK = "link"  # which of the agents' networks
    CASE = "case"  # said once of a whole case, such as how long a job measures


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Axis:
    """One axis. There is one object of each, so that axes are compared by identity.

    - `name`: in sweep files, the API, tables and addresses of pages; `field`: of a `JobSpec` or of
      `NetworkConditions`, else the key in `JobSpec.axes`, and `column`: of measurements, each where
      it has another name there
    - `meaning`: for forms and documents; `choices`: what the values of an enumeration mean
    - `is_required`: every case names it; `default`: of a case that does not
    - `is_named`: only strategies that name it among their `axes` have it; `is_of_ranks`: it means
      nothing where one rank trains. Where it does not apply its value is `unused`, None: the
      default; so it is for jobs from before the axis
    - `only_with`: another axis, by its field, and its value with which alone it means something
    - `of_framework`: values that mean nothing for a strategy of another framework than this
    - `has_column`: measurements have a column of it; else it is among their `details.axes`, as are
      all for which a job has no field
    - `usual`: the value that is not mentioned; `none`: the word for no value in addresses
    - `write`: a value for people; `phrase`: a value within a sentence; `continues`: its phrase goes
      on with that of the axis before
    - `if_empty`: what an import takes an empty cell for, where that is not `absent`;
      `is_free_in_imports`: others have words of their own for it, and an import takes any text
    - `is_limit`: of a network: the less, the slower; None is no limit. More of every other axis of
      a network makes a step slower
    - `is_of_gang`: of a set-up: how its ranks stand on agents, whatever they train
    - `is_of_input`: of a set-up: what a step has to do for its examples
    - `is_of_servers`: of a set-up: a job without parameter servers has no value
    - `is_of_every_strategy`: of a set-up: strategies are compared at the same value of it; every
      other one is part of the strategy that it is a setting of
    - `is_of_updates`: the forward pass is the same at every value; a job of it has `absent`
    - `is_of_speed`: it changes how long an epoch takes, and nothing in what is learnt in it; so do
      all axes of a network
    """

    name: str
    kind: AxisKind
    type: Type
    title: str
    meaning: str
    field: str = ""
    column: str = ""
    is_required: bool = False
    default: Any = None
    is_named: bool = False
    is_of_ranks: bool = False
    unused: Any = None
    only_with: tuple[str, Any] | None = None
    usual: object = _NO_VALUE
    none: str = "any"
    write: Callable[[Value], str] | None = None
    phrase: Callable[[Any], str] | None = None
    is_of_speed: bool = False
    continues: bool = False
    if_empty: str = ""
    is_free_in_imports: bool = False
    is_limit: bool = False
    is_of_gang: bool = False
    is_of_servers: bool = False
    is_of_every_strategy: bool = False
    is_of_updates: bool = False
    is_of_input: bool = False
    has_column: bool = True
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    of_framework: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Whether jobs have it among their `axes`, without a field of its own.
    is_further: bool = dataclasses.field(init=False)
    # Where a job's specification has it, None: among the specification's own fields.
    _part: str | None = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", self.field or self.name)
        is_of_job = self.kind not in (AxisKind.PROFILE, AxisKind.CASE)
        is_further = is_of_job and self.field not in _FIELDS_OF_JOBS
        if is_further and self.kind is not AxisKind.SETUP:
            raise ValueError(f"axis {self.name}: only an axis of a set-up needs no field")
        if self.kind is AxisKind.PROFILE and self.field not in CONDITIONS:
            raise ValueError(f"axis {self.name}: NetworkConditions has no field {self.field}")
        part = "network" if self.kind is AxisKind.PROFILE else "axes" if is_further else None
        object.__setattr__(self, "is_further", is_further)
        object.__setattr__(self, "has_column", self.has_column and not is_further)
        object.__setattr__(self, "_part", part)

    @property
    def unit(self) -> str:
        """The unit outside the farm; empty: it has none."""
        return self.type.unit if isinstance(self.type, Amount) else ""

    @property
    def explained(self) -> str:
        """What it means, for documents."""
        values = "; ".join(f"`{value}`: {what}" for value, what in self.choices.items())
        return f"{self.meaning} ({values})" if values else self.meaning

    @property
    def default_value(self) -> Value:
        """What a case has that does not name the axis, as JSON has it."""
        return _plain(self.default)

    @property
    def default_text(self) -> str:
        """The same for people; empty: a case has to name it."""
        return "" if self.is_required else self.text(self.default_value)

    @property
    def stored(self) -> str:
        """The column of measurements."""
        return self.column or self.field

    @property
    def is_number(self) -> bool:
        """Whether charts can be drawn along it."""
        return isinstance(self.type, Whole | Amount)

    @property
    def is_of_network(self) -> bool:
        """Whether one machine, which sends nothing, is the same at every value."""
        return self.kind in (AxisKind.PROFILE, AxisKind.LINK)

    @property
    def is_of_model(self) -> bool:
        """Whether it names what is trained: measurements of different ones are not compared."""
        return self.kind is AxisKind.WORKLOAD and self.is_required

    @property
    def is_of_work(self) -> bool:
        """Whether it says how large a step is, of whatever is trained."""
        is_workload = self.kind is AxisKind.WORKLOAD and not self.is_required
        return is_workload or self.kind is AxisKind.SIZE

    @property
    def holds_alone(self) -> bool:
        """Whether the axis also matters to one rank alone, as the precision does."""
        return self.applies(_ALONE, 1)

    @property
    def is_of_training(self) -> bool:
        """Whether it says what one rank, too, computes in a step, such as the optimizer."""
        is_option = self.kind is AxisKind.SETUP and self.holds_alone
        return is_option and not self.is_of_speed and not self.is_of_every_strategy

    @property
    def is_of_scripts(self) -> bool:
        """Whether it means something for a user's script, which is trained as it likes."""
        return self.is_of_gang or self.kind in (AxisKind.SIZE, AxisKind.PROFILE, AxisKind.LINK)

    def applies(self, strategy: StrategyFacts, world_size: int) -> bool:
        """Whether it changes anything for a strategy on that many ranks, of a network agents."""
        if self.kind is AxisKind.LINK:
            return sends(strategy, world_size)
        is_had = not self.is_named or self.name in strategy.axes
        return is_had and (world_size > 1 or not self.is_of_ranks)

    def means_something(self, value: Any, *, strategy: StrategyFacts, world_size: int) -> bool:
        """Whether a value changes anything for a strategy on that many ranks."""
        if not self.applies(strategy, world_size):
            return False
        return self.of_framework.get(str(_plain(value)), strategy.framework) == strategy.framework

    @property
    def absent(self) -> Any:
        """The value of a job that does not specify this axis."""
        return self.default if self.unused is None else self.unused

    def read(self, value: object, where: str) -> Value:
        """Check a value in the unit of the axis' name; return it in base units, as JSON has it.

        Raises:
            InvalidSpec: it is none of the axis.
        """
        return _plain(self.type.read(value, where))

    def value_in(self, spec: Mapping[str, Any]) -> Value:
        """Return the value in a job's specification, by its fields; as JSON has it, or not yet.

        A specification that is older than the axis has `absent`.
        """
        source = spec if self._part is None else spec.get(self._part) or {}
        value = source.get(self.field)
        if self.is_of_servers and not spec.get("server_count"):
            return None
        return _plain(self.absent if value is None else value)

    def value_measured(self, row: Any) -> Value:
        """Return the value in a stored measurement, one older than the axis having `absent`.

        `row`: of `MeasurementRow`, or of a query that has the axis by its name in the store.
        """
        value: Value = (
            getattr(row, self.stored)
            if hasattr(row, self.stored)
            else ((row.details or {}).get("axes") or {}).get(self.field)
        )
        if self.kind is AxisKind.LINK:
            # What emulated a network is no name of one.
            return None if value in (UNTOUCHED, *EMULATOR_NAMES) else value
        found = {self.field: value}
        parts = {} if self._part is None else {self._part: found}
        return self.value_in({**found, **parts, "server_count": row.server_count})

    def value_of(self, configuration: Any) -> Value:
        """Return the value of a `CellConfiguration`."""
        value: Value = configuration[self.field]
        return value

    def is_usual(self, value: Value) -> bool:
        """Whether the value need not be mentioned."""
        return value == self.usual

    def is_left_out(self, value: Value) -> bool:
        """Whether a line on a cell does not have the value: it is usual, or of every case."""
        return value == (self.default_value if self.usual is _NO_VALUE else self.usual)

    def text(self, value: Value) -> str:
        """Write a value for people."""
        if self.write is not None:
            return self.write(value)
        if isinstance(self.type, Whole) and value is not None:
            return count(cast(int, value))
        return f"{self.address(value)} {self.unit}".rstrip()

    def canonical(self, value: float) -> float:
        """Return an amount in base units with 12 digits; 0 if below the resolution."""
        assert isinstance(self.type, Amount)
        return 0.0 if value * self.type.per_base < self.type.resolution else canonical(value)

    def address(self, value: Value) -> str:
        """Write a value for an address of a page, in the unit of the axis' name."""
        if value is None or value == "":
            return self.none
        if isinstance(self.type, Amount):
            return f"{float(value) * self.type.per_base:.9g}"
        return str(int(value)) if isinstance(self.type, Whole) else str(value)

    def said(self, value: Value) -> str:
        """Write a value within a sentence."""
        return self._titled(value) if self.phrase is None else self.phrase(value)

    def named(self, value: Value) -> str:
        """Write a value so that it says what it is of, as in the name of a line."""
        return self.text(value) if isinstance(value, str) else self._titled(value)

    def _titled(self, value: Value) -> str:
        return f"{self.title.lower()} {self.text(value)}"


def _plain(value: Any) -> Value:
    plain: Value = value.value if isinstance(value, enum.Enum) else value
    return plain


def _spoken(value: Value) -> str:
    return str(value).replace("_", " ")


def sends(strategy: StrategyFacts, agent_count: int) -> bool:
    """Whether anything goes over a network."""
    return strategy.uses_network and agent_count > 1


def _time(value: Value) -> str:
    return duration(cast(float, value))


DELAY = Amount(
    unit="ms",
    noun="number of milliseconds",
    per_base=1000,
    low=0,
    high=MAX_ONE_WAY_DELAY_S * 1000,
    resolution=canonical(DELAY_RESOLUTION_S * 1000),
)

AXES: tuple[Axis, ...] = (
    Axis(
        name="model",
        kind=AxisKind.WORKLOAD,
        type=Name(most=MOST_MODEL_CHARACTERS),
        title="Model",
        meaning="name of a model",
        is_required=True,
    ),
    Axis(
        name="dataset",
        kind=AxisKind.WORKLOAD,
        type=Name(),
        title="Data set",
        meaning="name of a data set",
        is_required=True,
    ),
    Axis(
        name="strategy",
        kind=AxisKind.STRATEGY,
        type=Name(),
        title="Strategy",
        meaning="how the work is distributed",
        is_required=True,
    ),
    Axis(
        name="world_size",
        kind=AxisKind.SIZE,
        type=Whole(1, MAX_WORLD_SIZE),
        title="World size",
        meaning="ranks that train; parameter servers are not counted",
        is_required=True,
    ),
    Axis(
        name="global_batch_size",
        kind=AxisKind.SIZE,
        type=Whole(1, MAX_GLOBAL_BATCH_SIZE),
        title="Batch",
        meaning="examples in one step of the whole gang, at least one for each replica",
        is_required=True,
        phrase=lambda value: f"{count(value)} examples",
    ),
    Axis(
        name="server_count",
        kind=AxisKind.SETUP,
        type=Whole(0, MAX_WORLD_SIZE),
        title="Servers",
        meaning="parameter servers, for strategies that have them",
        default=1,
        is_named=True,
        unused=0,
        usual=0,
        phrase=lambda value: f"{count(value)} {'server' if value == 1 else 'servers'}",
    ),
    Axis(
        name="server_placement",
        kind=AxisKind.SETUP,
        type=OneOf(ServerPlacement),
        title="Servers are",
        meaning="where parameter servers run",
        default=ServerPlacement.COLLOCATED,
        is_named=True,
        usual=None,
        none="none",
        phrase=str,
        continues=True,
        choices={
            "collocated": "on the agents of ranks that train",
            "apart": "on agents of their own",
        },
        if_empty="not known",
        is_of_servers=True,
    ),
    Axis(
        name="replicas_per_rank",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_REPLICAS_PER_RANK),
        title="Replicas per rank",
        meaning="copies of the model in one rank, each on a GPU or a share of its cores",
        default=2,  # one replica of a rank is what `single` measures
        is_named=True,
        unused=1,
        usual=1,
        phrase=lambda value: f"{count(value)} replicas a rank",
        is_of_speed=True,
    ),
    Axis(
        name="steps_between_averages",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_STEPS),
        title="Steps between averages",
        meaning="steps between two averages of the weights, for strategies that average them",
        default=8,
        is_named=True,
        unused=1,
        usual=1,
        phrase=lambda value: f"averaged every {count(value)} steps",
    ),
    Axis(
        name="outer_learning_rate",
        kind=AxisKind.SETUP,
        type=Amount(unit="", noun="number", low=0, is_above_low=True, high=1000),
        title="Outer learning rate",
        meaning="of the outer optimizer, for `torch_diloco`",
        default=DEFAULT_OUTER_LEARNING_RATE,
        is_named=True,
        usual=DEFAULT_OUTER_LEARNING_RATE,
        phrase=lambda value: f"outer learning rate {value:.9g}",
        is_of_updates=True,
    ),
    Axis(
        name="outer_momentum",
        kind=AxisKind.SETUP,
        type=Amount(unit="", noun="number", low=0, high=1, is_below_high=True),
        title="Outer momentum",
        meaning="Nesterov's, of the outer optimizer, for `torch_diloco`",
        default=DEFAULT_OUTER_MOMENTUM,
        is_named=True,
        usual=DEFAULT_OUTER_MOMENTUM,
        phrase=lambda value: f"outer momentum {value:.9g}",
        is_of_updates=True,
    ),
    Axis(
        name="ranks_per_agent",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_RANKS_PER_AGENT),
        title="Ranks per agent",
        meaning="ranks that train on one agent, each on its share of the cores; `world_size` is a "
        "multiple of it",
        default=1,
        is_named=True,
        is_of_ranks=True,
        unused=1,
        usual=1,
        phrase=lambda value: f"{count(value)} ranks an agent",
        is_of_speed=True,
        is_of_gang=True,
    ),
    Axis(
        name="device",
        kind=AxisKind.SETUP,
        type=OneOf(Device),
        title="Device",
        meaning="what ranks train on",
        default=Device.AUTO,
        usual=Device.AUTO.value,
        phrase=lambda value: f"device {value}",
        choices={
            "auto": "GPUs where their agent has one for each, else processors",
            "cpu": "processors",
            "gpu": "GPUs of agents that have enough",
        },
        is_of_every_strategy=True,
        is_of_speed=True,
        is_of_gang=True,
    ),
    Axis(
        name="gpus_per_rank",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_GPUS_PER_RANK),
        title="GPUs per rank",
        meaning='GPUs of each rank of a script, with `device = "gpu"`; a strategy takes one for '
        "each replica",
        default=1,
        is_named=True,
        unused=1,
        only_with=("device", Device.GPU),
        usual=1,
        phrase=lambda value: f"{count(value)} GPUs a rank",
        is_of_speed=True,
        is_of_gang=True,
    ),
    Axis(
        name="placement",
        kind=AxisKind.SETUP,
        type=OneOf(OperatorPlacement),
        title="Placement",
        meaning="where operators run",
        default=OperatorPlacement.SOFT,
        usual=OperatorPlacement.SOFT.value,
        phrase=lambda value: f"{value} placement",
        choices={
            "soft": "where the framework chooses",
            "hard": "all on the CPU",
        },
        if_empty="not known",
        is_free_in_imports=True,
        is_of_every_strategy=True,
        is_of_speed=True,
    ),
    Axis(
        name="batch_split",
        kind=AxisKind.SETUP,
        type=OneOf(BatchSplit),
        title="Batch split",
        meaning="how the ranks of a synchronous strategy but `torch_pipeline` share a batch",
        default=BatchSplit.EVEN,
        # A rank that goes at its own pace has nothing to split.
        is_named=True,
        is_of_ranks=True,
        usual=BatchSplit.EVEN.value,
        choices={
            "even": "equal parts",
            "by_speed": "in proportion to the speed in the control run, of PyTorch on GPUs theirs",
        },
        write=_spoken,
        phrase=lambda value: f"batch split {_spoken(value)}",
        is_of_every_strategy=True,
    ),
    Axis(
        name="optimizer",
        kind=AxisKind.SETUP,
        type=OneOf(Optimizer),
        title="Optimizer",
        meaning="how gradients become updates of the weights, for strategies of PyTorch",
        default=Optimizer.SGD,
        is_named=True,
        usual=Optimizer.SGD.value,
        phrase=str,
        choices={
            "sgd": "stochastic gradient descent with momentum 0.9",
            "adamw": "Adam with decoupled weight decay, 0.01",
        },
        is_of_updates=True,
    ),
    Axis(
        name="learning_rate",
        kind=AxisKind.SETUP,
        type=Amount(unit="", noun="number", low=0, is_above_low=True, high=MAX_LEARNING_RATE),
        title="Learning rate",
        meaning="of the optimizer, for strategies of PyTorch",
        default=DEFAULT_LEARNING_RATE,
        is_named=True,
        usual=DEFAULT_LEARNING_RATE,
        phrase=lambda value: f"learning rate {value:.9g}",
        is_of_updates=True,
    ),
    Axis(
        name="lr_scaling",
        kind=AxisKind.SETUP,
        type=OneOf(LearningRateScaling),
        title="Rate scaling",
        meaning="how the learning rate follows the global batch size, for strategies of PyTorch",
        default=LearningRateScaling.NONE,
        is_named=True,
        usual=LearningRateScaling.NONE.value,
        phrase=lambda value: f"{value} scaling of the learning rate",
        choices={
            "none": "not at all",
            "linear": f"times batch / {REFERENCE_BATCH_SIZE}",
            "sqrt": "times the square root of that",
        },
        is_of_updates=True,
    ),
    Axis(
        name="lr_warmup_steps",
        kind=AxisKind.SETUP,
        type=Whole(0, MAX_STEPS),
        title="Rate warm-up",
        meaning="first steps of a training, over which the learning rate rises evenly, for "
        "strategies of PyTorch; with `steps` those of `warmup_steps` are among them",
        default=0,
        is_named=True,
        usual=0,
        phrase=lambda value: f"learning rate rising over {count(value)} steps",
        is_of_updates=True,
    ),
    Axis(
        name="precision",
        kind=AxisKind.SETUP,
        type=OneOf(ComputePrecision),
        title="Precision",
        meaning="numbers in which the layers are computed, for strategies of PyTorch",
        default=ComputePrecision.FLOAT32,
        is_named=True,
        usual=ComputePrecision.FLOAT32.value,
        phrase=str,
        choices={
            "float32": "single precision",
            "bfloat16": "bfloat16 where the framework finds it safe; weights, gradients and what "
            "is exchanged stay float32",
        },
    ),
    Axis(
        name="gradient_accumulation_steps",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_GLOBAL_BATCH_SIZE),
        title="Accumulation",
        meaning="parts of a rank's batch, in turn, whose gradients are exchanged once, for "
        "strategies of PyTorch but `torch_pipeline`",
        default=1,
        is_named=True,
        usual=1,
        phrase=lambda value: f"batches in {count(value)} parts",
        is_of_updates=True,
    ),
    Axis(
        name="pipeline_microbatches",
        kind=AxisKind.SETUP,
        type=Whole(1, MAX_GLOBAL_BATCH_SIZE),
        title="Microbatches",
        meaning="equal parts of a batch that follow each other through the stages of a model, for "
        "`torch_pipeline`; the batch is a multiple of it",
        default=4,
        is_named=True,
        is_of_ranks=True,
        usual=4,
        phrase=lambda value: f"{count(value)} microbatches",
    ),
    Axis(
        name="pipeline_cut",
        kind=AxisKind.SETUP,
        type=OneOf(PipelineCut),
        title="Cut",
        meaning="of what the largest stage of a model has as little as can be, for "
        "`torch_pipeline`",
        default=PipelineCut.FLOP,
        is_named=True,
        is_of_ranks=True,
        usual=PipelineCut.FLOP.value,
        phrase=lambda value: f"cut by {value}",
        choices={
            "flop": "computing, so that steps are short",
            "weights": "bytes of weights, so that large models fit",
        },
        is_of_speed=True,
    ),
    Axis(
        name="gradient_bucket_mib",
        field="gradient_bucket_bytes",
        kind=AxisKind.SETUP,
        type=Amount(
            unit="MiB", noun="number of MiB", per_base=1 / MIB, low=1e-3, high=MAX_BUCKET_MIB
        ),
        title="Bucket",
        meaning="gradients that are summed at once while the backward pass goes on, for "
        "`torch_ddp`; the first at most 1",
        default=DEFAULT_BUCKET_BYTES,
        is_named=True,
        is_of_ranks=True,
        usual=DEFAULT_BUCKET_BYTES,
        is_of_speed=True,
        is_of_updates=True,
    ),
    Axis(
        name="activation_checkpointing",
        kind=AxisKind.SETUP,
        type=OneOf(ActivationCheckpointing),
        title="Checkpointing",
        meaning="what of the forward pass is kept in memory for the backward pass, for "
        "strategies of PyTorch but `torch_fsdp` and `torch_pipeline`",
        default=ActivationCheckpointing.OFF,
        is_named=True,
        usual=ActivationCheckpointing.OFF.value,
        phrase=lambda value: f"activation checkpointing {value}",
        choices={
            "off": "all that it reads",
            "on": "the inputs of blocks, from which it computes the rest again",
        },
        is_of_speed=True,
        is_of_updates=True,
    ),
    Axis(
        name="compile",
        kind=AxisKind.SETUP,
        type=OneOf(Compilation),
        title="Compiled by",
        meaning="what compiles the model",
        default=Compilation.NONE,
        is_named=True,
        usual=Compilation.NONE.value,
        phrase=lambda value: f"compiled by {_spoken(value)}",
        choices={
            "none": "nothing",
            "torch_compile": "torch.compile, for strategies of PyTorch but `torch_fsdp` and "
            "`torch_pipeline`, by a C++ compiler on the agents",
            "xla": "TensorFlow's own, for its strategies without servers but `central_reduce` and "
            "`central_storage`",
        },
        of_framework={"torch_compile": TORCH, "xla": TENSORFLOW},
        is_of_speed=True,
    ),
    Axis(
        name="input_pipeline",
        kind=AxisKind.SETUP,
        type=OneOf(InputPipeline),
        title="Input",
        meaning="where a step's examples come from",
        default=InputPipeline.MEMORY,
        usual=InputPipeline.MEMORY.value,
        phrase=lambda value: f"examples from {value}",
        choices={
            "memory": "arrays in memory",
            "loader": "the framework's own, tf.data or PyTorch's DataLoader, which decodes a "
            "folder's images anew; for strategies but `torch_pipeline`",
        },
        is_of_speed=True,
        is_of_input=True,
    ),
    Axis(
        name="data_workers",
        kind=AxisKind.SETUP,
        type=Whole(0, MAX_DATA_WORKERS),
        title="Data workers",
        meaning='what loads a rank\'s batches with `input_pipeline = "loader"`: threads of '
        "TensorFlow, processes of PyTorch; 0: the rank itself",
        default=0,
        only_with=("input_pipeline", InputPipeline.LOADER),
        usual=0,
        phrase=lambda value: f"{count(value)} data workers",
        is_of_speed=True,
    ),
    Axis(
        name="network",
        field="interface",
        kind=AxisKind.LINK,
        type=Name(
            pattern=NETWORK_NAME.pattern,
            expected="the name of a network of the agents: letters, digits, '.', '_' and '-'",
        ),
        title="Network",
        meaning="name of an agents' network; in results also the emulator, such as `tc_netem`",
        column="network",
        write=lambda value: "usual" if value is None else str(value),
        phrase=lambda value: f"network {value}",
    ),
    Axis(
        name="pass",
        field="training_pass",
        kind=AxisKind.WORKLOAD,
        type=OneOf(TrainingPass),
        title="Pass",
        meaning="what of a step is run",
        default=TrainingPass.FORWARD_BACKWARD,
        choices={
            "forward_backward": "a whole training step",
            "forward": "the forward pass, which exchanges no gradients",
        },
        write=lambda value: str(value).replace("_", " + "),
    ),
    Axis(
        name="one_way_delay_ms",
        field="one_way_delay_s",
        kind=AxisKind.PROFILE,
        type=DELAY,
        title="Delay",
        meaning="delay added to every packet that an agent sends",
        default=0.0,
        write=_time,
        phrase=lambda value: f"{duration(value)} one way",
    ),
    Axis(
        name="jitter_ms",
        field="jitter_s",
        kind=AxisKind.PROFILE,
        type=DELAY,
        title="Jitter",
        meaning="variation of the delay, at most the delay",
        default=0.0,
        write=_time,
        continues=True,
        phrase=lambda value: f"± {duration(value)}",
    ),
    Axis(
        name="packet_loss_percent",
        field="packet_loss_ratio",
        kind=AxisKind.PROFILE,
        type=Amount(
            unit="%",
            noun="percentage",
            per_base=100,
            low=0,
            high=100,
            is_below_high=True,
            resolution=LOSS_RESOLUTION_RATIO * 100,
        ),
        title="Packet loss",
        meaning="share of packets dropped",
        default=0.0,
        write=lambda value: percent(cast(float, value), 2),
        phrase=lambda value: f"{percent(value, 2)} lost",
    ),
    Axis(
        name="bandwidth_mbit_per_s",
        field="bandwidth_bytes_per_s",
        kind=AxisKind.PROFILE,
        type=Amount(
            unit="Mbit/s",
            noun="number of Mbit/s",
            per_base=8e-6,
            low=MIN_BANDWIDTH_MBIT_PER_S,
            high=MAX_BANDWIDTH_MBIT_PER_S,
        ),
        title="Bandwidth",
        meaning="limit of what an agent sends; in sweeps at least 0.012",
        none="unlimited",
        is_limit=True,
        write=lambda value: "unlimited" if value is None else bit_rate(float(value)),
        phrase=bit_rate,
    ),
)
PROFILE_AXES = tuple(axis for axis in AXES if axis.kind is AxisKind.PROFILE)
# The same in the order of the fields of NetworkConditions.
CONDITION_AXES = tuple(sorted(PROFILE_AXES, key=lambda axis: CONDITIONS.index(axis.field)))
# Those with one value each in a job's specification itself.
JOB_AXES = tuple(axis for axis in AXES if axis.kind is not AxisKind.PROFILE)
# What a job has that says nothing but what it must, by field.
ABSENT: Mapping[str, Any] = {axis.field: axis.absent for axis in JOB_AXES if not axis.is_required}
FURTHER_AXES = tuple(axis for axis in AXES if axis.is_further)
AXES_WITHOUT_COLUMN = tuple(axis for axis in AXES if not axis.has_column)
# How a strategy is set up, without where its operators run and how many servers it has.
SETUP_AXES = tuple(
    axis
    for axis in AXES
    if axis.kind is AxisKind.SETUP and axis.name not in ("server_count", "placement")
)
AXES_BY_NAME: Mapping[str, Axis] = {axis.name: axis for axis in AXES}
AXES_BY_FIELD: Mapping[str, Axis] = {axis.field: axis for axis in AXES}
STRATEGY = AXES_BY_NAME["strategy"]
# Those that every case names: a job has a column of each.
REQUIRED_AXES = tuple(axis for axis in AXES if axis.is_required)
# What a question and its answer are about: what is trained, with which batch, on which network.
TASK_AXES = (
    *(axis for axis in AXES if axis.kind is AxisKind.WORKLOAD),
    AXES_BY_NAME["global_batch_size"],
    *PROFILE_AXES,
)
# The required ones as people compare cells: what is trained, with which batch, on how many machines
# and how.
REQUIRED_AXES_IN_ORDER = tuple(
    AXES_BY_NAME[name]
    for name in ("model", "dataset", "global_batch_size", "world_size", "strategy")
)


def values_of(spec: Mapping[str, Any]) -> dict[str, Value]:
    """Return the value of every axis, by its field, in a job's specification as JSON has it."""
    return {axis.field: axis.value_in(spec) for axis in AXES}


def spec_values(job: JobSpec) -> dict[str, Value]:
    """Return the value of every axis, by its field, of a job."""
    fields = {axis.field: getattr(job, axis.field) for axis in JOB_AXES if not axis.is_further}
    network = (
        {}
        if job.network is None
        else {axis.field: getattr(job.network, axis.field) for axis in PROFILE_AXES}
    )
    return values_of({**fields, "network": network, "axes": job.axes})


def profile_fields(values: Mapping[str, float | None]) -> dict[str, Any]:
    """Return the network's axes by field, in base units, from numbers by name in its unit.

    What is not there is as on a network that nobody changes.

    Raises:
        InvalidSpec: names the axis that is out of range, or does not fit another.
    """
    given = {axis: values.get(axis.name) for axis in PROFILE_AXES}
    found: dict[str, Any] = {
        axis.field: axis.absent if value is None else axis.type.read(value, axis.name)
        for axis, value in given.items()
    }
    if found["jitter_s"] > found["one_way_delay_s"]:
        raise InvalidSpec("jitter_ms", values["jitter_ms"], "at most one_way_delay_ms")
    return found


def profile_numbers(source: object) -> dict[str, float]:
    """Return an object's unusual network values by axis name, each in that name's unit."""
    found = {axis: getattr(source, axis.field) for axis in PROFILE_AXES}
    return {
        axis.name: float(axis.address(value))
        for axis, value in found.items()
        if value is not None and value != axis.absent
    }


def job_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `JobSpec` for a value of every axis but those of a network profile.

    Axes without a field of their own become `axes`, but for those that say nothing.
    """
    further = {axis.field: values[axis.field] for axis in FURTHER_AXES}
    own = {field: value for field, value in values.items() if field not in further}
    said = {
        axis.field: _plain(further[axis.field])
        for axis in FURTHER_AXES
        if further[axis.field] != axis.absent
    }
    return {**own, "axes": said}
