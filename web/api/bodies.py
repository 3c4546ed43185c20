"""What may be posted, as types the document is made of; `farm.core.sweep` reads and checks it."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from farm.core.fields import (
    MAX_BANDWIDTH_MBIT_PER_S,
    MAX_NAME_CHARACTERS,
    MAX_PRECISION_PERCENT,
    MAX_TIME_LIMIT_S,
)
from farm.core.precision import LEAST_REPETITIONS
from farm.core.spec import (
    MAX_GLOBAL_BATCH_SIZE,
    MAX_ONE_WAY_DELAY_S,
    MAX_REPLICAS_PER_RANK,
    MAX_STEPS,
    MAX_WORLD_SIZE,
    NETWORK_NAME,
    BatchSplit,
    OperatorPlacement,
    ServerPlacement,
    TrainingPass,
)
from farm.core.sweep import MAX_AUTO_REPETITIONS, MAX_PRIORITY, MAX_SEED

_T = TypeVar("_T")
# An axis: a list of at least one value, or a single one.
Axis: TypeAlias = _T | Annotated[list[_T], Field(min_length=1)]

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[!-~]+$")]
Count = Annotated[int, Field(ge=1, le=MAX_STEPS)]
NetworkName = Annotated[str, Field(pattern=f"^{NETWORK_NAME.pattern}$")]
DelayMs = Annotated[float, Field(ge=0, le=MAX_ONE_WAY_DELAY_S * 1000)]
_AutoCount = Annotated[int, Field(ge=LEAST_REPETITIONS, le=MAX_AUTO_REPETITIONS)]


# Written as a call, since `pass` is no name in Python.
_Pass = TypedDict("_Pass", {"pass": NotRequired[Axis[TrainingPass]]})


@with_config(ConfigDict(extra="forbid"))
class SweepCase(_Pass):
    """The cross product of its lists. Either `steps` or `epochs`."""

    model: Axis[Name]
    dataset: Axis[Name]
    strategy: Axis[Name]
    world_size: Axis[Annotated[int, Field(ge=1, le=MAX_WORLD_SIZE)]]
    global_batch_size: Axis[Annotated[int, Field(ge=1, le=MAX_GLOBAL_BATCH_SIZE)]]
    server_count: NotRequired[Axis[Annotated[int, Field(ge=0, le=MAX_WORLD_SIZE)]]]
    server_placement: NotRequired[Axis[ServerPlacement]]
    replicas_per_rank: NotRequired[Axis[Annotated[int, Field(ge=1, le=MAX_REPLICAS_PER_RANK)]]]
    steps_between_averages: NotRequired[Axis[Count]]
    placement: NotRequired[Axis[OperatorPlacement]]
    batch_split: NotRequired[Axis[BatchSplit]]
    network: NotRequired[Axis[NetworkName]]
    one_way_delay_ms: NotRequired[Axis[DelayMs]]
    jitter_ms: NotRequired[Axis[DelayMs]]
    packet_loss_percent: NotRequired[Axis[Annotated[float, Field(ge=0, lt=100)]]]
    bandwidth_mbit_per_s: NotRequired[
        Axis[Annotated[float, Field(gt=0, le=MAX_BANDWIDTH_MBIT_PER_S)]]
    ]
    emulator: NotRequired[Literal["tc_netem", "tcp_proxy", "vde_link"]]
    steps: NotRequired[Count]
    epochs: NotRequired[Count]
    warmup_steps: NotRequired[Annotated[int, Field(ge=0, le=MAX_STEPS)]]
    seed: NotRequired[Annotated[int, Field(ge=0, le=MAX_SEED)]]
    labels: NotRequired[dict[Name, Name]]
    time_limit_s: NotRequired[Annotated[float, Field(ge=1, le=MAX_TIME_LIMIT_S)]]


@with_config(ConfigDict(extra="forbid"))
class SweepFile(TypedDict):
    """A sweep file as JSON."""

    name: Name
    repetitions: NotRequired[Annotated[int, Field(ge=1, le=MAX_SEED)] | Literal["auto"]]
    precision_percent: NotRequired[Annotated[float, Field(gt=0, le=MAX_PRECISION_PERCENT)]]
    min_repetitions: NotRequired[_AutoCount]
    max_repetitions: NotRequired[_AutoCount]
    repeat: NotRequired[bool]
    skip_impossible: NotRequired[bool]
    priority: NotRequired[Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]]
    case: Annotated[list[SweepCase], Field(min_length=1)]


@with_config(ConfigDict(extra="forbid"))
class Nothing(TypedDict):
    """An action that is told all by its address."""
