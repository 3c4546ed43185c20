"""The machines study: time per epoch by batch size, machines and delay, and its page.

Every number comes from its runs or from the published study. Figures show the published study above
our own measurements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from farm.charts import chart
from farm.charts.chart import ChartAxis
from farm.charts.files.charts import draw_charts
from farm.importers.anwar2021 import ANWAR2021, STEPS_PER_EPOCH
from farm.importers.contracts import read_publication
from farm.measuring.study_run import StudyRun
from farm.registry import model_size
from farm.studies import conditions, tables
from farm.studies.conditions import refuse_other_work
from farm.studies.contracts import Drawing, LabHosts, Page, Study, write_page
from farm.studies.machines.cells import (
    MACHINE_CELL_AXES,
    CellTimes,
    Fastest,
    own_times,
    published_times,
)
from farm.studies.machines.claims import ORDERINGS, values_of
from farm.studies.orderings import agreement, orderings_table
from farm.studies.run_groups import RunGroup, one_kind, run_groups, series_of
from farm.studies.text import MISSING, delay_ms, listing, ms, percent, significant, span, us, whole
from farm.text import display
from farm.text.plurals import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EPOCH_AXIS = ChartAxis(
    title="time of 70 steps (s)", write=lambda value: f"{value or 0:g}", is_log=True
)
_EXAMPLE_AXIS = ChartAxis(title="time per example", write=display.duration, is_log=True)
_MACHINES_AXIS = ChartAxis(
    title="machines", write=lambda value: f"{value or 0:.0f}", is_counted=True
)
_BATCH_AXIS = ChartAxis(title="batch", write=lambda value: whole(round(value or 0)), is_log=True)


def machines_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time, or the runs are not of the same work.
    """
    kept = one_kind(runs, study="machines")
    refuse_other_work(
        kept,
        *("model", "data set", "strategy of gangs"),
        compares="machines with one model, data set and strategy",
    )
    published = published_times(read_publication(ANWAR2021).measurements)
    own = own_times(kept)
    groups = run_groups(kept, MACHINE_CELL_AXES)
    pairs = paired_batches(published, own)
    texts = conditions.texts(runs, kept, groups) | {
        "citation": ANWAR2021.citation,
        "published_parameters": _parameters("small_cnn", "mnist"),
        "published_batches": listing([whole(batch) for batch in published.batches]),
        "published_delays": listing([delay_ms(delay_s) for delay_s in published.delays_s]),
        "published_large_batch": whole(published.large_batch),
        "parameters": _parameters(kept[0]["model"], kept[0]["dataset"]),
        "large_batch": whole(own.large_batch),
        "paired": listing([f"{whole(theirs)} above {whole(ours)}" for theirs, ours in pairs]),
        "findings": conditions.findings(kept, lambda some: _findings(published, own_times(some))),
        "published_fastest": _fastest_table(published),
        "own_fastest": _fastest_table(own),
        "failures": _failures(runs),
        "trips": _trips_table(published, own),
        "orderings": orderings_table(
            ORDERINGS,
            published=values_of(published),
            own=values_of(own_times(conditions.undisturbed(kept))),
        ),
        "configurations": _configurations_table(groups),
    }
    return write_page(
        "machines",
        texts,
        Drawing("machines-epoch-time", partial(_draw_epochs, published, own)),
        Drawing("machines-example-time", partial(_draw_examples, published, own)),
    )


def _parameters(model: str | None, dataset: str | None) -> str:
    size = model_size(model or "", dataset or "")
    return MISSING if size is None else whole(size.parameter_count)


def _failures(runs: Sequence[StudyRun]) -> str:
    failed = conditions.failures(
        runs, lambda run: f"batch {whole(run['global_batch_size'])} on {run['world_size']}"
    )
    return f"Without a time, which is a result as well: {failed}.\n\n" if failed else ""


def _findings(published: CellTimes, own: CellTimes) -> list[str]:
    same, other, unknown = agreement(ORDERINGS, published=values_of(published), own=values_of(own))
    open_ones = f", and {unknown} cannot be told here" if unknown else ""
    return [
        f"**{same} of {same + other + unknown} orderings of the study hold here as well**"
        f"{open_ones}: see [below](#what-agrees).",
        *_trips(published, own),
        *_gains(published, own),
        *_fastest(published, own),
    ]


