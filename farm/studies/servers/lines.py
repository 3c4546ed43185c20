"""Groups the servers study's runs into one line for each strategy, and writes their tables.

A line is one strategy over the delays; a point of it is one configuration with its runs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.conditions import refuse_other_work
from farm.studies.run_groups import RunGroup, one_kind, ratios, run_groups
from farm.studies.text import MISSING, delay_ms, ms, percent, significant, span, table
from farm.text import display

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
    refuse_other_work(
        gang_runs,
        "model",
        "data set",
        "batch",
        "number of ranks",
        "number of servers",
        "place of the servers",
        "number of epochs",
        compares="two strategies at one model, data set, batch, gang and number of epochs",
    )
    kept = one_kind(known, study="servers")
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


def times_table(lines: ServerLines) -> str:
    """Step and epoch, and how many round trips of its own network a step takes."""
    rows = []
    for point in lines.points:
        ends = point.interval_of("step_time_s")
        rtt_s, step_s = point.median_of("rtt_s"), point.median_of("step_time_s")
        far = point.first.one_way_delay_s > 0
        rows.append(
            [
                *_names(point),
                ms(rtt_s),
                ms(step_s),
                f"{ms(ends[0])} to {ms(ends[1])}" if ends else MISSING,
                f"{step_s / rtt_s:.1f}" if far and step_s and rtt_s else MISSING,
                significant(point.median_of("time_per_epoch_s")),
                significant(point.median_of("throughput_examples_per_s")),
                *[str(len(point.runs)), str(sum(bool(run.flags) for run in point.runs))],
            ]
        )
    titles = (
        *("round trip (ms)", "step (ms)", "95 % interval", "step (round trips)"),
        *("epoch (s)", "examples/s", "runs", "flagged"),
    )
    return table(["strategy", "delay (ms)", *titles], rows)


def idleness_table(lines: ServerLines) -> str:
    """Where a step's time goes on a rank that trains, and how busy the server is."""
    rows = []
    for point in lines.points:
        idle = point.median_of("idle_ratio")
        step_s = point.median_of("step_time_s")
        computing_s = None if idle is None or step_s is None else (1 - idle) * step_s
        rows.append(
            [
                *_names(point),
                share(idle),
                ms(computing_s),
                ms(point.median_of("push_s")),
                ms(point.median_of("pull_s")),
                percent(point.median_of("cpu_ratio")),
                percent(point.median_of("server_cpu_ratio")),
            ]
        )
    titles = ("idle", "computing (ms)", "push (ms)", "pull (ms)", "rank's core", "server's core")
    return table(["strategy", "delay (ms)", *titles], rows)


def accuracy_table(lines: ServerLines) -> str:
    """What was learnt from the same examples, by how many updates, and how late they came."""
    alone = [lines.alone[batch] for batch in sorted(lines.alone, reverse=True)]
    rows = []
    for point in [*lines.points, *alone]:
        ends = point.span_of("accuracy")
        rows.append(
            [
                *_names(point),
                _whole(point.median_of("update_count") or _steps(point)),
                percent(point.median_of("accuracy")),
                span(map(percent, ends)) if ends else MISSING,
                significant(point.median_of("training_loss")),
                significant(point.median_of("test_loss")),
                staleness(point),
            ]
        )
    titles = ("updates", "accuracy", "least to most", "training loss", "test loss", "staleness")
    return table(["strategy", "delay (ms)", *titles], rows)


def share(ratio: float | None) -> str:
    """Write a ratio near 1 in percent, with the decimals in which it differs."""
    return display.plain(display.percent(ratio, 2))


def staleness(point: RunGroup) -> str:
    """Write how many updates of others came in between, on average and at most."""
    mean, most = point.mean_of("staleness_mean"), point.span_of("staleness_max")
    if mean is None or most is None:
        return MISSING
    return f"{significant(mean)} (at most {most[1]:.0f})"


def _names(point: RunGroup) -> list[str]:
    first = point.first
    if first.world_size == 1 and not first.server_count:
        return [f"{NAMES[first.strategy or '']}, batch {first.global_batch_size}", MISSING]
    return [f"`{first.strategy}`", delay_ms(first.one_way_delay_s)]


def _steps(point: RunGroup) -> float | None:
    """One machine alone makes an update in every step of its epochs."""
    steps, epochs = point.median_of("steps_per_epoch"), point.median_of("epochs")
    return None if steps is None or epochs is None else steps * epochs


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"
