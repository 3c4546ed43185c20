"""Distance of a configuration from all measured ones, axis by axis.

An axis is a number that the step time depends on. *Comparable* configurations agree in every name
(strategy, network and so on), or, for one machine, in every name that matters to it.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from farm.configuration.axes import AXES_BY_FIELD
from farm.configuration.spec import CONDITIONS
from farm.recommend.configuration import Configuration
from farm.recommend.features import LIMIT_CONDITIONS, NAMES, amount, canonical, names_of, rounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Two strategies are as far apart as two measured values next to each other.
_NAME_DISTANCE = 1.0
# A value beyond all that were measured lies at most this much further than the last of them.
_BEYOND = 1.0


@dataclass(frozen=True, slots=True)
class GapAxis:
    """An axis by its name for people. `condition`: its field, where it is one of a network.

    `BATCH` is global or per replica, whichever was kept the same; see `Space`. `NAMES` and `ALONE`
    are no numbers: which combination of names it is, and whether it is one machine at all.
    """

    name: str
    condition: str = ""

    BATCH: ClassVar[GapAxis]
    WORLD_SIZE: ClassVar[GapAxis]
    SERVERS: ClassVar[GapAxis]
    NAMES: ClassVar[GapAxis]
    ALONE: ClassVar[GapAxis]

    @classmethod
    def of(cls, condition: str) -> GapAxis:
        """Return the axis of a condition of the network, by its field."""
        return cls(AXES_BY_FIELD[condition].title.lower(), condition)


GapAxis.BATCH = GapAxis("batch size")
GapAxis.WORLD_SIZE = GapAxis("world size")
GapAxis.SERVERS = GapAxis("server count")
GapAxis.NAMES = GapAxis("names")
GapAxis.ALONE = GapAxis("one machine")
NUMBERS = (GapAxis.BATCH, GapAxis.WORLD_SIZE, GapAxis.SERVERS, *map(GapAxis.of, CONDITIONS))
# Values of these count by their ratio, of the others by their difference.
BY_RATIO = (GapAxis.BATCH, GapAxis.WORLD_SIZE)


class Side(enum.Enum):
    """Where a value lies that was not measured."""

    INSIDE = "inside"  # between two that were
    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Gap:
    """A value on an axis that no comparable measurement has.

    `is_everywhere`: nor has any other, of whatever strategy or network.
    """

    axis: GapAxis
    side: Side
    is_everywhere: bool

    @property
    def is_between(self) -> bool:
        """Whether it lies between measured values; of names none does."""
        return self.side is Side.INSIDE and self.axis != GapAxis.NAMES

    @property
    def is_beyond(self) -> bool:
        """Whether it lies beyond them."""
        return self.side is not Side.INSIDE


@dataclass(frozen=True, slots=True)
class Beyond:
    """How far a value lies outside its own curve: what was measured with the same names.

    `doublings`: between `value` and `edge`, the nearest that was measured, counted so that each is
    as far as all before it; see `Space.beyond`. `own_count`: of the curve's values on that axis.
    """

    axis: GapAxis
    value: float
    edge: float
    doublings: float
    own_count: int


@dataclass(frozen=True, slots=True)
class OwnGap:
    """A curve ends at `edge` on the side of `gap`, where others go on."""

    axis: GapAxis
    side: Side
    edge: float

    def is_beyond(self, value: float | None) -> bool:
        """Whether a value lies beyond the edge; one machine has no delay, so it does not."""
        if value is None:
            return False
        return value > self.edge if self.side is Side.ABOVE else value < self.edge


# The values that were measured on each of NUMBERS.
_Values = tuple[frozenset[float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The configurations that were measured, and what of another is not among them.

    `is_weak`: they keep the per-replica batch size the same while the world size varies, so that
    it is the axis; else the global one is.
    """

    configurations: tuple[Configuration, ...]
    is_weak: bool
    # By whether they are single machines, then by names.
    _curves: dict[bool, dict[tuple[object, ...], _Values]]
    _everywhere: _Values

    @classmethod
    def of(cls, configurations: Iterable[Configuration]) -> Space:
        """Sort the distinct configurations into curves, each of the same names."""
        ours = tuple(dict.fromkeys(canonical(c) for c in configurations))
        is_weak = keeps_replica_batch(ours)
        curves: dict[bool, dict[tuple[object, ...], list[Configuration]]] = {True: {}, False: {}}
        for c in ours:
            curves[c.is_one_machine].setdefault(names_of(c), []).append(c)
        return cls(
            configurations=ours,
            is_weak=is_weak,
            _curves={
                is_one: {key: _values(group, is_weak=is_weak) for key, group in known.items()}
                for is_one, known in curves.items()
            },
            _everywhere=_values(ours, is_weak=is_weak),
        )

    def value(self, configuration: Configuration, axis: GapAxis) -> float | None:
        """Return the number on that axis; None where it cannot matter. No limit is infinite."""
        return _value(configuration, axis, is_weak=self.is_weak)

    def gaps(self, configuration: Configuration) -> frozenset[Gap]:
        """Return what was not measured; nothing at all may still be a new combination.

        What counts is what agrees in all names, or else in as many as anything does; of single
        machines for one, and of gangs for a gang, where there are any. No gang tells what one
        machine takes: where none was measured, that is all that lacks, and enough.
        """
        target = canonical(configuration)
        if target.is_one_machine and not self._curves[True]:
            return frozenset({Gap(GapAxis.ALONE, Side.BELOW, is_everywhere=True)})
        gaps = set()
        if names_of(target) not in self._curves_like(target):
            gaps.add(Gap(GapAxis.NAMES, Side.INSIDE, is_everywhere=False))
        for axis, value, known in self._own_values(target):
            if value not in known:
                is_everywhere = value not in self._everywhere[NUMBERS.index(axis)]
                gaps.add(Gap(axis, _side(value, known), is_everywhere))
        return frozenset(gaps)

    def beyond(self, configuration: Configuration) -> tuple[Beyond, ...]:
        """Return on which axes it lies outside its own curve, and how far.

        Batch sizes and world sizes are counted by their ratio to the nearest that was measured. Of
        the network's conditions, which may be 0, a doubling is another time the range that was
        measured: from 0 to 80 ms, 160 ms is one and 320 ms are two.
        """
        target = canonical(configuration)
        found = []
        for axis, value, known in self._own_values(target):
            side = _side(value, known)
            if known and value not in known and side is not Side.INSIDE:
                edge = max(known) if side is Side.ABOVE else min(known)
                doublings = self._doublings(axis, value, edge, known)
                found.append(Beyond(axis, value, edge, doublings, len(known)))
        return tuple(found)

    def own_gaps(self, configuration: Configuration) -> Iterator[OwnGap]:
        """Yield where its own curve ends before it, while another goes on."""
        lacking = {g.axis for g in self.gaps(configuration) if not g.is_everywhere}
        for one in self.beyond(configuration):
            if one.axis in lacking:
                side = Side.ABOVE if one.value > one.edge else Side.BELOW
                yield OwnGap(one.axis, side, one.edge)

    def ends(self) -> Iterator[OwnGap]:
        """Yield where a gang's curve ends while another goes on."""
        for index, axis in enumerate(NUMBERS):
            curves = [values[index] for values in self._curves[False].values() if values[index]]
            for values in curves:
                for side, end in ((Side.ABOVE, max), (Side.BELOW, min)):
                    if end(v for known in curves for v in known) != end(values):
                        yield OwnGap(axis, side, end(values))

    def _curves_like(self, target: Configuration) -> dict[tuple[object, ...], _Values]:
        return self._curves[target.is_one_machine] or self._curves[not target.is_one_machine]

    def _own_values(self, target: Configuration) -> Iterator[tuple[GapAxis, float, set[float]]]:
        """Yield each axis that matters, the value there, and the values of the own curve."""
        curves, own = self._curves_like(target), names_of(target)
        comparable = [curves[own]] if own in curves else _closest(own, curves)
        for index, axis in enumerate(NUMBERS):
            value = self.value(target, axis)
            if value is None:
                continue
            known = {v for values in comparable for v in values[index]}
            if axis == GapAxis.WORLD_SIZE and any(_are_related(n, own) for n in self._curves[True]):
                # One machine is where every curve over world sizes begins.
                known.add(1.0)
            yield axis, value, known

    def _doublings(
        self, axis: GapAxis, value: float, edge: float, known: Collection[float]
    ) -> float:
        if axis in BY_RATIO:
            return abs(math.log2(value / edge))
        amounts = [amount_of(v, axis) for v in known]
        span = max(amounts) - min(amounts)
        if not span:
            everywhere = sorted(amount_of(v, axis) for v in self._everywhere[NUMBERS.index(axis)])
            # Of a single value nothing tells how far is far: as far as others lie apart.
            span = (everywhere[-1] - everywhere[0]) / max(1, len(everywhere) - 1) or edge or 1.0
        away = abs(amount_of(value, axis) - amount_of(edge, axis))
        return math.log2(1 + away / span)


