"""The processes study: one process on one core against several, and its page.

No measurements of this study were published with their numbers, so the claims are theory alone.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from farm.charts.chart import Bars, BarSeries, ChartAxis, Figure
from farm.charts.files.bars import draw_bars
from farm.charts.files.charts import draw_charts
from farm.measuring.study_run import StudyRun
from farm.studies import conditions, tables
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LoopbackAgents, Page, Study, write_page
from farm.studies.orderings import Coordinates, Ordering, Placed, claims_table
from farm.studies.run_groups import (
    RunGroup,
    by_verdict,
    differences,
    level,
    one_kind,
    placed_of,
    ratios_along,
    run_groups,
    values_series,
)
from farm.studies.text import MISSING, listing, ms, percent, significant, span, whole
from farm.text import display
from farm.text.plurals import counted

ORDERINGS = (
    Ordering(
        says="a larger batch makes an epoch shorter",
        of="time_per_epoch_s",
        along="batch",
        is_rising=False,
        because="An epoch has the same examples at any batch. A larger one saves steps, and with "
        "them what a step costs beside its examples; once that is little, or the examples no "
        "longer fit the processor's caches, nothing is left to save.",
    ),
    Ordering(
        says="processes on a core each make an epoch shorter than one does",
        of="time_by_processes_s",
        along="processes",
        is_rising=False,
        because="Each computes on its share of the batch, but every step ends with an exchange of "
        "all gradients, which costs the same however short the computing was. Here it takes part "
        "of the very cores that compute.",
    ),
    Ordering(
        says="the larger the batch, the more several processes gain",
        of="speed_up",
        along="batch",
        is_rising=True,
        because="The exchange weighs less beside more computing; where the gain is close to its "
        "limit already, or both are disturbed, there is no more of it.",
    ),
    Ordering(
        says="two replicas in a process of one core gain nothing",
        of="time_by_replicas_s",
        along="replicas",
        is_rising=True,
        because="They take turns on the core. Two halves of a large batch may fit its caches where "
        "the whole does not.",
    ),
    Ordering(
        says="after the same epochs, a larger batch leaves a larger loss",
        of="test_loss",
        along="batch",
        is_rising=True,
        because="It makes fewer updates of the same size. Once a training is over, or where many "
        "small updates overshoot, the number of updates no longer decides.",
    ),
    Ordering(
        says="after the same epochs, a larger batch is less accurate",
        of="accuracy",
        along="batch",
        is_rising=False,
        because="It makes fewer updates of the same size. Once a training is over, or where many "
        "small updates overshoot, the number of updates no longer decides.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUps:
    """`lines`: by the name of a set-up, and by batch size, what was measured with it.

    A set-up is so many processes and replicas; the one with fewest comes first.
    """

    runs: tuple[StudyRun, ...]
    lines: dict[str, dict[int, RunGroup]]

    @property
    def alone(self) -> str | None:
        """Return the one process with one replica, if it is there."""
        first = self.points[0]
        return set_up(first) if first.world_size * first.first["replicas_per_rank"] == 1 else None

    @property
    def others(self) -> list[str]:
        return [name for name in self.lines if name != self.alone]

    @property
    def points(self) -> list[RunGroup]:
        return [point for line in self.lines.values() for point in line.values()]

    @property
    def batches(self) -> list[int]:
        """Return every batch size that anything was measured at."""
        return sorted({point.global_batch_size for point in self.points})

    def speed_ups(self, name: str) -> dict[int, list[float]]:
        """Return by batch and repetition the epoch time of one process over that of a set-up."""
        alone = self.lines.get(self.alone or "", {})
        return ratios_along(alone, self.lines[name], "time_per_epoch_s")

    def losses_apart(self, one: str, other: str) -> dict[int, float]:
        """Return by batch how far the test losses of the same seed are apart at most, as a ratio.

        Over the other's smallest loss, so that no seed is more apart than is said.
        """
        found = {}
        for batch, reference in self.lines[other].items():
            losses, point = reference.values_of("test_loss"), self.lines[one].get(batch)
            apart = differences(point, reference, "test_loss") if point else []
            if apart and losses[0] > 0:
                found[batch] = max(apart) / losses[0]
        return found


def set_up(point: RunGroup) -> str:
    """Name the processes and replicas of a configuration."""
    first = point.first
    processes = counted(first["world_size"], "process", "processes")
    if first["replicas_per_rank"] > 1:
        each = "" if first["world_size"] == 1 else " each"
        processes += f" with {first['replicas_per_rank']} replicas{each}"
    return f"{processes} ({first['strategy'] or '?'})"


def set_ups(runs: Sequence[StudyRun]) -> SetUps:
    """Sort the runs of the study.

    Raises:
        FarmError: no run has a time, or the runs are not of the same work.
    """
    refuse_other_work(
        runs,
        *("model", "data set", "number of epochs"),
        compares="numbers of processes at one model, data set and number of epochs",
    )
    kept = one_kind(runs, study="processes")
    axes = ("world_size", "replicas_per_rank", "strategy", "global_batch_size")
    lines: dict[str, dict[int, RunGroup]] = {}
    for point in run_groups(kept, axes):
        lines.setdefault(set_up(point), {})[point.global_batch_size] = point
    return SetUps(runs=tuple(kept), lines=lines)


def processes_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no run has a time, or the runs are not of the same work.
    """
    found = set_ups(runs)
    texts = conditions.texts(runs, found.runs, found.points, of="rank") | {
        "parameters": whole(found.runs[0].parameter_count),
        "set_ups": listing(list(found.lines)),
        "cores": _cores(found),
        "findings": conditions.findings(found.runs, lambda some: _findings(set_ups(some))),
        "times": _times_table(found),
        "learning": _learning_table(found),
        "claims": claims_table(
            ORDERINGS,
            own=conditions.of_undisturbed(found.runs, lambda some: claimed_values(set_ups(some))),
        ),
    }
    return write_page(
        "processes",
        texts,
        Drawing("processes-time", partial(draw_charts, time_figures(found), columns=2)),
        Drawing("processes-learning", partial(draw_bars, learning_bars(found), columns=2)),
    )


