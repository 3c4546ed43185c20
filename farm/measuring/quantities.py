"""The measured quantities of a job, declared once in QUANTITIES.

A quantity is one figure of an attempt, computed from the reports of its ranks, and has a median
over the repetitions of a cell. The store, the API, tables, charts, exports and documents all use
its declaration. To add a quantity, add its declaration. A value is in base units (seconds, bytes,
ratios), with which its name ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

from farm.configuration.spec import MAX_STEPS, TrainingPass
from farm.measuring.efficiency import (
    achieved_flop_per_s,
    cpu_energy_per_step_j,
    data_wait_ratio,
    energy_per_step_j,
    gpu_energy_per_step_j,
    peak_device_memory_bytes,
    peak_flop_per_s,
    tokens_per_s,
    utilisation_ratio,
)
from farm.measuring.measurement import OK, AttemptFigures, Unknown
from farm.text.display import (
    byte_count,
    byte_rate,
    count,
    decimal,
    duration,
    flop_rate,
    joules,
    percent,
)
from farm.values.ranges import (
    LEAST_TIME_S,
    MOST_COUNT,
    MOST_TIME_S,
    ByteSize,
    Count,
    CountedShare,
    Difference,
    Duration,
    Rate,
    Share,
    Throughput,
)

_Value: TypeAlias = int | float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantity:
    """One quantity.

    - `name`: the column of measurements and exports, with its unit
    - `stored_as`: the type of the column of measurements; None: there is none, and it is among the
      `quantities` of a measurement's details
    - `title`: over a column and beside an axis; empty: only exports and the API have it
    - `of`: its value in an attempt that succeeded, None or `Unknown` where it cannot be told
    - `write`: a value for people; `is_whole`: a value is a whole number
    - `metric`: its name in addresses of pages, where that is not `name`
    - `time_power`: it is proportional to the step time (1), to its inverse (-1), or to neither (0),
      which tells how uncertain it is
    - `is_of_servers`: tables have it only for cells with parameter servers
    - `least` and `most`: that an import takes; `if_empty`: what it takes an empty cell for
    - `is_advised`: times and accuracies of advice are computed from it; imports check all of them
      together
    """

    name: str
    meaning: str
    of: Callable[[AttemptFigures], _Value | Unknown]
    stored_as: Any = None
    title: str = ""
    unit: str = ""
    write: Callable[[float | None], str] = decimal
    is_whole: bool = False
    metric: str = ""
    time_power: int = 0
    is_of_servers: bool = False
    is_advised: bool = False
    least: float = 0
    most: float | None = None
    if_empty: str = "not known"

    def value_measured(self, row: Any) -> _Value:
        """Return the value in a stored measurement."""
        if hasattr(row, self.name):
            value: _Value = getattr(row, self.name)
        else:
            value = ((row.details or {}).get("quantities") or {}).get(self.name)
        return value


def _of_profile(name: str) -> Callable[[AttemptFigures], _Value]:
    read = attrgetter(name)
    return lambda figures: figures.mean_of_profiles(read)


def _of_steps(name: str) -> Callable[[AttemptFigures], _Value]:
    return lambda figures: None if figures.steps is None else getattr(figures.steps, name)


def _idle_ratio(figures: AttemptFigures) -> _Value | Unknown:
    if figures.spec.training_pass is TrainingPass.FORWARD:
        return Unknown("a forward pass exchanges no gradients and is not profiled")
    why = figures.exchange.idle_unknown_because
    return figures.exchange.idle_ratio if why is None else Unknown(why)


def _tenths_of_a_percent(value: float | None) -> str:
    return percent(value, 1)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity(
        name="step_time_s",
        stored_as=Duration,
        title="Step time",
        meaning="median of the timed steps",
        unit="s",
        write=duration,
        of=_of_steps("median_s"),
        metric="step_time",
        time_power=1,
        is_advised=True,
        least=LEAST_TIME_S,
        most=MOST_TIME_S,
        if_empty="`time_per_epoch_s` over `steps_per_epoch`",
    ),
    Quantity(
        name="step_time_p25_s",
        stored_as=Duration,
        meaning="lower quartile of the timed steps",
        unit="s",
        write=duration,
        of=_of_steps("p25_s"),
    ),
    Quantity(
        name="step_time_p75_s",
        stored_as=Duration,
        meaning="upper quartile of the timed steps",
        unit="s",
        write=duration,
        of=_of_steps("p75_s"),
    ),
    Quantity(
        name="step_time_spread_s",
        stored_as=Difference,
        meaning="interquartile range of the timed steps",
        unit="s",
        write=duration,
        of=_of_steps("spread_s"),
        is_advised=True,
        most=MOST_TIME_S,
    ),
    Quantity(
        name="timed_step_count",
        stored_as=Count,
        meaning="steps that the step time rests on",
        write=count,
        is_whole=True,
        most=MOST_COUNT,
        of=lambda figures: figures.timed_step_count,
    ),
    Quantity(
        name="throughput_examples_per_s",
        stored_as=Throughput,
        title="Examples/s",
        meaning="of the whole gang",
        unit="examples/s",
        of=lambda figures: figures.throughput_examples_per_s,
        metric="throughput",
        time_power=-1,
        if_empty="`global_batch_size` over `step_time_s`",
    ),
    Quantity(
        name="tokens_per_s",
        title="Tokens/s",
        meaning="of the whole gang, where examples are sequences of tokens",
        unit="tokens/s",
        of=tokens_per_s,
        time_power=-1,
    ),
    Quantity(
        name="achieved_flop_per_s",
        title="FLOP/s",
        meaning="of the whole gang, forward and backward, as the model needs them",
        unit="FLOP/s",
        write=flop_rate,
        of=achieved_flop_per_s,
        time_power=-1,
    ),
    Quantity(
        name="peak_flop_per_s",
        meaning="of a matrix product on all ranks that train, measured before the steps",
        unit="FLOP/s",
        write=flop_rate,
        of=peak_flop_per_s,
    ),
    Quantity(
        name="utilisation_ratio",
        title="Utilisation",
        meaning="`achieved_flop_per_s` over `peak_flop_per_s`",
        write=_tenths_of_a_percent,
        of=utilisation_ratio,
        time_power=-1,
        most=1,
    ),
    Quantity(
        name="examples_per_step",
        meaning="of the whole gang, as a script has told by `benchfarm.step(examples=...)`",
        of=lambda figures: figures.examples_per_step,
    ),
    Quantity(
        name="steps_per_epoch",
        stored_as=Count,
        meaning="steps of one epoch",
        write=count,
        is_whole=True,
        of=lambda figures: figures.steps_per_epoch,
        is_advised=True,
        least=1,
        most=MOST_COUNT,
    ),
    Quantity(
        name="time_per_epoch_s",
        stored_as=Duration,
        title="Time per epoch",
        meaning="time of one epoch",
        unit="s",
        write=duration,
        of=lambda figures: figures.time_per_epoch_s,
        metric="time_per_epoch",
        time_power=1,
        is_advised=True,
        least=LEAST_TIME_S,
        most=MOST_TIME_S,
    ),
    Quantity(
        name="epochs",
        stored_as=Count,
        meaning="epochs that were trained; empty where steps were counted",
        write=count,
        is_whole=True,
        of=lambda figures: figures.epoch_count,
        is_advised=True,
        least=1,
        most=MAX_STEPS,
    ),
    Quantity(
        name="cpu_ratio",
        stored_as=CountedShare,
        title="CPU",
        meaning="busy share of the agents' cores, mean over ranks and seconds",
        write=percent,
        of=lambda figures: figures.used("cpu_ratio"),
    ),
    Quantity(
        name="resident_bytes",
        stored_as=ByteSize,
        title="Memory",
        meaning="memory of the trainers, of the rank with most",
        unit="bytes",
        write=byte_count,
        is_whole=True,
        of=lambda figures: figures.resident_bytes,
    ),
    Quantity(
        name="peak_device_memory_bytes",
        title="GPU memory",
        meaning="most in use since the warm-up began, of the GPU with most",
        unit="bytes",
        write=byte_count,
        is_whole=True,
        of=peak_device_memory_bytes,
    ),
    Quantity(
        name="energy_per_step_j",
        title="Energy per step",
        meaning="of a step of the gang: all machines' processors, their memory and GPUs",
        unit="J",
        write=joules,
        of=energy_per_step_j,
        time_power=1,
    ),
    Quantity(
        name="cpu_energy_per_step_j",
        meaning="of that, the processors' and their memory's",
        unit="J",
        write=joules,
        of=cpu_energy_per_step_j,
        time_power=1,
    ),
    Quantity(
        name="gpu_energy_per_step_j",
        meaning="of that, the GPUs'",
        unit="J",
        write=joules,
        of=gpu_energy_per_step_j,
        time_power=1,
    ),
    Quantity(
        name="net_rx_bytes_per_s",
        stored_as=Rate,
        title="rx",
        meaning="received, mean over ranks and seconds",
        unit="bytes/s",
        write=byte_rate,
        of=lambda figures: figures.used("net_rx_bytes_per_s"),
    ),
    Quantity(
        name="net_tx_bytes_per_s",
        stored_as=Rate,
        title="tx",
        meaning="sent, mean over ranks and seconds",
        unit="bytes/s",
        write=byte_rate,
        of=lambda figures: figures.used("net_tx_bytes_per_s"),
    ),
    Quantity(
        name="accuracy",
        stored_as=Share,
        title="Accuracy",
        meaning="on the test data at the end, from 0 to 1",
        write=_tenths_of_a_percent,
        of=lambda figures: figures.chief.val_accuracy_ratio,
        is_advised=True,
        most=1,
    ),
    Quantity(
        name="sent_bytes_per_step",
        stored_as=Rate,
        title="Sent per step",
        meaning="one rank's, mean over the ranks",
        unit="bytes",
        write=byte_count,
        of=lambda figures: figures.sent_bytes_per_step,
    ),
    Quantity(
        name="received_bytes_per_step",
        stored_as=Rate,
        title="Received per step",
        meaning="one rank's, mean over the ranks",
        unit="bytes",
        write=byte_count,
        of=lambda figures: figures.received_bytes_per_step,
        is_of_servers=True,  # without any, ranks receive what ranks send
    ),
    Quantity(
        name="idle_ratio",
        stored_as=Share,
        title="Idle",
        meaning="share of a step in which a rank computes nothing, mean",
        write=percent,
        of=_idle_ratio,
        most=1,
    ),
    Quantity(
        name="data_wait_s",
        title="Data wait",
        meaning="of a step, waiting for its batch; mean over the ranks",
        unit="s",
        write=duration,
        of=lambda figures: figures.data_wait_s,
    ),
    Quantity(
        name="data_wait_ratio",
        title="Data wait share",
        meaning="`data_wait_s` over the mean step",
        write=_tenths_of_a_percent,
        of=data_wait_ratio,
        most=1,
    ),
    Quantity(
        name="pause_s",
        title="Pauses",
        meaning="beside a script's steps, such as evaluation or checkpoints, a step's share; mean",
        unit="s",
        write=duration,
        of=lambda figures: figures.pause_s,
    ),
    Quantity(
        name="push_s",
        stored_as=Difference,
        title="Push",
        meaning="of a step, for sending; mean over the ranks",
        unit="s",
        write=duration,
        of=lambda figures: figures.exchange.push_s,
    ),
    Quantity(
        name="pull_s",
        stored_as=Difference,
        title="Pull",
        meaning="of a step, for waiting and receiving; mean over the ranks",
        unit="s",
        write=duration,
        of=lambda figures: figures.exchange.pull_s,
    ),
    Quantity(
        name="update_count",
        stored_as=Count,
        title="Updates",
        meaning="updates of the weights in the timed steps",
        write=count,
        is_whole=True,
        most=MOST_COUNT,
        of=lambda figures: figures.exchange.update_count,
    ),
    Quantity(
        name="staleness_mean",
        stored_as=Rate,
        title="Staleness",
        meaning="updates by others between a rank's reading and its update, mean",
        of=lambda figures: figures.exchange.staleness_mean,
    ),
    Quantity(
        name="staleness_max",
        stored_as=Count,
        title="Largest staleness",
        meaning="the most of these",
        write=count,
        is_whole=True,
        most=MOST_COUNT,
        of=lambda figures: figures.exchange.staleness_max,
    ),
    Quantity(
        name="compute_s",
        stored_as=Difference,
        meaning="of a profiled step, outside of communication; mean over the ranks",
        unit="s",
        write=duration,
        of=_of_profile("compute_s"),
    ),
    Quantity(
        name="communication_s",
        stored_as=Difference,
        meaning="of a profiled step, inside of it; mean over the ranks",
        unit="s",
        write=duration,
        of=_of_profile("communication_s"),
    ),
    Quantity(
        name="profiled_step_time_s",
        stored_as=Duration,
        meaning="median of the profiled steps, mean over the ranks",
        unit="s",
        write=duration,
        of=_of_profile("step_time_s"),
    ),
)
QUANTITIES_BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}
# Those that a measurement keeps among its details.
FURTHER_QUANTITIES = tuple(one for one in QUANTITIES if one.stored_as is None)
# Those of tables, pages and charts.
SHOWN = tuple(quantity for quantity in QUANTITIES if quantity.title)
ADVISED = tuple(quantity for quantity in QUANTITIES if quantity.is_advised)
# What advice has of each measurement: the energy too, where it was measured.
EVIDENT = (*ADVISED, QUANTITIES_BY_NAME["energy_per_step_j"])


def other_known_quantities(row: Any) -> dict[Quantity, float]:
    """Return the quantities of tables and pages that a stored measurement has a value of.

    `row` None: there is no measurement.
    """
    if row is None or row.status != OK:
        return {}
    return {
        quantity: value
        for quantity in SHOWN
        if quantity.name != "step_time_s"
        and (row.server_count or not quantity.is_of_servers)
        and (value := quantity.value_measured(row)) is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The value of every quantity, by name, and for some that are None the reason."""

    values: Mapping[str, _Value]
    unknown_because: Mapping[str, str]


def measure(figures: AttemptFigures) -> Measured:
    """Reduce a successful attempt to its measurement."""
    values: dict[str, _Value] = {}
    reasons = {}
    for quantity in QUANTITIES:
        value = quantity.of(figures)
        if isinstance(value, Unknown):
            reasons[quantity.name] = value.reason
            value = None
        elif quantity.is_whole and value is not None:
            value = round(value)
        values[quantity.name] = value
    return Measured(values=values, unknown_because=reasons)
