"""A strategy's set-up, as the recommender compares it: the axes with other than usual values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from farm.configuration.axes import AXES_BY_NAME, JOB_AXES, SETUP_AXES, spec_values
from farm.configuration.spec import JobSpec, OperatorPlacement
from farm.errors import InvalidSpec
from farm.measuring.machine_time import machine_count, serving_machine_count
from farm.values.codec import alias

# The axis of where operators run; of imports it may be any text.
PLACEMENT = "placement"
_BETWEEN = ", "

_Value = int | float | str


@dataclass(frozen=True, slots=True, repr=False)
class Setup:
    """The axes of a set-up that are not as usual, by name, as a sweep file says their values.

    `pairs`: first the placement of operators, then SETUP_AXES in their order.
    """

    pairs: tuple[tuple[str, _Value], ...] = ()

    @classmethod
    def of(cls, placement: str | None, settings: Mapping[str, Any]) -> Setup:
        """Return the set-up of a measurement.

        `placement`: of operators, free text where it was imported. `settings`: by the fields of
        SETUP_AXES, in base units; what is None or missing was not said.
        """
        values = {
            # Values with the same address are one.
            axis.name: axis.value_at(axis.address(value))
            for axis in SETUP_AXES
            if (value := settings.get(axis.field)) is not None and not axis.is_usual(value)
        }
        given = dict(cls.read(placement).pairs) | values
        names = (PLACEMENT, *(axis.name for axis in SETUP_AXES))
        return cls(tuple((name, given[name]) for name in names if name in given))

    @classmethod
    def of_job(cls, spec: JobSpec) -> Setup:
        """Return how a job of the farm is set up."""
        return cls.of(farm_placement(spec.placement.value), spec_values(spec))

    @classmethod
    def read(cls, text: str | None) -> Setup:
        """Return what a text of `text` says. What is no axis is a placement, whatever it means."""
        if not text:
            return cls()
        parts = text.split(_BETWEEN)
        pairs: list[tuple[str, _Value]] = []
        while parts and (pair := _pair(parts[-1])) is not None:
            pairs.insert(0, pair)
            parts.pop()
        free = [(PLACEMENT, _BETWEEN.join(parts))] if parts else []
        found = cls((*free, *pairs))
        return found if found.text == text else cls(((PLACEMENT, text),))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: Any) -> Any:
        """Describe it in the API's document: as its text."""
        return handler(str | None)

    def __repr__(self) -> str:
        # Lists are sorted by it.
        return repr(self.text)

    def __str__(self) -> str:
        return self.text or ""

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def text(self) -> str | None:
        """The set-up as answers publish it, under `placement`; None: as usual in everything."""
        return _BETWEEN.join(_text(name, value) for name, value in self.pairs) or None

    def get(self, name: str) -> _Value | None:
        """Return the value of an axis; None if it is usual or unknown."""
        return next((value for own, value in self.pairs if own == name), None)

    def without(self, *names: str) -> Setup:
        """Return the set-up with these axes as usual."""
        return Setup(tuple(pair for pair in self.pairs if pair[0] not in names))

    @property
    def of_one_machine(self) -> Setup:
        """What of a gang's set-up holds for one machine: how it trains, and on what."""
        return self.without(*(axis.name for axis in SETUP_AXES if not axis.holds_alone))

    @property
    def of_learning(self) -> Setup:
        """What may change what is learnt in an epoch, such as the optimizer.

        Neither where anything runs nor how a batch is shared does so in synchronous training.
        """
        unrelated = [
            axis.name
            for axis in SETUP_AXES
            if axis.is_of_speed or axis.is_of_servers or axis.is_of_every_strategy
        ]
        return self.without(PLACEMENT, *unrelated)

    @property
    def in_sweep_file(self) -> dict[str, _Value]:
        """The set-up as keys and values of a sweep file, without what no file can ask for."""
        is_known = self.get(PLACEMENT) == OperatorPlacement.HARD.value
        return dict((self if is_known else self.without(PLACEMENT)).pairs)

    @property
    def cell_fields(self) -> dict[str, Any]:
        """The same by the fields of a cell, and as values of these."""
        values = self.in_sweep_file
        return {
            axis.field: axis.type.read(values[axis.name], axis.name)
            for axis in JOB_AXES
            if axis.name in values
        }

    @property
    def ranks_per_agent(self) -> int:
        """How many ranks there are on each machine."""
        return int(self.get("ranks_per_agent") or 1)

    def machine_count(self, world_size: int, server_count: int) -> int:
        """Return how many machines it takes; servers have their own unless it is said otherwise."""
        return machine_count(
            world_size, server_count, self._server_placement, ranks_per_agent=self.ranks_per_agent
        )

    def serving_machine_count(self, server_count: int) -> int:
        """Return how many of them only serve."""
        return serving_machine_count(server_count, self._server_placement)

    def fills_machines(self, world_size: int) -> bool:
        """Whether every machine has all its ranks; no other gang can be made."""
        return world_size % self.ranks_per_agent == 0

    @property
    def _server_placement(self) -> str | None:
        return None if (found := self.get("server_placement")) is None else str(found)


USUAL_SETUP = Setup()
# Metadata of a field that is one: answers have its text, under another name.
PUBLISHED = alias(PLACEMENT, write=attrgetter("text"))
# The same where a field has the usual set-up unless it is said, for the API's document.
PUBLISHED_USUAL = {**PUBLISHED, "json_schema_extra": {"default": None}}


def farm_placement(placement: str | None) -> str | None:
    """Return a placement as the farm's configurations have it: soft is the usual one."""
    return None if placement == OperatorPlacement.SOFT.value else placement


def published_name(field: str) -> str:
    """Return what answers and tables call a field of a configuration."""
    return PLACEMENT if field == "setup" else field


def _text(name: str, value: _Value) -> str:
    """Write an axis with its value; a placement, which may be any text, stands for itself."""
    if name == PLACEMENT:
        return str(value)
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    if isinstance(value, bool):
        text = text.lower()
    return f"{name}={text.replace('%', '%25').replace(',', '%2C')}"


def _pair(text: str) -> tuple[str, _Value] | None:
    """Read what `_text` wrote; None: it is no axis with one of its values."""
    name, _, value = text.partition("=")
    axis = AXES_BY_NAME.get(name)
    if axis not in SETUP_AXES or not value:
        return None
    try:
        read = axis.value_at(value.replace("%2C", ",").replace("%25", "%"))
        axis.read(read, name)
    except (ValueError, InvalidSpec):
        return None
    return name, read
