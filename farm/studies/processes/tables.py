"""The processes study's tables, in Markdown: a row for each set-up and batch size."""

from __future__ import annotations

import statistics

from farm.studies.pairs import differences
from farm.studies.processes.set_ups import SetUp, SetUps
from farm.studies.run_groups import RunGroup, study_interval
from farm.studies.text import MISSING, ms, percent, significant, span, table


def times_table(found: SetUps) -> str:
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


def learning_table(found: SetUps) -> str:
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
                _apart(found, one, point),
            ]
        )
    titles = (
        *("updates", "training loss", "test loss", "accuracy", "least to most"),
        "test loss apart",
    )
    return table(["set-up", "batch", *titles], rows)


def losses_apart(one: SetUp, other: SetUp, batch: int) -> list[float]:
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
    return percent(ratio) if ratio >= 0.001 else f"{ratio * 100:.2g} %"


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


def _apart(found: SetUps, one: SetUp, point: RunGroup) -> str:
    if found.alone is None or one is found.alone:
        return MISSING
    values = losses_apart(one, found.alone, point.first.global_batch_size)
    return small(max(values)) if values else MISSING


def _updates(point: RunGroup) -> int | None:
    """All of these set-ups are synchronous: an update in every step."""
    steps, epochs = point.first.steps_per_epoch, point.first.epochs
    return None if steps is None or epochs is None else steps * epochs
