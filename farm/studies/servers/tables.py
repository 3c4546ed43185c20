"""The servers study's tables, in Markdown: a row for each strategy and delay."""

from __future__ import annotations

from farm.studies.run_groups import RunGroup
from farm.studies.servers.lines import NAMES, ServerLines
from farm.studies.text import MISSING, delay_ms, ms, percent, significant, span, table
from farm.text import display


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
                *_counts(point),
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


def _counts(point: RunGroup) -> list[str]:
    return [str(len(point.runs)), str(sum(bool(run.flags) for run in point.runs))]


def _whole(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"
