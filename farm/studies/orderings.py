"""Checks whether values grow or shrink along an axis, in published and own measurements.

Absolute times of other machines cannot be reproduced, but the order of configurations often can.
Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from farm.charts.chart import Mark
from farm.studies.text import MISSING, listing, table

Coordinates = Mapping[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A value and where it was measured: by axis, what the configuration was.

    `low` to `high` is its 95 % interval, None where nothing tells it, as in a printed table.
    """

    at: Coordinates
    value: float
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> Placed:
        """Return the same in another unit."""
        low, high = (None if end is None else factor * end for end in (self.low, self.high))
        return Placed(at=self.at, value=factor * self.value, low=low, high=high)

    def moved(self, **axes: float | str) -> Placed:
        """Return the same value with other axes, or with more of them."""
        return dataclasses.replace(self, at={**self.at, **axes})

    def mark(self, *, x: float) -> Mark:
        """Return it as a point of a chart."""
        return Mark(x=x, y=self.value, low=self.low, high=self.high)


# By what they are of.
PlacedValues = Mapping[str, Sequence[Placed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """`says`, in words, that a value rises along an axis, or falls, wherever `where` admits.

    `of`: the name of the value. Values are compared that differ in nothing but `along`, whose own
    values are numbers, or texts in the order of `order`. `because`: what explains it where the two
    sources differ.
    """

    says: str
    of: str
    along: str
    is_rising: bool
    because: str
    where: Callable[[Coordinates], bool] = lambda _: True
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OrderVerdict:
    """How many neighbouring pairs agree, say the opposite, or are too close to tell."""

    agree: int
    against: int
    tied: int

    @property
    def holds(self) -> bool | None:
        """Whether most of the pairs that tell anything agree; None: they do not tell."""
        return None if self.agree == self.against else self.agree > self.against

    def __str__(self) -> str:
        count = self.agree + self.against + self.tied
        if not count:
            return MISSING
        tied = f", {self.tied} too close to tell" if self.tied else ""
        return f"{self.agree} of {count}{tied}"


def judge(ordering: Ordering, values: Sequence[Placed]) -> OrderVerdict:
    """Hold values against an ordering: each beside its next neighbour along the axis.

    Two values whose intervals overlap, or that are equal, are too close to tell.
    """
    found = [one for one in values if ordering.along in one.at and ordering.where(one.at)]
    lines: dict[object, list[Placed]] = {}
    for one in found:
        rest = tuple(sorted((k, v) for k, v in one.at.items() if k != ordering.along))
        lines.setdefault(rest, []).append(one)
    agree = against = tied = 0
    for line in lines.values():
        line.sort(key=lambda one: _position(ordering, one.at[ordering.along]))
        for before, after in itertools.pairwise(line):
            rises = _rises(before, after)
            tied += rises is None
            agree += rises is ordering.is_rising
            against += rises is (not ordering.is_rising)
    return OrderVerdict(agree, against, tied)


def agreement(
    orderings: Sequence[Ordering], *, published: PlacedValues, own: PlacedValues
) -> tuple[int, int, int]:
    """Count the published orderings that hold here too, do not, and cannot be told."""
    same = other = unknown = 0
    for ordering in orderings:
        there, here = _judged(ordering, published).holds, _judged(ordering, own).holds
        if there is not None:
            same += here is there
            other += here is (not there)
            unknown += here is None
    return same, other, unknown


def orderings_table(
    orderings: Sequence[Ordering], *, published: PlacedValues, own: PlacedValues
) -> str:
    """Write what both say of each ordering, and where they differ, why."""
    rows: list[list[str]] = []
    reasons: list[tuple[int, str]] = []
    for number, ordering in enumerate(orderings, start=1):
        there, here = _judged(ordering, published), _judged(ordering, own)
        agrees = MISSING if there.holds is None else _agrees(here, expected=there.holds)
        rows.append([f"{number}. {ordering.says}", str(there), str(here), agrees])
        if there.holds is not None and there.holds is not here.holds:
            reasons.append((number, ordering.because))
    text = table(["ordering", "the study", "here", "agree"], rows)
    return f"{text}\n\nWhy not:\n\n{_explained(reasons)}" if reasons else text


def claims_table(orderings: Sequence[Ordering], *, own: PlacedValues, of: str = "theory") -> str:
    """Write what our own measurements say of what is claimed, and where they do not agree, why.

    For studies without published measurements. `of`: whose the claims are.
    """
    rows: list[list[str]] = []
    reasons: list[tuple[int, str]] = []
    for number, ordering in enumerate(orderings, start=1):
        here = _judged(ordering, own)
        rows.append([f"{number}. {ordering.says}", str(here), _agrees(here, expected=True)])
        if here.against or here.tied:
            reasons.append((number, ordering.because))
    text = table([f"what {of} says", "here", "agree"], rows)
    return f"{text}\n\nWhy not, or not everywhere:\n\n{_explained(reasons)}" if reasons else text


def _judged(ordering: Ordering, values: PlacedValues) -> OrderVerdict:
    return judge(ordering, values.get(ordering.of, ()))


def _agrees(here: OrderVerdict, *, expected: bool) -> str:
    if here.holds is None:
        return "not told"
    return "yes" if here.holds is expected else "**no**"


def _explained(reasons: Sequence[tuple[int, str]]) -> str:
    """Write reasons after the numbers they are for; in a numbered list they would get others."""
    numbers: dict[str, list[str]] = {}
    for number, because in reasons:
        numbers.setdefault(because, []).append(str(number))
    return "\n".join(f"- {listing(found)}: {because}" for because, found in numbers.items())


def _position(ordering: Ordering, value: float | str) -> float:
    return ordering.order.index(value) if isinstance(value, str) else value


def _rises(before: Placed, after: Placed) -> bool | None:
    if before.value == after.value:
        return None
    lower, upper = sorted((before, after), key=lambda one: one.value)
    if lower.high is not None and upper.low is not None and lower.high >= upper.low:
        return None
    return after.value > before.value
