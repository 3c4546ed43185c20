"""Compares two sweeps: shared cells, their differences, and unmatched cells.

Pure: turns tables of cells into rows. Cells are compared even if their jobs measure another number
of steps or have other labels; the page says where the hardware differs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from farm.cells.configuration import CellConfiguration
from farm.cells.table import CellLine, SweepTable
from farm.measuring.precision import TimeRatio, time_ratio

CHANCE_RATIO = 0.05  # of equal cells, found to differ by chance


class Verdict(enum.Enum):
    """How the second of two sweeps does in a cell; the values are for people."""

    SLOWER = "slower"
    FASTER = "faster"
    WITHIN_NOISE = "within noise"
    FEW_REPETITIONS = "too few repetitions"
    NOT_MEASURED = "not measured in both"
    OTHER_HARDWARE = "other hardware"
    DISTURBED = "disturbed"

    @property
    def is_known(self) -> bool:
        """Whether it can be said."""
        return self in (Verdict.SLOWER, Verdict.FASTER, Verdict.WITHIN_NOISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPair:
    """A configuration in both sweeps. `ratio`: times of the second over those of the first."""

    a: CellLine
    b: CellLine
    ratio: TimeRatio | None

    @property
    def verdict(self) -> Verdict:
        """The verdict of the times, whatever hardware they were measured on."""
        if self.ratio is None:
            return Verdict.NOT_MEASURED
        if self.ratio.is_beyond_noise is None:
            return Verdict.FEW_REPETITIONS
        if not self.ratio.is_beyond_noise:
            return Verdict.WITHIN_NOISE
        return Verdict.SLOWER if self.ratio.ratio > 1 else Verdict.FASTER

    def change(self, *, tolerance_ratio: float = 0.0, is_same_machine: bool = False) -> Verdict:
        """What changed from the first sweep to the second, as far as the evidence goes.

        Slower by no more than `tolerance_ratio` is within noise. Of other hardware, and where only
        disturbed repetitions are left, nothing is said. `is_same_machine`: it is known that the
        kinds of hardware differ in their software alone.
        """
        if self.is_other_hardware and not is_same_machine:
            return Verdict.OTHER_HARDWARE
        verdict = self.verdict
        if not verdict.is_known or self.ratio is None or self.ratio.low is None:
            return verdict
        if self.a.is_disturbed or self.b.is_disturbed:
            return Verdict.DISTURBED
        is_small = verdict is Verdict.SLOWER and self.ratio.low <= 1 + tolerance_ratio
        return Verdict.WITHIN_NOISE if is_small else verdict

    @property
    def is_other_hardware(self) -> bool:
        """Whether the two were measured on different kinds."""
        both = self.a.fingerprint, self.b.fingerprint
        return None not in both and both[0] != both[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepComparison:
    """`pairs` in the order of the first sweep; the others are in one sweep alone.

    `is_sequential`: repetitions ended because they seemed precise, see `time_ratio`.
    """

    pairs: Sequence[CellPair]
    only_a: Sequence[CellLine]
    only_b: Sequence[CellLine]
    is_sequential: bool

    @property
    def judged_count(self) -> int:
        """Pairs of which it can be said whether they differ."""
        return sum(pair.verdict.is_known for pair in self.pairs)

    @property
    def differing_count(self) -> int:
        """Pairs that differ beyond noise."""
        return sum(pair.verdict in (Verdict.SLOWER, Verdict.FASTER) for pair in self.pairs)


def compare_sweeps(
    a: SweepTable, b: SweepTable, *, before: SweepComparison | None = None
) -> SweepComparison:
    """Pair the cells of two sweeps: identical jobs first, then similar ones.

    `before`: an older comparison of the two, of which pairs of unchanged cells are kept.
    """
    is_sequential = a.precision is not None or b.precision is not None
    known: dict[str, CellPair] = {}
    if before is not None and before.is_sequential == is_sequential:
        known = {pair.a.cell_hash: pair for pair in before.pairs}
    left = {line.cell_hash: line for line in b.lines}
    partners = {
        line.cell_hash: left.pop(line.cell_hash) for line in a.lines if line.cell_hash in left
    }
    alike: dict[CellConfiguration, CellLine] = {}
    for line in left.values():
        alike.setdefault(line.configuration.compared, line)
    for line in a.lines if alike else ():
        if line.cell_hash not in partners and (
            other := alike.pop(line.configuration.compared, None)
        ):
            partners[line.cell_hash] = left.pop(other.cell_hash)
    pairs = []
    for line in a.lines:
        if (partner := partners.get(line.cell_hash)) is not None:
            pair = known.get(line.cell_hash)
            if pair is None or pair.a is not line or pair.b is not partner:
                pair = pair_of(line, partner, is_sequential=is_sequential)
            pairs.append(pair)
    return SweepComparison(
        pairs=pairs,
        only_a=[line for line in a.lines if line.cell_hash not in partners],
        only_b=list(left.values()),
        is_sequential=is_sequential,
    )


def by_difference(pairs: Sequence[CellPair]) -> list[CellPair]:
    """Return pairs that differ beyond noise first, the most different ones at the top."""

    def rank(pair: CellPair) -> tuple[int, float]:
        if pair.ratio is None:
            return 3, 0.0
        verdict = pair.ratio.is_beyond_noise
        distance = max(pair.ratio.ratio, 1 / pair.ratio.ratio)
        return (0 if verdict else 1 if verdict is None else 2), -distance

    return sorted(pairs, key=rank)


def pair_of(a: CellLine, b: CellLine, *, is_sequential: bool) -> CellPair:
    """Compare what two sweeps measured of a cell; `is_sequential`: see `SweepComparison`."""
    ratio = time_ratio(
        b.times_s,
        a.times_s,
        is_sequential=is_sequential,
        inflations=(b.inflation, a.inflation),
    )
    return CellPair(a=a, b=b, ratio=ratio)