def _trips(published: CellTimes, own: CellTimes) -> list[str]:
    return [
        f"**With {size} machines a step waits for {_trips_span(own, size)} round trips here, and "
        f"for {_trips_span(published, size)} in the study**, by batch size. No overlap would make "
        f"it {2 * size - 1}."
        for size in own.world_sizes
        if size > 1 and MISSING not in (_trips_span(own, size), _trips_span(published, size))
    ]


def _gains(published: CellTimes, own: CellTimes) -> list[str]:
    """Say what the large batch gains by more machines, under no delay and the longest."""
    lines = []
    for source, who in ((own, "Here"), (published, "In the study")):
        batch = source.large_batch
        if batch is None:
            continue
        parts = []
        for delay_s in sorted({source.delays_s[0], source.delays_s[-1]}):
            found = source.fastest(batch, delay_s)
            if found is None or found.speedup is None:
                continue
            gain = (
                "one machine is the fastest"
                if found.world_size == 1
                else f"{found.world_size} machines are {significant(found.speedup)} times as fast "
                "as one"
            )
            if found.others:
                possible = listing([str(n) for n in sorted((found.world_size, *found.others))])
                gain += f" (the intervals leave open {possible})"
            parts.append(f"{gain} at {delay_ms(delay_s)} ms")
        if parts:
            lines.append(f"{who}, at batch {whole(batch)}, {listing(parts)}.")
    return lines


def _fastest(published: CellTimes, own: CellTimes) -> list[str]:
    """Say in how many places one machine is the fastest."""
    counts = []
    for source in (own, published):
        found = source.all_fastest().values()
        if not found:
            return []
        counts.append((sum(one.world_size == 1 and not one.others for one in found), len(found)))
    (ours, of_ours), (theirs, of_theirs) = counts
    return [
        f"One machine is clearly the fastest in {ours} of {of_ours} combinations of batch and "
        f"delay here ({percent(ours / of_ours)}), and in {theirs} of {of_theirs} of the study "
        f"({percent(theirs / of_theirs)})."
    ]


def _fastest_table(source: CellTimes) -> str:
    """Which number of machines has the shortest step, by batch size and delay."""

    def cell(delay_s: float) -> Callable[[int], str]:
        return lambda batch: _fastest_cell(source.fastest(batch, delay_s))

    columns = [(f"{delay_ms(delay_s)} ms", cell(delay_s)) for delay_s in source.delays_s]
    return tables.table_of(source.batches, [("batch", whole), *columns])


def _fastest_cell(found: Fastest | None) -> str:
    if found is None:
        return MISSING
    others = f" or {listing([str(size) for size in found.others])}" if found.others else ""
    gain = ""
    if found.speedup is not None and found.world_size > 1:
        gain = f" ({significant(found.speedup)} x)"
    return f"**{found.world_size}**{others}{gain}"


def _trips_table(published: CellTimes, own: CellTimes) -> str:
    """How many round trips a step waits for, by number of machines, in both sources."""
    return tables.table_of(
        sorted({*published.world_sizes, *own.world_sizes} - {1}),
        [
            ("machines", str),
            ("2 n - 1", lambda size: str(2 * size - 1)),
            ("the study", lambda size: _trips_span(published, size)),
            ("here", lambda size: _trips_span(own, size)),
        ],
    )


def _trips_span(source: CellTimes, world_size: int) -> str:
    """Write the round trips of a step from the batch size with fewest to that with most."""
    fits = (source.round_trips(world_size, batch) for batch in source.batches)
    slopes = sorted(fit.slope for fit in fits if fit is not None)
    return span(f"{slope:.1f}" for slope in slopes)


def _configurations_table(groups: Sequence[RunGroup]) -> str:
    """Every configuration of ours with its median, its interval and its runs."""

    def epoch(group: RunGroup) -> str:
        return significant(STEPS_PER_EPOCH * (group.median_of("step_time_s") or 0.0))

    def example(group: RunGroup) -> str:
        return us((group.median_of("step_time_s") or 0.0) / group.global_batch_size)

    columns: list[tables.GroupColumn] = [
        ("batch", lambda group: whole(group.global_batch_size)),
        tables.HOSTS_COLUMN,
        tables.DELAY_COLUMN,
        tables.median("RTT (ms)", "rtt_s", ms),
        tables.STEP_TIME_COLUMN,
        ("70 steps (s)", epoch),
        ("per example (µs)", example),
        tables.RUNS_COLUMN,
        tables.FLAGGED_COLUMN,
    ]
    return tables.table_of(groups, columns)


