"""The processes study: one process on one core against several, and its page."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.chart import Bars, BarSeries, ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.bars import draw_bars
from farm.charts.files.charts import draw_charts
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, LoopbackAgents, Page, Study
from farm.studies.orderings import claims_table
from farm.studies.processes.set_ups import CLAIMS, SetUp, SetUps, claimed_values, set_ups
from farm.studies.run_groups import RunGroup, differences, mark_of, study_interval
from farm.studies.text import MISSING, kb, listing, ms, percent, significant, span, table, whole
from farm.text import display


def processes_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: no run has a time, or the runs are not of the same work.
    """
    found = set_ups(runs)
    template = Template(files("farm.studies.processes").joinpath("page.md").read_text())
    text = template.substitute(
        **_set_up(found),
        **_method(runs, found),
        findings=conditions.findings(found.runs, lambda some: _findings(set_ups(some))),
        verdicts_rest_on=conditions.verdicts_rest_on(found.runs),
        times=_times_table(found),
        learning=_learning_table(found),
        claims=claims_table(
            CLAIMS,
            own=conditions.of_undisturbed(found.runs, lambda some: claimed_values(set_ups(some))),
        ),
    )
    return Page(
        text=text,
        drawings=(
            Drawing("processes-time", partial(draw_charts, time_figures(found), columns=2)),
            Drawing("processes-learning", partial(draw_bars, learning_bars(found), columns=2)),
        ),
    )


def _set_up(found: SetUps) -> dict[str, str]:
    first = found.runs[0]
    gradients = max((run.gradient_bytes or 0 for run in found.runs), default=0)
    return {
        "model": f"`{first.model}`",
        "dataset": f"`{first.dataset}`",
        "parameters": whole(first.parameter_count),
        "gradients": kb(gradients),
        "epochs": "1 epoch" if first.epochs == 1 else f"{first.epochs or MISSING} epochs",
        "batches": listing([str(batch) for batch in found.batches]),
        "set_ups": listing([one.name for one in found.all]),
    }


def _method(runs: Sequence[StudyRun], found: SetUps) -> dict[str, str]:
    counts = sorted(len(point.runs) for one in found.all for point in one.points)
    steps = sorted({run.timed_step_count for run in found.runs if run.timed_step_count})
    return {
        "machine": conditions.machine(found.runs),
        "cores": _cores(found),
        "count": str(len(found.runs)),
        "repetitions": span(map(str, counts)),
        "timed": span(map(str, steps)),
        "noise": conditions.noise(found.runs, of="rank"),
        "left_out": conditions.left_out(runs, found.runs),
    }


def _cores(found: SetUps) -> str:
    """Say how many cores each set-up had, as its agents told."""
    parts = []
    for one in found.all:
        counts = sorted({run.core_count for point in one.points for run in point.runs})
        cores = span(map(str, counts))
        parts.append(f"{one.name} had {cores} {'core' if cores == '1' else 'cores'}")
    return listing(parts)


def _findings(found: SetUps) -> list[str]:
    """Return one line for each that the runs tell."""
    return [
        *(line for one in found.others for line in _speed_ups(found, one)),
        *_batches(found),
        *(line for one in found.others for line in _same_losses(found, one)),
        *_same_shares(found),
        *_accuracies(found),
    ]


def _speed_ups(found: SetUps, one: SetUp) -> list[str]:
    """Which batches are faster than with one process, slower, or neither for sure."""
    by_verdict: dict[str, list[str]] = {}
    for batch in found.batches:
        values = found.speed_ups(one, batch)
        if not values:
            continue
        interval = study_interval(values)
        middle = statistics.median(values)
        if interval is None or interval.low_s <= 1 <= interval.high_s:
            verdict = "as fast as 1 process within what repetitions differ by"
        else:
            verdict = "faster than 1 process" if middle > 1 else "slower than 1 process"
        by_verdict.setdefault(verdict, []).append(f"{middle:.2f} times with a batch of {batch}")
    if not by_verdict:
        return []
    parts = [f"{verdict}: {listing(batches)}" for verdict, batches in by_verdict.items()]
    return [f"**{one.name}** goes through an epoch {'; '.join(parts)}."]


