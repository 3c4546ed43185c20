"""Published and own step times by batch size, machines and delay. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from farm.importers.anwar2021 import STEPS_PER_EPOCH
from farm.measuring.imported import ImportedMeasurement
from farm.measuring.measurement import OK
from farm.measuring.study_run import StudyRun
from farm.statistics import LineFit, fit_line
from farm.studies.orderings import Placed
from farm.studies.run_groups import run_groups

MACHINE_CELL_AXES = ("global_batch_size", "world_size", "one_way_delay_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCell:
    """The step time of one configuration, in seconds.

    `trips`: of each run behind it the round trip that it had, and its step time, both in seconds.
    """

    world_size: int
    batch: int
    delay_s: float
    step_time: Placed
    trips: tuple[tuple[float, float], ...]

    @property
    def epoch_time(self) -> Placed:
        """The time of as many steps as the published study calls an epoch."""
        return self.step_time.scaled(STEPS_PER_EPOCH)

    @property
    def example_time(self) -> Placed:
        return self.step_time.scaled(1 / self.batch)

    def may_be_as_fast_as(self, other: MachineCell) -> bool:
        """Whether the intervals leave open which is faster; without them nothing is open."""
        if self.step_time.low is None or other.step_time.high is None:
            return self.step_time.value == other.step_time.value
        return self.step_time.low <= other.step_time.high


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
        return {(cell.world_size, cell.batch, cell.delay_s): cell for cell in self.cells}

    @cached_property
    def batches(self) -> list[int]:
        return sorted({cell.batch for cell in self.cells})

    @cached_property
    def delays_s(self) -> list[float]:
        return sorted({cell.delay_s for cell in self.cells})

    @cached_property
    def world_sizes(self) -> list[int]:
        return sorted({cell.world_size for cell in self.cells})

    @property
    def gangs(self) -> list[MachineCell]:
        """All cells of several machines."""
        return [cell for cell in self.cells if cell.world_size > 1]

    @property
    def large_batch(self) -> int | None:
        """The largest batch size that one machine was measured with, too."""
        return max((cell.batch for cell in self.cells if cell.world_size == 1), default=None)

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
        if not any(cell.world_size > 1 for cell in cells):
            return None
        best = min(cells, key=lambda cell: cell.step_time.value)
        others = (c.world_size for c in cells if c is not best and c.may_be_as_fast_as(best))
        alone = self.cell(1, batch, delay_s)
        return Fastest(
            world_size=best.world_size,
            others=tuple(others),
            speedup=None if alone is None else alone.step_time.value / best.step_time.value,
        )

    def all_fastest(self) -> dict[tuple[int, float], Fastest]:
        """Return the fastest by batch and delay, wherever one machine was measured as well."""
        found = {(b, s): self.fastest(b, s) for b in self.batches for s in self.delays_s}
        return {place: one for place, one in found.items() if one and one.speedup is not None}

    def round_trips(self, world_size: int, batch: int) -> LineFit | None:
        """Fit t = a + r RTT: its slope r is how many round trips a step waits for."""
        cells = [self.cell(world_size, batch, delay_s) for delay_s in self.delays_s]
        pairs = [pair for cell in cells if cell is not None for pair in cell.trips]
        return fit_line(pairs) if world_size > 1 else None


def published_times(measurements: Iterable[ImportedMeasurement]) -> CellTimes:
    """Return the measurements that have a time, by cell.

    A round trip is taken for twice the delay, since the source does not say what was measured. One
    machine's time is stored without a delay, as it needs no network.
    """
    return CellTimes(
        tuple(
            _cell(
                {name: one[name] for name in MACHINE_CELL_AXES},
                Placed(at={}, value=one["step_time_s"]),
                [(2 * one["one_way_delay_s"], one["step_time_s"])],
            )
            for one in measurements
            if one.status == OK and one["step_time_s"] is not None
        )
    )


def own_times(runs: Sequence[StudyRun]) -> CellTimes:
    """Take the medians over the runs of each configuration, with their intervals."""
    timed = (
        (group, group.placed("step_time_s", ())) for group in run_groups(runs, MACHINE_CELL_AXES)
    )
    return CellTimes(
        tuple(
            _cell({name: group.first[name] for name in MACHINE_CELL_AXES}, time, group.trips)
            for group, time in timed
            if time is not None
        )
    )


def _cell(of: Mapping[str, Any], time: Placed, trips: Iterable[tuple[float, float]]) -> MachineCell:
    at = {
        "world_size": of["world_size"],
        "delay_s": of["one_way_delay_s"],
        "batch": of["global_batch_size"],
    }
    return MachineCell(**at, step_time=dataclasses.replace(time, at=at), trips=tuple(trips))