def _cores(found: SetUps) -> str:
    """Say how many cores each set-up had, as its agents told."""
    parts = []
    for name, line in found.lines.items():
        counts = sorted({run.core_count for point in line.values() for run in point.runs})
        cores = span(map(str, counts))
        parts.append(f"{name} had {cores} {'core' if cores == '1' else 'cores'}")
    return listing(parts)


def _findings(found: SetUps) -> list[str]:
    """Return one line for each that the runs tell."""
    return [
        *(line for name in found.others for line in _speed_ups(found, name)),
        *_batches(found),
        *(line for name in found.others for line in _same_losses(found, name)),
        *_same_shares(found),
        *_accuracies(found),
    ]


def _speed_ups(found: SetUps, name: str) -> list[str]:
    """Which batches are faster than with one process, slower, or neither for sure."""
    verdicts = by_verdict(
        {f"with a batch of {b}": values for b, values in found.speed_ups(name).items()},
        equal="as fast as 1 process within what repetitions differ by",
        more="faster than 1 process",
        less="slower than 1 process",
    )
    parts = [f"{verdict}: {listing(batches)}" for verdict, batches in verdicts.items()]
    return [f"**{name}** goes through an epoch {'; '.join(parts)}."] if parts else []


def _batches(found: SetUps) -> list[str]:
    parts = []
    for name, line in found.lines.items():
        near, far = line[min(line)], line[max(line)]
        small_s, large_s = near.median_of("time_per_epoch_s"), far.median_of("time_per_epoch_s")
        if near is not far and small_s and large_s:
            parts.append(f"{significant(small_s / large_s)} times with {name}")
    if not parts:
        return []
    return [
        f"An epoch of batch {found.batches[0]} takes so many times as long as one of batch "
        f"{found.batches[-1]}: {listing(parts)}."
    ]


