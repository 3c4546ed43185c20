"""How often intervals cover the truth, by simulation: `python -m tests.interval_coverage`.

It prints the tables of docs/measuring.md, which tests/property hold to it; `--write FILE` puts them
between the two markers of a page. Neighbours in time depend on each other as in a first-order
autoregressive process.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.marked_part import MarkedPart
from farm.configuration.sweep import Precision
from farm.measuring.precision import (
    Repetition,
    RepetitionState,
    Run,
    Target,
    Timeline,
    cell_statistics,
    next_repetitions,
)
from farm.statistics import median_interval

PART = MarkedPart("coverage")
SHAPES = ("log-normal", "bimodal", "heavy tails", "skewed")
CORRELATIONS = (0.0, 0.3, 0.6)
CELL_COUNTS = (1, 2, 6)
STEP_COUNTS = (30, 100, 300)
# Of runs, one of them for each sweep: from far below to far above the target of 2 %.
NOISES = (0.005, 0.01, 0.02, 0.04)
CELLS = 240  # simulated for each row and column of the first table
SERIES = 200  # of the second
INDEPENDENT = 1000  # the `spacing` from which on neighbours count as independent
_SLOW_RATIO, _SLOW_BY, _OF_A_MODE = 0.3, 1.5, 0.3  # of bimodal noise
_FREEDOM, _SKEW = 3, 0.8  # Student's degrees of freedom; of ln(1 + noise)


def autoregressive(draw: random.Random, correlation: float) -> Iterator[float]:
    """Yield standard normal values; those k apart correlate by `correlation`^k."""
    value = draw.gauss(0, 1)
    while True:
        yield value
        value = correlation * value + math.sqrt(1 - correlation**2) * draw.gauss(0, 1)


def noise(shape: str, correlation: float, draw: random.Random) -> Iterator[float]:
    """Yield ln(time / median time) in units of the noise, neighbours correlated."""
    middle = _bimodal_median() if shape == "bimodal" else 0.0
    slow_above = statistics.NormalDist().inv_cdf(1 - _SLOW_RATIO)
    for value in autoregressive(draw, correlation):
        if shape == "bimodal":
            mode = _SLOW_BY if value > slow_above else 0.0
            yield mode + draw.gauss(0, _OF_A_MODE) - middle
        elif shape == "heavy tails":
            squares = sum(draw.gauss(0, 1) ** 2 for _ in range(_FREEDOM))
            yield value / math.sqrt(squares / _FREEDOM)
        elif shape == "skewed":
            yield math.exp(_SKEW * value) - 1
        else:
            yield value


def _bimodal_median() -> float:
    mode = statistics.NormalDist(0, _OF_A_MODE)
    low, high = 0.0, _SLOW_BY
    for _ in range(60):
        middle = (low + high) / 2
        below = (1 - _SLOW_RATIO) * mode.cdf(middle) + _SLOW_RATIO * mode.cdf(middle - _SLOW_BY)
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Ended:
    """A simulated cell when its repetitions were over; its true median step time is 1."""

    target: Target | None
    count: int
    is_covered: bool


def run_sweep(
    cell_count: int,
    precision: Precision,
    draw_log: Callable[[], float],
    order: random.Random,
    *,
    spacing: int = 1,
) -> list[Ended]:
    """Simulate a sweep until precision on one machine. `draw_log`: ln(time) of the next run.

    Each round has the cells in an order of its own, and what is added comes after what waits.
    `spacing`: how far apart neighbours are said to be; where it is large they count as independent.
    """
    waiting = [
        cell
        for _ in range(precision.min_repetitions)
        for cell in order.sample(range(cell_count), cell_count)
    ]
    runs: list[tuple[int, str, float]] = []
    cells: list[list[Repetition]] = [[] for _ in range(cell_count)]
    repetitions_wanted = [precision.min_repetitions] * cell_count
    timelines: list[Timeline | None] = [None] * cell_count
    while waiting:
        cell = waiting.pop(0)
        job_id, time_s = len(runs), math.exp(draw_log())
        runs.append((job_id, str(cell), time_s))
        cells[cell].append(
            Repetition(
                job_id=job_id, state=RepetitionState.MEASURED, step_time_s=time_s, fingerprint="x"
            )
        )
        if len(cells[cell]) == repetitions_wanted[cell]:
            timelines[cell] = Timeline(
                Run(
                    job_id=job_id,
                    place=spacing * job_id,
                    cell_hash=cell_hash,
                    fingerprint="x",
                    step_time_s=time_s,
                )
                for job_id, cell_hash, time_s in runs
            )
            more = next_repetitions(cells[cell], precision, timelines[cell])
            repetitions_wanted[cell] += more
            waiting = _by_round([*waiting, *[cell] * more], cells)
    ended = []
    for repetitions, timeline in zip(cells, timelines, strict=True):
        found = cell_statistics(repetitions, precision, timeline)
        assert found.low_s is not None
        assert found.high_s is not None
        is_covered = found.low_s <= 1 <= found.high_s
        ended.append(Ended(found.target, found.count, is_covered))
    return ended


def _by_round(waiting: list[int], cells: list[list[Repetition]]) -> list[int]:
    """Put first what a cell has fewest of, as the scheduler does."""
    counts = [len(repetitions) for repetitions in cells]
    rounds: list[tuple[int, int, int]] = []
    for position, cell in enumerate(waiting):
        rounds.append((counts[cell], position, cell))
        counts[cell] += 1
    return [cell for _, _, cell in sorted(rounds)]


def sweeps(shape: str, correlation: float, cell_count: int, *, spacing: int = 1) -> list[Ended]:
    """Simulate about `CELLS` cells, in sweeps of `cell_count`."""
    draw = random.Random(f"{shape} {correlation} {cell_count}")
    ended: list[Ended] = []
    while len(ended) < CELLS:
        size = NOISES[len(ended) // cell_count % len(NOISES)]
        values = noise(shape, correlation, draw)

        def draw_log(values: Iterator[float] = values, size: float = size) -> float:
            return size * next(values)

        ended += run_sweep(cell_count, Precision(), draw_log, draw, spacing=spacing)
    return ended


def series_coverage(shape: str, correlation: float, step_count: int) -> float:
    """Return how often the interval of a run's median covers the true one.

    Runs whose steps depend on each other for too long to have an interval are left out.
    """
    draw = random.Random(f"{shape} {correlation} {step_count}")
    covered, claimed = 0, 0
    for _ in range(SERIES):
        values = noise(shape, correlation, draw)
        found = median_interval([math.exp(0.1 * next(values)) for _ in range(step_count)])
        if found is not None:
            claimed += 1
            covered += found[0] <= 1 <= found[1]
    assert claimed >= 0.9 * SERIES
    return covered / claimed


def cells_row(shape: str, correlation: float, *, spacing: int = 1) -> tuple[str, list[float]]:
    """Return a line of the table of cells, and the coverages in it."""
    found = [sweeps(shape, correlation, count, spacing=spacing) for count in CELL_COUNTS]
    coverages = [sum(one.is_covered for one in ended) / len(ended) for ended in found]
    counts = [statistics.fmean(one.count for one in ended) for ended in found]
    return _row(shape, correlation, [*map(_percent, coverages), *map("{:.1f}".format, counts)]), (
        coverages
    )


def steps_row(shape: str, correlation: float) -> tuple[str, list[float]]:
    """Return a line of the table of runs, and the coverages in it."""
    coverages = [series_coverage(shape, correlation, count) for count in STEP_COUNTS]
    return _row(shape, correlation, [*map(_percent, coverages)]), coverages


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.1f}"


def _row(shape: str, correlation: float, values: list[str]) -> str:
    return "| " + " | ".join([shape, f"{correlation:g}", *values]) + " |"


def main() -> None:
    """Print the tables, and put them into a page if one is named."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interval_coverage", description=main.__doc__
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this page")
    page: Path | None = parser.parse_args().write
    if page and not PART.is_in(page):
        parser.error(f"--write {page}: expected a page with the two markers of the coverage")
    lines = [*_tables()]
    print("\n".join(lines))
    if page:
        PART.write(page, lines)


