"""The options of an answer as a table, with the names and columns that tables of cells have. Pure.

It has further columns for what only options have: the prediction interval, time and cost of the
training, and their evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from farm.cells.configuration import CellConfiguration
from farm.cells.result_table import (
    REPETITIONS_COLUMN,
    naming_columns,
    quantity_column,
    repetitions_text,
    step_time_text,
)
from farm.cells.table import CellLine
from farm.configuration.axes import AXES, SETUP_AXES
from farm.configuration.spec import EMULATOR_NAMES
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.recommend.configuration import TrainingTask
from farm.recommend.contracts import Basis, Option
from farm.recommend.setup import PLACEMENT
from farm.text.columns import Column
from farm.text.display import MISSING, dollars, duration, text

_STEP_TIME, _EPOCH, _ACCURACY = (
    QUANTITIES_BY_NAME[name] for name in ("step_time_s", "time_per_epoch_s", "accuracy")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionLine:
    """An option, named as cells are.

    `cell`: of a sweep, whose figures are those of the option; None: there is no such cell.
    """

    option: Option
    configuration: CellConfiguration
    cell: CellLine | None = None

    @property
    def fingerprint(self) -> str | None:
        """The kind of hardware."""
        return self.option.fingerprint

    @property
    def framework(self) -> str | None:
        """What trains."""
        return self.option.framework

    @property
    def is_measured(self) -> bool:
        """Whether its time was measured."""
        return self.option.basis == Basis.MEASURED.value

    @property
    def repetitions_text(self) -> str:
        """How many repetitions were measured."""
        if self.cell is not None:
            return repetitions_text(self.cell)
        return text(self.option.repetition_count or None)

    @property
    def step_time_text(self) -> str:
        """The step time, of a cell with its interval."""
        if self.cell is not None:
            return step_time_text(self.cell)
        return _STEP_TIME.write(self.option.step_time_s)


def interval_text(option: Option) -> str:
    """Write the 90 % interval of an epoch, or of a step where epochs are not known."""
    ends = (option.low_s, option.high_s)
    if option.time_per_epoch_s is None:
        ends = (option.step_low_s, option.step_high_s)
    return MISSING if None in ends else " to ".join(map(duration, ends))


def _with_unit(option: Option) -> str:
    interval = interval_text(option)
    return (
        interval
        if interval == MISSING or option.time_per_epoch_s is not None
        else f"{interval} a step"
    )


_Written: TypeAlias = tuple[Column, Callable[[OptionLine], str]]
_COLUMNS: tuple[_Written, ...] = (
    (Column("instance type"), lambda line: text(line.option.instance_type)),
    (REPETITIONS_COLUMN, lambda line: line.repetitions_text),
    (quantity_column(_STEP_TIME.title), lambda line: line.step_time_text),
    (quantity_column(_EPOCH.title), lambda line: _EPOCH.write(line.option.time_per_epoch_s)),
    (quantity_column(_ACCURACY.title), lambda line: _ACCURACY.write(line.option.accuracy)),
    (Column("90 % prediction interval", is_right=True), lambda line: _with_unit(line.option)),
    (Column("training", is_right=True), lambda line: duration(line.option.time_s)),
    (Column("cost", is_right=True), lambda line: dollars(line.option.cost_usd)),
    (Column("basis"), lambda line: line.option.basis),
)


def option_lines(options: Sequence[Option], task: TrainingTask) -> list[OptionLine]:
    """Return a line for each option of an answer. `task`: the common part of the question."""
    return [OptionLine(option=one, configuration=configuration_of(one, task)) for one in options]


def option_columns(lines: Sequence[OptionLine]) -> list[tuple[Column, list[str]]]:
    """Return the columns that name options, and those with known values, with their texts."""
    written = [(column, [write(line) for line in lines]) for column, write in _COLUMNS]
    return [
        *naming_columns(lines),
        *(column for column in written if any(one != MISSING for one in column[1])),
    ]


def configuration_of(option: Option, task: TrainingTask) -> CellConfiguration:
    """Return the configuration of the cell that an option is measured in.

    What nobody said of its set-up is as usual. One machine has no network, whatever was asked.
    """
    has_network = option.machine_count > 1
    network = option.network if has_network else None
    emulator = network if network in EMULATOR_NAMES else None
    settings = dict(option.setup.pairs)
    values: dict[str, Any] = {
        **{axis.field: axis.value_in({}) for axis in AXES},
        **{
            axis.field: axis.read(settings[axis.name], axis.name)
            for axis in SETUP_AXES
            if axis.name in settings
        },
        **(task.by_field if has_network else {}),
        **({PLACEMENT: settings[PLACEMENT]} if PLACEMENT in settings else {}),
        "model": task.model or "",
        "dataset": task.dataset or "",
        "training_pass": task.training_pass.value,
        "global_batch_size": task.global_batch_size,
        "strategy": option.strategy,
        "world_size": option.world_size,
        "server_count": option.server_count,
        "interface": None if emulator else network,
    }
    return CellConfiguration(place=tuple(values[axis.field] for axis in AXES), emulator=emulator)