def _same_losses(found: SetUps, name: str) -> list[str]:
    """Whether the same seeds give the same loss as one process does, by batch."""
    apart = found.losses_apart(name, found.alone) if found.alone else {}
    if not apart:
        return []
    parts = [f"{small(most)} with a batch of {batch}" for batch, most in apart.items()]
    return [
        f"Of the same seed the test loss of {name} is away from that of {found.alone} by at most "
        f"{listing(parts)}."
    ]


def _same_shares(found: SetUps) -> list[str]:
    """Whether it matters who computes the same shares of a batch: one process or several."""
    text = []
    for one, other in itertools.combinations(found.others, 2):
        shares, of_other = _shares(found, one), _shares(found, other)
        apart = found.losses_apart(one, other)
        if shares != of_other or not apart:
            continue
        most = max(apart.values())
        text.append(
            f"{one} and {other} cut a batch into the same {shares} shares."
            " Of the same seed and batch their test losses "
            + ("are equal to the last digit." if most == 0 else f"differ by at most {small(most)}.")
        )
    return text


def _accuracies(found: SetUps) -> list[str]:
    parts = [
        f"{percent(accuracy)} with a batch of {batch}"
        for batch, point in next(iter(found.lines.values())).items()
        if (accuracy := point.median_of("accuracy")) is not None
    ]
    return [f"After the same epochs the accuracy is {listing(parts)}."] if parts else []


def _shares(found: SetUps, name: str) -> int:
    """Return into how many shares a set-up cuts a batch."""
    point = next(iter(found.lines[name].values()))
    return cast(int, point.world_size * point.first["replicas_per_rank"])


def small(ratio: float) -> str:
    """Write a ratio that may be tiny in percent, with two digits that tell something."""
    if ratio == 0:
        return "0"
    if ratio < 1e-5:
        return "less than 0.001 %"
    return percent(ratio) if ratio >= 0.001 else display.percent_in_digits(ratio, 2)


_NAMES: tuple[tables.GroupColumn, ...] = (
    ("set-up", set_up),
    ("batch", lambda point: str(point.global_batch_size)),
)


def _times_table(found: SetUps) -> str:
    """Step and epoch of each set-up, and how many times as fast it is as one process."""

    def speed_up(point: RunGroup) -> str:
        values = found.speed_ups(set_up(point)).get(point.global_batch_size)
        if not values or set_up(point) == found.alone:
            return MISSING
        return significant(statistics.median(values))

    columns: list[tables.GroupColumn] = [
        tables.median("step (ms)", "step_time_s", ms),
        tables.median("epoch (s)", "time_per_epoch_s", significant),
        tables.interval("time_per_epoch_s", significant),
        ("times as fast", speed_up),
        tables.median("core", "cpu_ratio", percent),
        tables.RUNS_COLUMN,
        tables.FLAGGED_COLUMN,
    ]
    return tables.table_of(found.points, [*_NAMES, *columns])


def _learning_table(found: SetUps) -> str:
    """Loss and accuracy of each set-up, and how far from one process with the same seed."""

    def apart(point: RunGroup) -> str:
        if found.alone is None or set_up(point) == found.alone:
            return MISSING
        most = found.losses_apart(set_up(point), found.alone).get(point.global_batch_size)
        return MISSING if most is None else small(most)

    columns: list[tables.GroupColumn] = [
        # All of these set-ups are synchronous: an update in every step.
        ("updates", lambda point: str(point.step_count or MISSING)),
        tables.median("training loss", "training_loss", significant),
        tables.median("test loss", "test_loss", significant),
        tables.median("accuracy", "accuracy", percent),
        tables.least_to_most("accuracy", percent),
        ("test loss apart", apart),
    ]
    return tables.table_of(found.points, [*_NAMES, *columns])


