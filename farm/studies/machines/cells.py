"""Published and own step times by batch size, machines and delay. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from farm.importers.anwar2021 import STEPS_PER_EPOCH
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.statistics import LineFit, fit_line
from farm.studies.run_groups import RunGroup, run_groups

# Of the published study, at every batch size, whatever the size of the data set.


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCell:
    """The step time of one configuration, that `of` has.

    `low_s` to `high_s` is its 95 % interval, None where nothing tells it. `trips`: of each run
    behind it the round trip that it had, and its step time, both in seconds.
    """

    of: StudyRun | ImportedMeasurement
    step_time_s: float
    low_s: float | None = None
    high_s: float | None = None
    trips: tuple[tuple[float, float], ...] = ()

    @property
    def epoch_s(self) -> float:
        """The time of as many steps as the published study calls an epoch."""
        return STEPS_PER_EPOCH * self.step_time_s

    def may_be_as_fast_as(self, other: MachineCell) -> bool:
        """Whether the intervals leave open which is faster; without them nothing is open."""
        if self.low_s is None or other.high_s is None:
            return self.step_time_s == other.step_time_s
        return self.low_s <= other.high_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """The gang with the shortest step at a batch size and a delay.

    `others`: numbers of machines that may be as fast. `speedup`: over one machine, None where that
    was not measured.
    """

    world_size: int
    others: tuple[int, ...]
    speedup: float | None


@dataclass(frozen=True)
class CellTimes:
    """All cells of one source. One machine needs no network: its time holds at every delay."""

    cells: tuple[MachineCell, ...]

    @cached_property
    def _by_place(self) -> dict[tuple[int, int, float], MachineCell]:
        return {
            (
                c.of.world_size,
                c.of.global_batch_size,
                c.of.one_way_delay_s,
            ): c
            for c in self.cells
        }

    @cached_property
    def batches(self) -> list[int]:
        return sorted({cell.of.global_batch_size for cell in self.cells})

    @cached_property
    def delays_s(self) -> list[float]:
        return sorted({cell.of.one_way_delay_s for cell in self.cells})

    @cached_property
    def world_sizes(self) -> list[int]:
        return sorted({cell.of.world_size for cell in self.cells})

    @property
    def large_batch(self) -> int | None:
        """The largest batch size that one machine was measured with, too."""
        known = [cell.of.global_batch_size for cell in self.cells if cell.of.world_size == 1]
        return max(known, default=None)

    def cell(self, world_size: int, batch: int, delay_s: float) -> MachineCell | None:
        """Return what was measured there, or None."""
        return self._by_place.get((world_size, batch, 0.0 if world_size == 1 else delay_s))

    def beside(self, batch: int, delay_s: float) -> list[MachineCell]:
        """Return all numbers of machines at a batch size and a delay, the fewest first."""
        found = (self.cell(size, batch, delay_s) for size in self.world_sizes)
        return [cell for cell in found if cell is not None]

    def fastest(self, batch: int, delay_s: float) -> Fastest | None:
        """Return which number of machines is the fastest; None where no gang was measured."""
        cells = self.beside(batch, delay_s)
        if not any(cell.of.world_size > 1 for cell in cells):
            return None
        best = min(cells, key=lambda cell: cell.step_time_s)
        alone = self.cell(1, batch, delay_s)
        return Fastest(
            world_size=best.of.world_size,
            others=tuple(
                c.of.world_size for c in cells if c is not best and c.may_be_as_fast_as(best)
            ),
            speedup=None if alone is None else alone.step_time_s / best.step_time_s,
        )

    def slowdown(self, world_size: int, batch: int, delay_s: float) -> float | None:
        """Return the step time under a delay over that without any."""
        with_delay = self.cell(world_size, batch, delay_s)
        without = self.cell(world_size, batch, 0.0)
        if with_delay is None or without is None or delay_s == 0:
            return None
        return with_delay.step_time_s / without.step_time_s

    def round_trips(self, world_size: int, batch: int) -> LineFit | None:
        """Fit t = a + r RTT: its slope r is how many round trips a step waits for."""
        cells = [self.cell(world_size, batch, delay_s) for delay_s in self.delays_s]
        pairs = [pair for cell in cells if cell is not None for pair in cell.trips]
        return fit_line(pairs) if world_size > 1 else None


def published_times(measurements: Iterable[ImportedMeasurement]) -> CellTimes:
    """Take what has a time. A round trip is twice the delay: nobody says what it was measured as.

    One machine's time is stored without a delay, as it needs no network.
    """
    cells = [
        MachineCell(
            of=one,
            step_time_s=one.step_time_s,
            trips=((2 * one.one_way_delay_s, one.step_time_s),),
        )
        for one in measurements
        if one.status == OK and one.step_time_s is not None
    ]
    return CellTimes(tuple(cells))


def own_times(runs: Sequence[StudyRun]) -> CellTimes:
    """Take the medians over the runs of each configuration, with their intervals."""
    cells = [_cell(group) for group in groups_of(runs)]
    return CellTimes(tuple(cell for cell in cells if cell is not None))


def groups_of(runs: Sequence[StudyRun]) -> list[RunGroup]:
    """Put runs of the same configuration together."""
    return run_groups(runs, ("global_batch_size", "world_size", "one_way_delay_s"))


def _cell(group: RunGroup) -> MachineCell | None:
    step_time_s = group.median_of("step_time_s")
    if step_time_s is None:
        return None
    low_s, high_s = group.interval_of("step_time_s") or (None, None)
    return MachineCell(
        of=group.first,
        step_time_s=step_time_s,
        low_s=low_s,
        high_s=high_s,
        trips=tuple(
            (run.rtt_s, run.step_time_s)
            for run in group.runs
            if run.rtt_s is not None and run.step_time_s is not None
        ),
    )
