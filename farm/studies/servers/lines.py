"""Groups the servers study's runs into one line for each strategy.

A line is one strategy over the delays; a point of it is one configuration with its runs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.conditions import epochs_of, refuse_other_work
from farm.studies.pairs import ratios
from farm.studies.run_groups import RunGroup, one_kind, run_groups

SYNC, ASYNC, ALONE = "ps_sync", "ps_async", "single"
NAMES = {SYNC: "synchronous", ASYNC: "asynchronous", ALONE: "one machine"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLines:
    """`gangs`: by strategy its points, the shortest delay first; `alone`: by batch one machine."""

    runs: tuple[StudyRun, ...]
    gangs: dict[str, tuple[RunGroup, ...]]
    alone: dict[int, RunGroup]

    @property
    def points(self) -> list[RunGroup]:
        """All points of both strategies, the synchronous one's first."""
        return [point for line in self.gangs.values() for point in line]

    @property
    def first(self) -> StudyRun:
        """Return a gang's run, to ask what all of them have in common."""
        return self.points[0].first

    def at(self, strategy: str, delay_s: float) -> RunGroup | None:
        """Return the point of a strategy at a delay; None if it was not measured."""
        line = self.gangs.get(strategy, ())
        return next((one for one in line if one.first.one_way_delay_s == delay_s), None)

    @property
    def delays_s(self) -> list[float]:
        """Return every delay at which a gang was measured."""
        return sorted({point.first.one_way_delay_s for point in self.points})

    @property
    def waiting_ratios(self) -> dict[float, list[float]]:
        """By delay how many times as long as an asynchronous step a synchronous one takes."""
        found = {}
        for delay_s in self.delays_s:
            sync, asynchronous = self.at(SYNC, delay_s), self.at(ASYNC, delay_s)
            if sync is not None and asynchronous is not None:
                found[delay_s] = ratios(sync, asynchronous, "step_time_s")
        return {delay_s: values for delay_s, values in found.items() if values}

    def alone_like(self, strategy: str) -> RunGroup | None:
        """Return the one machine whose updates have as many examples as the strategy's have."""
        batch = self.first.global_batch_size
        if strategy == ASYNC:
            batch //= self.first.world_size
        return self.alone.get(batch)


def server_lines(runs: Sequence[StudyRun]) -> ServerLines:
    """Sort the runs of the study.

    Raises:
        FarmError: no gang has a time, or the gangs did not do the same work.
    """
    known = [run for run in runs if run.strategy in NAMES]
    gang_runs = [run for run in known if run.strategy != ALONE]
    _refuse_other_work(gang_runs)
    kept = one_kind(known)
    groups = run_groups(kept, ("strategy", "global_batch_size", "one_way_delay_s"))
    gangs = {
        strategy: tuple(group for group in groups if group.first.strategy == strategy)
        for strategy in (SYNC, ASYNC)
    }
    gangs = {strategy: line for strategy, line in gangs.items() if line}
    if not gangs:
        raise FarmError("the servers study has no measured gang to show")
    common = next(iter(gangs.values()))[0].first
    alone = {
        group.first.global_batch_size: group
        for group in groups
        if group.first.strategy == ALONE
        and (group.first.model, group.first.dataset) == (common.model, common.dataset)
    }
    return ServerLines(runs=tuple(kept), gangs=gangs, alone=alone)


def _refuse_other_work(runs: Sequence[StudyRun]) -> None:
    """Its points are distinguished by strategy and delay alone: other work would be pooled."""
    refuse_other_work(
        {
            "model": {run.model for run in runs},
            "data set": {run.dataset for run in runs},
            "batch": {run.global_batch_size for run in runs},
            "number of ranks": {run.world_size for run in runs},
            "number of servers": {run.server_count for run in runs},
            "place of the servers": {run.server_placement for run in runs},
            "number of epochs": epochs_of(runs),
        },
        compares="two strategies at one model, data set, batch, gang and number of epochs",
    )