def _closest(own: tuple[object, ...], curves: dict[tuple[object, ...], _Values]) -> list[_Values]:
    agreeing: dict[int, list[_Values]] = {}
    for other, values in curves.items():
        count = sum(a == b for a, b in zip(own, other, strict=True))
        agreeing.setdefault(count, []).append(values)
    return agreeing[max(agreeing)] if agreeing else []


def _side(value: float, known: Collection[float]) -> Side:
    if not known or value > max(known):
        return Side.ABOVE
    return Side.BELOW if value < min(known) else Side.INSIDE


def _values(configurations: Sequence[Configuration], *, is_weak: bool) -> _Values:
    return tuple(
        frozenset(
            value for c in configurations if (value := _value(c, axis, is_weak=is_weak)) is not None
        )
        for axis in NUMBERS
    )


def _value(configuration: Configuration, axis: GapAxis, *, is_weak: bool) -> float | None:
    if axis.condition:
        if configuration.is_one_machine:
            return None
        number: float | None = getattr(configuration, axis.condition)
        return math.inf if number is None else rounded(number)
    if axis == GapAxis.BATCH:
        if is_weak:
            return rounded(configuration.per_replica_batch_size)
        return float(configuration.global_batch_size)
    if axis == GapAxis.WORLD_SIZE:
        return float(configuration.world_size)
    assert axis == GapAxis.SERVERS, f"{axis.name}: not a number"
    return float(configuration.server_count)