def paired_batches(published: CellTimes, own: CellTimes) -> list[tuple[int, int]]:
    """Pair each batch size of ours with the published one nearest in rank, least to most.

    Machines and data differ so much that equal batch sizes would not be equal work. What one
    machine of the study could not do is left out: its lines have nothing to begin with.
    """
    most, ours = published.large_batch, own.batches
    theirs = [batch for batch in published.batches if most is None or batch <= most]
    last = max(1, len(ours) - 1)
    places = [round(place * (len(theirs) - 1) / last) for place in range(len(ours))]
    return [(theirs[place], batch) for place, batch in zip(places, ours, strict=True)]


def _draw_epochs(published: CellTimes, own: CellTimes) -> Figure:
    """Time of an epoch against machines: a panel for each batch size, a line for each delay."""
    pairs = paired_batches(published, own)
    delays_s = sorted({*published.delays_s, *own.delays_s})
    panels = [
        _epochs_figure(source, batch, delays_s, who=who)
        for source, batches, who in (
            (published, [pair[0] for pair in pairs], "study"),
            (own, [pair[1] for pair in pairs], "here"),
        )
        for batch in batches
    ]
    drawn = draw_charts(_labelled_once(panels, len(pairs)), columns=len(pairs), row_height_in=2.7)
    # Whole numbers of machines need no more room.
    drawn.set_figwidth(max(4.8, 2.4 * len(pairs)))
    return drawn


def _epochs_figure(
    source: CellTimes, batch: int, delays_s: Sequence[float], *, who: str
) -> chart.Figure:
    # Delays of the other source have a series without marks, so that one key serves all panels.
    series = [
        series_of(
            f"{delay_ms(delay_s)} ms",
            (
                cell.epoch_time.mark(x=cell.world_size)
                for cell in source.beside(batch, delay_s)
                if delay_s in source.delays_s
            ),
        )
        for delay_s in delays_s
    ]
    title = f"{who}: batch {whole(batch)}"
    return chart.Figure(title=title, summary=title, x=_MACHINES_AXIS, y=_EPOCH_AXIS, series=series)


def _draw_examples(published: CellTimes, own: CellTimes) -> Figure:
    """Time per example against batch size, a line for each number of machines."""
    delays_s = _shared_delays_s(published, own)
    sizes = sorted({*published.world_sizes, *own.world_sizes})
    panels = [
        _examples_figure(source, delay_s, sizes, who=who)
        for source, who in ((published, "study"), (own, "here"))
        for delay_s in delays_s
    ]
    return draw_charts(_labelled_once(panels, len(delays_s)), columns=len(delays_s))


def _labelled_once(panels: Sequence[chart.Figure], columns: int) -> list[chart.Figure]:
    """Leave the titles of axes to the panels on the left and at the bottom: all have the same."""
    last = len(panels) - columns
    return [
        dataclasses.replace(
            panel,
            x=panel.x if place >= last else dataclasses.replace(panel.x, title=""),
            y=panel.y if place % columns == 0 else dataclasses.replace(panel.y, title=""),
        )
        for place, panel in enumerate(panels)
    ]


def _shared_delays_s(published: CellTimes, own: CellTimes) -> list[float]:
    """Return no delay, and the longest that both have; nothing shared: what ours begins with."""
    both = [delay_s for delay_s in own.delays_s if delay_s in published.delays_s]
    return sorted({both[0], both[-1]}) if both else own.delays_s[:1]


def _examples_figure(
    source: CellTimes, delay_s: float, sizes: Sequence[int], *, who: str
) -> chart.Figure:
    series = []
    for size in sizes:
        cells = (source.cell(size, batch, delay_s) for batch in source.batches)
        marks = (cell.example_time.mark(x=cell.batch) for cell in cells if cell is not None)
        series.append(series_of(counted(size, "machine"), marks))
    title = f"{who}: {delay_ms(delay_s)} ms one way"
    return chart.Figure(title=title, summary=title, x=_BATCH_AXIS, y=_EXAMPLE_AXIS, series=series)


MACHINES = Study(
    name="machines",
    summary="time per epoch against batch size and machines, with and without a delay",
    place=LabHosts(3),
    page_file="studies/machines.md",
    page=machines_page,
)