def _batches(found: SetUps) -> list[str]:
    parts = []
    for one in found.all:
        near, far = one.points[0], one.points[-1]
        small_s, large_s = near.median_of("time_per_epoch_s"), far.median_of("time_per_epoch_s")
        if near is far or not small_s or not large_s:
            continue
        parts.append(f"{significant(small_s / large_s)} times with {one.name}")
    if not parts:
        return []
    first, last = found.batches[0], found.batches[-1]
    return [
        f"An epoch of batch {first} takes so many times as long as one of batch {last}: "
        f"{listing(parts)}."
    ]


def _same_losses(found: SetUps, one: SetUp) -> list[str]:
    """Whether the same seeds give the same loss as one process does, by batch."""
    if found.alone is None:
        return []
    apart = _apart(found, one, found.alone)
    if not apart:
        return []
    parts = [f"{small(most)} with a batch of {batch}" for batch, most in apart.items()]
    return [
        f"Of the same seed the test loss of {one.name} is away from that of {found.alone.name} by"
        f" at most {listing(parts)}."
    ]


def _same_shares(found: SetUps) -> list[str]:
    """Whether it matters who computes the same shares of a batch: one process or several."""
    text = []
    for one, other in itertools.combinations(found.others, 2):
        apart = _apart(found, one, other)
        if one.replica_count != other.replica_count or not apart:
            continue
        most = max(apart.values())
        text.append(
            f"{one.name} and {other.name} cut a batch into the same {one.replica_count} shares."
            " Of the same seed and batch their test losses "
            + ("are equal to the last digit." if most == 0 else f"differ by at most {small(most)}.")
        )
    return text


def _apart(found: SetUps, one: SetUp, other: SetUp) -> dict[int, float]:
    """Return by batch how far two set-ups' losses of the same seed are apart, at most."""
    by_batch = {batch: _losses_apart(one, other, batch) for batch in found.batches}
    return {batch: max(values) for batch, values in by_batch.items() if values}


def _accuracies(found: SetUps) -> list[str]:
    shown = found.alone or found.all[0]
    parts = [
        f"{percent(accuracy)} with a batch of {point.first.global_batch_size}"
        for point in shown.points
        if (accuracy := point.median_of("accuracy")) is not None
    ]
    return [f"After the same epochs the accuracy is {listing(parts)}."] if parts else []


def _times_table(found: SetUps) -> str:
    """Step and epoch of each set-up, and how many times as fast it is as one process."""
    rows = []
    for one, point in _points(found):
        batch = point.first.global_batch_size
        rows.append(
            [
                one.name,
                str(batch),
                ms(point.median_of("step_time_s")),
                significant(point.median_of("time_per_epoch_s")),
                _interval(point.values_of("time_per_epoch_s")),
                _speed_up(found, one, batch),
                percent(point.median_of("cpu_ratio")),
                str(len(point.runs)),
                str(sum(bool(run.flags) for run in point.runs)),
            ]
        )
    titles = (
        *("step (ms)", "epoch (s)", "95 % interval", "times as fast", "core"),
        *("runs", "flagged"),
    )
    return table(["set-up", "batch", *titles], rows)


def _learning_table(found: SetUps) -> str:
    """Loss and accuracy of each set-up, and how far from one process with the same seed."""
    rows = []
    for one, point in _points(found):
        ends = point.span_of("accuracy")
        rows.append(
            [
                one.name,
                str(point.first.global_batch_size),
                str(_updates(point) or MISSING),
                significant(point.median_of("training_loss")),
                significant(point.median_of("test_loss")),
                percent(point.median_of("accuracy")),
                span(map(percent, ends)) if ends else MISSING,
                _apart_from_alone(found, one, point),
            ]
        )
    titles = (
        *("updates", "training loss", "test loss", "accuracy", "least to most"),
        "test loss apart",
    )
    return table(["set-up", "batch", *titles], rows)