def _tables() -> Iterator[str]:
    of_cells = [f"{count} cell{'s' if count > 1 else ''}" for count in CELL_COUNTS]
    needed = [f"needed: {of_cells[0]}", *of_cells[1:]]
    yield from (
        "Cells whose repetitions have stopped (default target and repetitions; noise of 0.5, 1, 2 "
        "and 4 % in equal",
        f"parts; {CELLS} cells each, so that a figure is known to about 1.5): the intervals that "
        "cover, in per cent, and",
        "the mean number of repetitions.",
        "",
        *_titles([*of_cells, *needed]),
    )
    for shape in SHAPES:
        for correlation in CORRELATIONS:
            yield cells_row(shape, correlation)[0]
    yield from (
        "",
        "The same if runs were taken for independent: fewer repetitions, and too few of the "
        "intervals cover.",
        "",
        *_titles([*of_cells, *needed]),
    )
    for correlation in CORRELATIONS:
        yield cells_row("log-normal", correlation, spacing=INDEPENDENT)[0]
    yield from (
        "",
        f"Steps of one run ({SERIES} runs each): the intervals that cover, in per cent.",
        "",
        *_titles([f"{count} steps" for count in STEP_COUNTS]),
    )
    for shape in SHAPES:
        for correlation in CORRELATIONS:
            yield steps_row(shape, correlation)[0]


def _titles(columns: list[str]) -> tuple[str, str]:
    titles = ["noise", "correlation of neighbours", *columns]
    return f"| {' | '.join(titles)} |", f"|---|{'--:|' * (len(columns) + 1)}"


if __name__ == "__main__":
    main()
