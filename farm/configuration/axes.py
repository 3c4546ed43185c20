"""The axes of a configuration, each declared once, in AXES.

An axis is a list in a `[[case]]` table of a sweep file and one value of each job. Sweep files, the
API, the form, tables, charts, exports and imports all use the declaration. To add an axis, add its
declaration. Inside the farm a value is in base units (seconds, bytes per second, ratios), outside
in the unit of the axis' name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from farm.configuration.axis import Axis, AxisKind, Value, plain_value
from farm.configuration.catalogue import TORCH
from farm.configuration.learning_rate import MAX_LEARNING_RATE, REFERENCE_BATCH_SIZE
from farm.configuration.model_size import PipelineCut
from farm.configuration.scripts import MOST_MODEL_CHARACTERS
from farm.configuration.spec import (
    CONDITIONS,
    DELAY_RESOLUTION_S,
    LOSS_RESOLUTION_RATIO,
    MAX_GLOBAL_BATCH_SIZE,
    MAX_GPUS_PER_RANK,
    MAX_ONE_WAY_DELAY_S,
    MAX_RANKS_PER_AGENT,
    MAX_REPLICAS_PER_RANK,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    TENSORFLOW,
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
from farm.values.fields import SHORT_NAME, Amount, Name, OneOf, WholeNumber, canonical

# A thousand bits to a terabit: beyond any link, and far from what would overflow a float.
MIN_BANDWIDTH_MBIT_PER_S, MAX_BANDWIDTH_MBIT_PER_S = 1e-3, 1_000_000
DEFAULT_LEARNING_RATE = 0.02
MIB = 2**20
MAX_DATA_WORKERS = 64
DEFAULT_BUCKET_BYTES, MAX_BUCKET_MIB = 25.0 * MIB, 100_000  # PyTorch's default
# Douillard et al. 2023, "DiLoCo: Distributed low-communication training of language models".
DEFAULT_OUTER_LEARNING_RATE, DEFAULT_OUTER_MOMENTUM = 0.7, 0.9


def _spoken(value: Value) -> str:
    return str(value).replace("_", " ")


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
        type=WholeNumber(1, MAX_WORLD_SIZE),
        title="World size",
        meaning="ranks that train; parameter servers are not counted",
        is_required=True,
    ),
    Axis(
        name="global_batch_size",
        kind=AxisKind.SIZE,
        type=WholeNumber(1, MAX_GLOBAL_BATCH_SIZE),
        title="Batch",
        meaning="examples in one step of the whole gang, at least one for each replica",
        is_required=True,
        phrase=lambda value: f"{count(value)} examples",
    ),
    Axis(
        name="server_count",
        kind=AxisKind.SETUP,
        type=WholeNumber(0, MAX_WORLD_SIZE),
        title="Servers",
        meaning="parameter servers, for strategies that have them",
        default=1,
        is_named=True,
        unused=0,
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
        type=WholeNumber(1, MAX_REPLICAS_PER_RANK),
        title="Replicas per rank",
        meaning="copies of the model in one rank, each on a GPU or a share of its cores",
        default=2,  # one replica of a rank is what `single` measures
        is_named=True,
        unused=1,
        phrase=lambda value: f"{count(value)} replicas a rank",
        is_of_speed=True,
    ),
    Axis(
        name="steps_between_averages",
        kind=AxisKind.SETUP,
        type=WholeNumber(1, MAX_STEPS),
        title="Steps between averages",
        meaning="steps between two averages of the weights, for strategies that average them",
        default=8,
        is_named=True,
        unused=1,
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
        phrase=lambda value: f"outer momentum {value:.9g}",
        is_of_updates=True,
    ),
    Axis(
        name="ranks_per_agent",
        kind=AxisKind.SETUP,
        type=WholeNumber(1, MAX_RANKS_PER_AGENT),
        title="Ranks per agent",
        meaning="ranks that train on one agent, each on its share of the cores; `world_size` is a "
        "multiple of it",
        default=1,
        is_named=True,
        is_of_ranks=True,
        unused=1,
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
        type=WholeNumber(1, MAX_GPUS_PER_RANK),
        title="GPUs per rank",
        meaning='GPUs of each rank of a script, with `device = "gpu"`; a strategy takes one for '
        "each replica",
        default=1,
        is_named=True,
        unused=1,
        only_with=("device", Device.GPU),
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
        type=WholeNumber(0, MAX_STEPS),
        title="Rate warm-up",
        meaning="first steps of a training, over which the learning rate rises evenly, for "
        "strategies of PyTorch; with `steps` those of `warmup_steps` are among them",
        default=0,
        is_named=True,
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
        type=WholeNumber(1, MAX_GLOBAL_BATCH_SIZE),
        title="Accumulation",
        meaning="parts of a rank's batch, in turn, whose gradients are exchanged once, for "
        "strategies of PyTorch but `torch_pipeline`",
        default=1,
        is_named=True,
        phrase=lambda value: f"batches in {count(value)} parts",
        is_of_updates=True,
    ),
    Axis(
        name="pipeline_microbatches",
        kind=AxisKind.SETUP,
        type=WholeNumber(1, MAX_GLOBAL_BATCH_SIZE),
        title="Microbatches",
        meaning="equal parts of a batch that follow each other through the stages of a model, for "
        "`torch_pipeline`; the batch is a multiple of it",
        default=4,
        is_named=True,
        is_of_ranks=True,
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
        type=WholeNumber(0, MAX_DATA_WORKERS),
        title="Data workers",
        meaning='what loads a rank\'s batches with `input_pipeline = "loader"`: threads of '
        "TensorFlow, processes of PyTorch; 0: the rank itself",
        default=0,
        only_with=("input_pipeline", InputPipeline.LOADER),
        phrase=lambda value: f"{count(value)} data workers",
        is_of_speed=True,
    ),
    Axis(
        name="network",
        field="interface",
        kind=AxisKind.LINK,
        type=Name(
            pattern=SHORT_NAME.pattern,
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


def profile_numbers(source: object) -> dict[str, Any]:
    """Return an object's unusual network values by axis name, each in that name's unit."""
    found = {axis: getattr(source, axis.field) for axis in PROFILE_AXES}
    return {
        axis.name: axis.value_at(axis.address(value))
        for axis, value in found.items()
        if value is not None and value != axis.absent
    }


def job_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `JobSpec` for a value of every axis but those of a network profile.

    Axes without a field of their own become `axes`, but for those that say nothing.
    """
    further = {axis.field: values[axis.field] for axis in FURTHER_AXES}
    own = {field: value for field, value in values.items() if field not in further}
    axes = {
        axis.field: plain_value(further[axis.field])
        for axis in FURTHER_AXES
        if further[axis.field] != axis.absent
    }
    return {**own, "axes": axes}
