"""The machines study's tables, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from farm.studies.machines.cells import CellTimes, Fastest
from farm.studies.run_groups import RunGroup
from farm.studies.text import (
    MISSING,
    delay_ms,
    listing,
    ms,
    percent,
    significant,
    span,
    table,
    us,
    whole,
)


def fastest_table(source: CellTimes) -> str:
    """Which number of machines has the shortest step, by batch size and delay."""
    rows = [
        [whole(batch), *(_fastest(source.fastest(batch, delay_s)) for delay_s in source.delays_s)]
        for batch in source.batches
    ]
    return table(["batch", *(f"{delay_ms(delay_s)} ms" for delay_s in source.delays_s)], rows)


def _fastest(found: Fastest | None) -> str:
    if found is None:
        return MISSING
    others = f" or {listing([str(size) for size in found.others])}" if found.others else ""
    gain = ""
    if found.speedup is not None and found.world_size > 1:
        gain = f" ({significant(found.speedup)} x)"
    return f"**{found.world_size}**{others}{gain}"


def trips_table(published: CellTimes, own: CellTimes) -> str:
    """How many round trips a step waits for, by number of machines, in both sources."""
    sizes = sorted({*published.world_sizes, *own.world_sizes} - {1})
    rows = [
        [str(size), str(2 * size - 1), trips_span(published, size), trips_span(own, size)]
        for size in sizes
    ]
    return table(["machines", "2 n - 1", "the study", "here"], rows)


def trips_span(source: CellTimes, world_size: int) -> str:
    """Write the round trips of a step from the batch size with fewest to that with most."""
    fits = (source.round_trips(world_size, batch) for batch in source.batches)
    slopes = sorted(fit.slope for fit in fits if fit is not None)
    return span(f"{slope:.1f}" for slope in slopes)


def configurations_table(groups: Sequence[RunGroup], own: CellTimes) -> str:
    """Every configuration of ours with its median, its interval and its runs."""
    rows = []
    for group in groups:
        first = group.first
        cell = own.cell(first.world_size, first.global_batch_size, first.one_way_delay_s)
        if cell is None:
            continue
        half = None
        if cell.low_s is not None and cell.high_s is not None:
            half = (cell.high_s - cell.low_s) / 2 / cell.step_time_s
        has_network = first.world_size > 1
        rows.append(
            [
                whole(first.global_batch_size),
                str(first.world_size),
                delay_ms(first.one_way_delay_s) if has_network else MISSING,
                ms(group.median_of("rtt_s")) if has_network else MISSING,
                f"{ms(cell.step_time_s)} ± {percent(half)}",
                significant(cell.epoch_s),
                us(cell.step_time_s / first.global_batch_size),
                str(len(group.runs)),
                str(sum(bool(run.flags) for run in group.runs)),
            ]
        )
    titles = ("hosts", "delay (ms)", "RTT (ms)", "step time (ms)", "70 steps (s)")
    return table(["batch", *titles, "per example (µs)", "runs", "flagged"], rows)