def _losses_apart(one: SetUp, other: SetUp, batch: int) -> list[float]:
    """Return, of each seed, by how much the test losses of two set-ups differ, as a ratio.

    Over the other's smallest loss, so that no seed is more apart than is said.
    """
    point, reference = one.at(batch), other.at(batch)
    losses = reference.values_of("test_loss") if reference else []
    if point is None or reference is None or not losses or losses[0] <= 0:
        return []
    return [difference / losses[0] for difference in differences(point, reference, "test_loss")]


def small(ratio: float) -> str:
    """Write a ratio that may be tiny in percent, with two digits that tell something."""
    if ratio == 0:
        return "0"
    if ratio < 1e-5:
        return "less than 0.001 %"
    return percent(ratio) if ratio >= 0.001 else display.percent_in_digits(ratio, 2)


def _points(found: SetUps) -> list[tuple[SetUp, RunGroup]]:
    return [(one, point) for one in found.all for point in one.points]


def _interval(values: list[float]) -> str:
    interval = study_interval(values)
    if interval is None:
        return MISSING
    return f"{significant(interval.low_s)} to {significant(interval.high_s)}"


def _speed_up(found: SetUps, one: SetUp, batch: int) -> str:
    values = found.speed_ups(one, batch)
    if not values or one is found.alone:
        return MISSING
    return significant(statistics.median(values))


def _apart_from_alone(found: SetUps, one: SetUp, point: RunGroup) -> str:
    if found.alone is None or one is found.alone:
        return MISSING
    values = _losses_apart(one, found.alone, point.first.global_batch_size)
    return small(max(values)) if values else MISSING


def _updates(point: RunGroup) -> int | None:
    """All of these set-ups are synchronous: an update in every step."""
    steps, epochs = point.first.steps_per_epoch, point.first.epochs
    return None if steps is None or epochs is None else steps * epochs


def time_figures(found: SetUps) -> list[Figure]:
    """Time per epoch, and the speed-up over one process, against batch size."""
    first, last = found.batches[0], found.batches[-1]
    alone = found.alone
    level = [
        ChartSeries(
            name=one.name,
            marks=[Mark(x=first, y=1.0), Mark(x=last, y=1.0)],
            has_dots=False,
            style=0,
        )
        for one in ([alone] if alone else [])
    ]
    ratios = [
        ChartSeries(
            name=one.name,
            marks=[
                mark
                for batch in found.batches
                if (mark := mark_of(found.speed_ups(one, batch), x=batch))
            ],
            style=_style(found, one),
        )
        for one in found.others
    ]
    return [
        Figure(
            title="time per epoch",
            summary="Time per epoch against batch size, a line for each set-up.",
            x=_batch_axis(),
            y=ChartAxis(title="time per epoch", write=display.duration, is_log=True),
            series=[
                ChartSeries(
                    name=one.name,
                    marks=[
                        mark
                        for point in one.points
                        if (mark := point.mark("time_per_epoch_s", x=point.first.global_batch_size))
                    ],
                    style=_style(found, one),
                )
                for one in found.all
            ],
        ),
        Figure(
            title="speed-up over 1 process",
            summary="Epoch time of one process over that of each set-up, against batch size.",
            x=_batch_axis(),
            y=ChartAxis(title="times as fast"),
            series=[*level, *ratios],
        ),
    ]


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
                name=one.name,
                marks=[
                    point.mark(column, x=place) if (point := one.at(batch)) else None
                    for place, batch in enumerate(found.batches)
                ],
            )
            for one in found.all
        ],
    )


def _batch_axis() -> ChartAxis:
    return ChartAxis(title="global batch", write=_whole, is_log=True, is_counted=True)


def _style(found: SetUps, one: SetUp) -> int:
    """One process looks the same in every panel, whether it is there or not."""
    return found.all.index(one) + (found.alone is None)


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


PROCESSES = Study(
    name="processes",
    summary="one process against two by batch size: time, loss and accuracy, without root",
    place=LoopbackAgents(2),
    page_file="studies/processes.md",
    page=processes_page,
)
