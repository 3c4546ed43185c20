"""Groups the cells of a sweep that differ only in the compared axes. Pure.

Each group includes the cell of one machine with the same work and framework: a line over world
sizes begins there. One machine needs no network, so its cell belongs to the groups of every
network.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from farm.cells.axes import LENGTH, order
from farm.cells.choice import Choice
from farm.cells.table import CellLine, SweepTable
from farm.configuration.axes import STRATEGY
from farm.configuration.axis import Axis, AxisKind, Value
from farm.registry import catalogue

AxisValues = tuple[Value, ...]


def settled_axes(table: SweepTable, choice: Choice, shown: Sequence[Axis]) -> list[Axis]:
    """Return the axes with one value wherever the shown axes have one: these need not be held.

    Such is the length of a sweep that trains each batch size for another number of epochs. An axis
    that the choice holds is not among them.
    """
    at = [table.axes.index(axis) for axis in shown]
    open_at = {
        position
        for position, axis in enumerate(table.axes)
        if axis not in shown and axis.name not in choice.fixed
    }
    firsts: dict[AxisValues, AxisValues] = {}
    for _, full in choice.admitted(table):
        first = firsts.setdefault(tuple([full[position] for position in at]), full)
        if first is not full:
            open_at = {position for position in open_at if full[position] == first[position]}
    return [table.axes[position] for position in sorted(open_at)]


def tells_work(axis: Axis, *, is_one_rank: bool = False) -> bool:
    """Whether a single machine shares this axis with a gang: not strategy, network or length.

    `is_one_rank`: the machine has one rank, which shares no setting of several ranks either.
    """
    if is_one_rank and axis.kind is AxisKind.SETUP and not axis.holds_alone:
        return False
    return not axis.is_of_network and axis not in (STRATEGY, LENGTH)


@dataclass(slots=True)
class CellGroup:
    """`rest`: the values that its cells share, in the order of the other axes.

    `cells`: by position.

    `hidden_count`: cells that differ in something that is no axis, and stand where another does.
    `has_gang`: some need more than one machine.
    """

    rest: AxisValues
    cells: dict[AxisValues, CellLine] = field(default_factory=dict)
    hidden_count: int = 0
    has_gang: bool = False

    @property
    def is_one_rank(self) -> bool:
        """Whether all of it is one rank on one machine."""
        return all(_is_one_rank(line) for line in self.cells.values())

    def add(self, place: AxisValues, line: CellLine) -> None:
        """Put a cell at its position; of two, the one with more repetitions is kept."""
        other = self.cells.get(place)
        if other is None or len(other.repetitions) < len(line.repetitions):
            self.cells[place] = line
        self.hidden_count += other is not None


class Groups:
    """The groups of the cells that a choice admits, along the `shown` axes.

    `rest`: the other axes that vary, but for the `settled` ones, in which cells of a group may
    differ. `is_on_number`: cells without a number on the first of the shown axes are left out, as
    no limit is no bandwidth.
    """

    def __init__(
        self,
        table: SweepTable,
        choice: Choice,
        *,
        shown: Sequence[Axis],
        settled: Sequence[Axis] = (),
        is_on_number: bool = False,
    ) -> None:
        self._shown = shown
        self.rest = [axis for axis in table.axes if axis not in shown and axis not in settled]
        self._common = {
            is_one_rank: [
                i for i, axis in enumerate(self.rest) if tells_work(axis, is_one_rank=is_one_rank)
            ]
            for is_one_rank in (False, True)
        }
        at = {axis.name: position for position, axis in enumerate(table.axes)}
        place_of, key_of = _part_of(at, shown), _part_of(at, self.rest)
        self._singles: dict[tuple[bool, AxisValues], list[CellLine]] = {}
        found: dict[AxisValues, CellGroup] = {}
        of_gangs: set[tuple[bool, AxisValues, str]] = set()
        for line, full in choice.admitted(table):
            key, place = key_of(full), place_of(full)
            if is_on_number and place[0] is None:
                continue
            group = found.get(key)
            if group is None:
                group = found[key] = CellGroup(key)
            group.add(place, line)
            if line.configuration.is_one_machine:
                is_one_rank = _is_one_rank(line)
                part = (is_one_rank, self._part(key, is_one_rank=is_one_rank))
                self._singles.setdefault(part, []).append(line)
            else:
                group.has_gang = True
                of_gangs |= {
                    (is_one_rank, self._part(key, is_one_rank=is_one_rank), _framework(line))
                    for is_one_rank in (False, True)
                }
        # One machine alone is no picture of its own where a gang's begins with it.
        kept = (
            group
            for key, group in found.items()
            if group.has_gang
            or any(
                (
                    _is_one_rank(line),
                    self._part(key, is_one_rank=_is_one_rank(line)),
                    _framework(line),
                )
                not in of_gangs
                for line in group.cells.values()
            )
        )
        self.found = sorted(kept, key=lambda group: [order(value) for value in group.rest])

    def largest(self, count: int) -> list[CellGroup]:
        """Return the groups with most cells, in their order; gangs before single machines."""
        ranked = sorted(self.found, key=lambda group: (not group.has_gang, -len(group.cells)))
        chosen = {id(group) for group in ranked[:count]}
        return [group for group in self.found if id(group) in chosen]

    def completed(
        self, group: CellGroup, values: Mapping[str, Sequence[Value]]
    ) -> dict[AxisValues, CellLine]:
        """Return the cells of a group and, for missing ones, those of one machine.

        `values`: by name, of the shown axes, those at which one machine is to stand.
        """
        cells = dict(group.cells)
        singles: Sequence[CellLine] = tuple(group.cells.values())
        if group.has_gang:
            own = {_framework(line) for line in group.cells.values()}
            singles = [
                line
                for is_one_rank in (False, True)
                for line in self._singles.get(
                    (is_one_rank, self._part(group.rest, is_one_rank=is_one_rank)), ()
                )
                if _framework(line) in own
            ]
        for line in singles:
            for place in self._places(line, values):
                cells.setdefault(place, line)
        return cells

    def _part(self, rest: AxisValues, *, is_one_rank: bool) -> AxisValues:
        return tuple([rest[i] for i in self._common[is_one_rank]])

    def _places(
        self, line: CellLine, values: Mapping[str, Sequence[Value]]
    ) -> Iterator[AxisValues]:
        return itertools.product(
            *(
                values[axis.name] if axis.is_of_network else (axis.value_of(line.configuration),)
                for axis in self._shown
            )
        )


def _is_one_rank(line: CellLine) -> bool:
    return line.configuration.is_one_machine and line.configuration["world_size"] == 1


def _framework(line: CellLine) -> str:
    """Return what its strategy trains with; of one that is not registered, TensorFlow."""
    return _framework_of(line.configuration["strategy"])


@functools.cache
def _framework_of(strategy: str) -> str:
    facts = catalogue().strategies.get(strategy)
    return "tensorflow" if facts is None else facts.framework


def _part_of(at: Mapping[str, int], axes: Sequence[Axis]) -> Callable[[AxisValues], AxisValues]:
    """Return what takes some axes' values out of a line's."""
    positions = [at[axis.name] for axis in axes]
    if len(positions) == 1:
        [only] = positions
        return lambda full: (full[only],)
    return operator.itemgetter(*positions) if positions else lambda full: ()
