"""Decides which ranks average their weights, and after which steps, counted from 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from farm.configuration.spec import JobSpec

RankGroup: TypeAlias = tuple[int, ...]  # ascending


class AveragingSchedule(Protocol):
    """One rank's view; every rank of a group has the same group after the same step."""

    def groups(self) -> tuple[RankGroup, ...]:
        """Return every group that this rank is ever in, in the order of their first steps."""
        ...

    def group_after(self, step: int) -> RankGroup | None:
        """Return the ranks that average after that step; None where this rank does not."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicAveraging:
    """All ranks average after every `steps_between_averages` steps."""

    world_size: int
    steps_between_averages: int

    @classmethod
    def of(cls, job: JobSpec) -> PeriodicAveraging:
        """Return the schedule that a job asks for."""
        return cls(world_size=job.world_size, steps_between_averages=job.steps_between_averages)

    def groups(self) -> tuple[RankGroup, ...]:
        return (tuple(range(self.world_size)),)

    def group_after(self, step: int) -> RankGroup | None:
        is_due = (step + 1) % self.steps_between_averages == 0
        return tuple(range(self.world_size)) if is_due else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatingNeighbour:
    """After every step each rank averages with one neighbour on a ring, the next one in turn.

    With an even number of ranks the two ways of pairing a ring alternate. With an odd number one
    rank sits out, rank 0 after step 1, rank 1 after step 2 and so on, so that every edge of the
    ring comes up in n steps.
    """

    world_size: int
    rank: int

    def groups(self) -> tuple[RankGroup, ...]:
        found = (self.group_after(step) for step in range(self.world_size))
        return tuple(dict.fromkeys(group for group in found if group is not None))

    def group_after(self, step: int) -> RankGroup | None:
        partner = neighbour_after(step, rank=self.rank, world_size=self.world_size)
        if partner is None:
            return None
        return (min(self.rank, partner), max(self.rank, partner))


def neighbour_after(step: int, *, rank: int, world_size: int) -> int | None:
    """Return the rank on the ring that `rank` averages with after `step`; None: it sits out.

    The pairs begin at rank `step` mod n: it with the next one, then the two after them.
    """
    position = (rank - step) % world_size
    if position == world_size - 1 and world_size % 2 == 1:
        return None
    return (step + (position ^ 1)) % world_size


def collective_seconds_per_step(
    collective_counts: list[int], times_s: tuple[float, ...]
) -> tuple[float, ...] | None:
    """Return each step's seconds inside collectives, of which not every step has one.

    `times_s` is of all collectives in order; the last one's end may be missing from a trace, and
    then its step counts as 0. None where more is missing.
    """
    if len(times_s) < sum(collective_counts) - 1:
        return None
    rest = iter(times_s)
    return tuple(sum(next(rest, 0.0) for _ in range(count)) for count in collective_counts)