def amount_of(value: float, axis: GapAxis) -> float:
    """Return how much there is of a condition, as `features.amount` has it; no limit is 0."""
    return amount(axis.condition, value)


def keeps_replica_batch(configurations: Iterable[Configuration]) -> bool:
    """Whether these vary the world size at the same per-replica batch size (weak scaling).

    Else they do so at the same global one (strong scaling): whichever takes fewer values over the
    gangs, the global one in doubt.
    """
    gangs = [c for c in configurations if not c.is_one_machine]
    replica = {rounded(c.per_replica_batch_size) for c in gangs}
    return len(replica) < len({c.global_batch_size for c in gangs})


def _are_related(alone: tuple[object, ...], gang: tuple[object, ...]) -> bool:
    """Whether a single machine does what each of a gang's does, its strategy left aside."""
    return all(
        a == b
        for name, a, b in zip(NAMES, alone, gang, strict=True)
        if name not in ("setup", "strategy", "network")
    )


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A space in which two values next to each other, of those measured, are 1 apart.

    Counting values needs no unit and no idea of how times depend on them: those who measured chose
    them where something changes.
    """

    space: Space
    values: tuple[tuple[float, ...], ...]  # measured ones in order, for each of NUMBERS
    names: tuple[tuple[object, ...], ...]  # measured ones, for each of NAMES

    @classmethod
    def of(cls, space: Space) -> Neighbourhood:
        """Collect the values of each number and name that occur in a space."""
        known = [names_of(c) for c in space.configurations]
        return cls(
            space=space,
            values=tuple(
                tuple(
                    sorted(
                        {
                            v
                            for v in (space.value(c, axis) for c in space.configurations)
                            if v is not None
                        }
                    )
                )
                for axis in NUMBERS
            ),
            names=tuple(tuple(dict.fromkeys(column)) for column in zip(*known, strict=True)),
        )

    def locate(self, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
        """Return where they are: (len(configurations), dimensions)."""
        import numpy as np

        dimensions = len(NUMBERS) + sum(len(known) for known in self.names if len(known) > 1)
        rows = [self._row(canonical(c)) for c in configurations]
        return np.array(rows, dtype=float).reshape(len(rows), dimensions)

    def _row(self, configuration: Configuration) -> list[float]:
        row: list[float] = []
        for axis, values in zip(NUMBERS, self.values, strict=True):
            value = self.space.value(configuration, axis)
            if len(values) < 2 or value is None:
                row.append(0.0)
            else:
                row.append(_position(_warped(value, axis), _all_warped(values, axis)))
        for own, known in zip(names_of(configuration), self.names, strict=True):
            if len(known) > 1:
                # Half the squared distance of two that differ is 1 / 2 + 1 / 2 of the square.
                row += [_NAME_DISTANCE / math.sqrt(2) * (own == name) for name in known]
        return row


def _warped(value: float, axis: GapAxis) -> float:
    """Return the number that lies between two others as one expects of it."""
    if axis in BY_RATIO:
        return math.log(value)
    if axis.condition in LIMIT_CONDITIONS:
        return -1 / value  # no limit: 0
    return value


@functools.lru_cache(maxsize=256)  # the measured values, for every configuration that is located
def _all_warped(values: tuple[float, ...], axis: GapAxis) -> tuple[float, ...]:
    return tuple(_warped(v, axis) for v in values)


def _position(value: float, known: Sequence[float]) -> float:
    """Return which of the known values it is, counted from 0; between two of them a fraction."""
    for index, (lower, upper) in enumerate(itertools.pairwise(known)):
        if value <= upper or index == len(known) - 2:
            position = index + (value - lower) / (upper - lower)
            return min(max(position, -_BEYOND), len(known) - 1 + _BEYOND)
    raise AssertionError("two values at least are known")