def claimed_values(found: SetUps) -> dict[str, list[Placed]]:
    """Return the medians that the claims are about, by the name of the value."""
    one_replica_each = [point for point in found.points if point.first["replicas_per_rank"] == 1]
    one_process = [point for point in found.points if point.world_size == 1]
    gangs = dict.fromkeys(set_up(p) for p in found.points if p.world_size > 1)
    return {
        "time_per_epoch_s": _placed("time_per_epoch_s", found.points),
        "time_by_processes_s": _placed("time_per_epoch_s", one_replica_each, "processes"),
        "time_by_replicas_s": _placed("time_per_epoch_s", one_process, "replicas"),
        "speed_up": [
            placed
            for name in gangs
            for batch, values in found.speed_ups(name).items()
            if (placed := placed_of(values, {"set_up": name, "batch": batch}))
        ],
        "test_loss": _placed("test_loss", found.points),
        "accuracy": _placed("accuracy", found.points),
    }


def _placed(column: str, points: Iterable[RunGroup], by: str = "set_up") -> list[Placed]:
    found = []
    for point in points:
        axes: Coordinates = {
            "set_up": set_up(point),
            "processes": point.world_size,
            "replicas": point.first["replicas_per_rank"],
        }
        at = {"batch": point.global_batch_size, by: axes[by]}
        placed = placed_of([value for value in point.values_of(column) if value > 0], at)
        if placed is not None:
            found.append(placed)
    return found


def time_figures(found: SetUps) -> list[Figure]:
    """Time per epoch, and the speed-up over one process, against batch size."""
    # One process looks the same in every panel, whether it is there or not.
    styles = {name: i for i, name in enumerate(found.lines, start=found.alone is None)}
    ends = (found.batches[0], found.batches[-1])
    batch_axis = ChartAxis(title="global batch", write=_whole, is_log=True, is_counted=True)
    epoch_times = [
        values_series(
            name,
            {batch: point.values_of("time_per_epoch_s") for batch, point in line.items()},
            style=styles[name],
        )
        for name, line in found.lines.items()
    ]
    speed_ups = [
        values_series(name, found.speed_ups(name), style=styles[name]) for name in found.others
    ]
    if found.alone:
        speed_ups = [level(found.alone, y=1.0, x=ends, style=0), *speed_ups]
    return [
        Figure(
            title="time per epoch",
            summary="Time per epoch against batch size, a line for each set-up.",
            x=batch_axis,
            y=ChartAxis(title="time per epoch", write=display.duration, is_log=True),
            series=epoch_times,
        ),
        Figure(
            title="speed-up over 1 process",
            summary="Epoch time of one process over that of each set-up, against batch size.",
            x=batch_axis,
            y=ChartAxis(title="times as fast"),
            series=speed_ups,
        ),
    ]


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def learning_bars(found: SetUps) -> list[Bars]:
    """Loss and accuracy on the test split by batch size: equal bars are equal trainings."""
    return [
        _bars(found, "test_loss", ChartAxis(title="test loss", write=display.decimal)),
        _bars(found, "accuracy", ChartAxis(title="test accuracy", write=display.percent)),
    ]


def _bars(found: SetUps, column: str, y: ChartAxis) -> Bars:
    return Bars(
        title=y.title,
        summary=f"The {y.title} after the last epoch by batch size, a bar for each set-up.",
        x="global batch",
        y=y,
        groups=[str(batch) for batch in found.batches],
        series=[
            BarSeries(
                name=name,
                marks=[
                    line[batch].mark(column, x=place) if batch in line else None
                    for place, batch in enumerate(found.batches)
                ],
            )
            for name, line in found.lines.items()
        ],
    )


PROCESSES = Study(
    name="processes",
    summary="one process against two by batch size: time, loss and accuracy, without root",
    place=LoopbackAgents(2),
    page_file="studies/processes.md",
    page=processes_page,
)
