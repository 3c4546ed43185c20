"""The declaration of an axis of a configuration, and what is derived from it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from farm.configuration.catalogue import TRAINING_AXES, StrategyFacts
from farm.configuration.spec import CONDITIONS, EMULATOR_NAMES, UNTOUCHED, JobSpec
from farm.text.display import count
from farm.values.fields import Amount, Boolean, OneOf, ValueType, WholeNumber, Word, canonical

Value: TypeAlias = str | bool | int | float | None

_NO_VALUE = object()
# A strategy that has nothing but options of training.
_ALONE = StrategyFacts(name="", summary="", framework="", axes=TRAINING_AXES)
_FIELDS_OF_JOBS = frozenset(field.name for field in dataclasses.fields(JobSpec))


class AxisKind(enum.Enum):
    """The kind of an axis, in the order in which pages offer axes for comparison."""

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
    - `usual`: the value that is not mentioned, of a set-up `absent` unless it says another; `none`:
      the word for no value in addresses
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
    type: ValueType
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
    usual: Any = _NO_VALUE
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
        if is_further and (self.kind is not AxisKind.SETUP or self.is_required):
            expected = (
                "one of a set-up that no case has to name, or a field of that name in JobSpec"
            )
            raise ValueError(f"axis {self.name}: expected {expected}")
        if self.kind is AxisKind.PROFILE and not self.is_number:
            raise ValueError(f"axis {self.name}: a condition of a network is a number")
        if self.kind is AxisKind.PROFILE and self.field not in CONDITIONS:
            raise ValueError(f"axis {self.name}: NetworkConditions has no field {self.field}")
        part = "network" if self.kind is AxisKind.PROFILE else "axes" if is_further else None
        for name in ("default", "unused"):
            value = getattr(self, name)
            if value is not None and self.options:
                value = self.type.read(plain_value(value), f"axis {self.name}, {name}")
                object.__setattr__(self, name, value)
        usual = self.usual
        if usual is _NO_VALUE and self.kind is AxisKind.SETUP:
            usual = self.absent
        object.__setattr__(self, "usual", plain_value(usual))
        if is_further and not self.is_usual(plain_value(self.absent)):
            # A measurement without it would be taken for one that has what is usual.
            raise ValueError(
                f"axis {self.name}: usual: expected {self.absent!r}, as jobs without it"
            )
        object.__setattr__(self, "is_further", is_further)
        object.__setattr__(self, "has_column", self.has_column and not is_further)
        object.__setattr__(self, "_part", part)

    @property
    def unit(self) -> str:
        """The unit outside the farm; empty: it has none."""
        return self.type.unit if isinstance(self.type, Amount) else ""

    @property
    def sentence(self) -> str:
        """Its meaning as a sentence, for help and documents."""
        return f"{self.meaning[0].upper()}{self.meaning[1:]}."

    @property
    def explained(self) -> str:
        """Its meaning, for documents."""
        values = "; ".join(f"`{value}`: {what}" for value, what in self.choices.items())
        return f"{self.meaning} ({values})" if values else self.meaning

    @property
    def default_value(self) -> Value:
        """The value of a case that does not name the axis, in its JSON form."""
        return plain_value(self.default)

    @property
    def default_text(self) -> str:
        """The same for people; empty: a case has to name it."""
        return "" if self.is_required else self.text(self.default_value)

    @property
    def stored(self) -> str:
        """The column of measurements."""
        return (self.column if self.has_column else "") or self.field

    @property
    def options(self) -> tuple[Value, ...]:
        """The values to choose from; empty: it is a number or a text."""
        return self.type.options if isinstance(self.type, OneOf | Word | Boolean) else ()

    @property
    def is_number(self) -> bool:
        """Whether charts can be drawn along it."""
        return isinstance(self.type, WholeNumber | Amount)

    @property
    def is_of_network(self) -> bool:
        """Whether one machine, which sends nothing, is the same at every value."""
        return self.kind in (AxisKind.PROFILE, AxisKind.LINK)

    @property
    def is_of_model(self) -> bool:
        """Whether it names the workload: different workloads are not compared."""
        return self.kind is AxisKind.WORKLOAD and self.is_required

    @property
    def is_of_work(self) -> bool:
        """Whether it determines the size of a step, for any workload."""
        is_workload = self.kind is AxisKind.WORKLOAD and not self.is_required
        return is_workload or self.kind is AxisKind.SIZE

    @property
    def holds_alone(self) -> bool:
        """Whether the axis also matters to one rank alone, as the precision does."""
        return self.applies(_ALONE, 1)

    @property
    def is_of_training(self) -> bool:
        """Whether it also affects the step of one rank, as the optimizer does."""
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

    def has_effect(self, value: Any, *, strategy: StrategyFacts, world_size: int) -> bool:
        """Whether a value changes anything for a strategy on that many ranks."""
        if not self.applies(strategy, world_size):
            return False
        return (
            self.of_framework.get(self.address(plain_value(value)), strategy.framework)
            == strategy.framework
        )

    @property
    def absent(self) -> Any:
        """The value of a job that does not specify this axis."""
        return self.default if self.unused is None else self.unused

    def read(self, value: object, where: str) -> Value:
        """Check a value in the unit of the axis' name; return it in base units, as JSON has it.

        Raises:
            InvalidSpec: it is none of the axis.
        """
        return plain_value(self.type.read(value, where))

    def value_in(self, spec: Mapping[str, Any]) -> Value:
        """Return the value in a job's specification, by its fields; as JSON has it, or not yet.

        A specification that is older than the axis has `absent`.
        """
        source = spec if self._part is None else spec.get(self._part) or {}
        value = source.get(self.field)
        if self.is_of_servers and not spec.get("server_count"):
            return None
        return plain_value(self.absent if value is None else value)

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
        return bool(value == self.usual)

    def is_left_out(self, value: Value) -> bool:
        """Whether a line on a cell does not have the value: it is usual, or of every case."""
        return value == (self.default_value if self.usual is _NO_VALUE else self.usual)

    def text(self, value: Value) -> str:
        """Write a value for people."""
        if self.write is not None:
            return self.write(value)
        if value is None:
            return self.none
        if isinstance(self.type, WholeNumber):
            return count(cast(int, value))
        if isinstance(self.type, Boolean):
            return "yes" if value else "no"
        return f"{self.address(value)} {self.unit}".rstrip()

    def canonical(self, value: float) -> float:
        """Return a number in base units with 12 digits; 0 if below the resolution."""
        if isinstance(self.type, WholeNumber):
            return value
        assert isinstance(self.type, Amount)
        is_none = abs(value) * self.type.per_base < self.type.resolution
        return 0.0 if is_none else canonical(value)

    def address(self, value: Value) -> str:
        """Write a value for an address of a page, in the unit of the axis' name."""
        if value is None or value == "":
            return self.none
        if isinstance(self.type, Amount):
            return f"{float(value) * self.type.per_base:.9g}"
        if isinstance(self.type, Boolean):
            return "true" if value else "false"
        return str(int(value)) if isinstance(self.type, WholeNumber) else str(value)

    def value_at(self, address: str) -> int | float | str:
        """Return the value that `address` wrote, in the unit of the axis' name.

        Raises:
            ValueError: it is no number, where one is needed.
        """
        match self.type:
            case WholeNumber():
                return int(address)
            case Amount():
                return float(address)
            case Boolean():
                return Boolean.of(address)
        return address

    def phrase_of(self, value: Value) -> str:
        """Write a value within a sentence."""
        return self._titled(value) if self.phrase is None else self.phrase(value)

    def named(self, value: Value) -> str:
        """Write a value with the name of its axis, as in the name of a line."""
        return self.text(value) if isinstance(value, str) else self._titled(value)

    def _titled(self, value: Value) -> str:
        return f"{self.title.lower()} {self.text(value)}"


def plain_value(value: Any) -> Value:
    """Return a value as JSON has it: that of an enumeration's member."""
    plain: Value = value.value if isinstance(value, enum.Enum) else value
    return plain


def sends(strategy: StrategyFacts, agent_count: int) -> bool:
    """Whether anything goes over a network."""
    return strategy.uses_network and agent_count > 1
