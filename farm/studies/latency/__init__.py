"""The latency study: time of a synchronous step by network delay, and its page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.lab.wirefilter import MAX_BANDWIDTH_BYTES_PER_S
from farm.measuring.study_run import StudyRun
from farm.statistics import LineFit, fit_line
from farm.studies import conditions, tables
from farm.studies.contracts import Drawing, LabHosts, Page, Study, write_page
from farm.studies.run_groups import RunGroup, level, one_kind, run_groups, series_of
from farm.studies.text import delay_ms, kb, listing, ms, percent, significant, span, table, whole
from farm.text import display
from farm.text.plurals import counted

_DELAYS = ("one_way_delay_s",)
_NAMES: tuple[tables.GroupColumn, ...] = (
    tables.MODEL_COLUMN,
    ("batch", lambda group: str(group.global_batch_size)),
    tables.HOSTS_COLUMN,
)
_PROFILED = {"0": "rank_0_compute_s", "others": "other_ranks_compute_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(RunGroup):
    """One model, batch size and world size: a point for each delay, the shortest first.

    `fit`: step time over round-trip time, of all runs; None without a network, or with too few.
    `alone_s`: the step time of one rank with that model and batch size.
    """

    points: tuple[RunGroup, ...]
    fit: LineFit | None
    alone_s: float | None

    @property
    def line(self) -> LineFit:
        """The fit of a curve that has one."""
        assert self.fit is not None
        return self.fit

    @property
    def core_count(self) -> int:
        """The fewest cores that any of its gangs had together."""
        return min(run.core_count for run in self.runs)

    @property
    def ranks_on_a_core(self) -> int:
        """How many ranks the fullest core has, if they are spread evenly."""
        return -(-self.world_size // max(1, self.core_count))

    @property
    def bend_ratio(self) -> float | None:
        """How far the median at any delay lies from the line, over the line; None: no line."""
        if self.fit is None:
            return None
        return max(
            abs(_step_s(point) / self.fit.at(rtt_s) - 1)
            for point in self.points
            if (rtt_s := point.median_of("rtt_s")) is not None
        )

    @property
    def serial_trips(self) -> int:
        """The round trips of a step if nothing in it overlaps and every message goes at once.

        One for the ranks' asking the first for the exchange's parameters, and one for each of the
        2 (n - 1) messages around the ring, which their receivers ask for.
        """
        return 1 + round(self.traffic(1.0).messages)

    @property
    def pays_up_to_s(self) -> float | None:
        """The one-way delay d below which the gang is quicker than one rank; None: at no delay.

        Where a + r 2 d = t(1), with the fitted a and r and the measured step time t(1) of one rank.
        """
        if self.fit is None or self.alone_s is None:
            return None
        gain_s = self.alone_s - self.fit.intercept
        return gain_s / self.fit.slope / 2 if gain_s > 0 and self.fit.slope > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(RunGroup):
    """The curves of one model and batch size, by world size."""

    curves: tuple[Curve, ...]

    @property
    def gangs(self) -> tuple[Curve, ...]:
        return tuple(curve for curve in self.curves if curve.world_size > 1)


CurveColumn = tuple[str, Callable[[Curve], str]]


def panels_of(runs: Sequence[StudyRun]) -> list[Panel]:
    """Group runs of one kind of hardware by model and batch size, world size, and delay."""
    panels = []
    for group in run_groups(runs, ("model", "dataset", "global_batch_size")):
        curves = run_groups(group.runs, ("world_size", "strategy"))
        alone = next((curve for curve in curves if curve.world_size == 1), None)
        alone_s = None if alone is None else _step_s(run_groups(alone.runs, _DELAYS)[0])
        panels.append(Panel(runs=group.runs, curves=tuple(_curve(one, alone_s) for one in curves)))
    # The larger model first: what it shows is what people ask for.
    return sorted(panels, key=lambda panel: -max(run.parameter_count or 0 for run in panel.runs))


def _curve(group: RunGroup, alone_s: float | None) -> Curve:
    points = tuple(run_groups(group.runs, _DELAYS))
    # Without a second delay the slope would be made of the probes' own noise.
    has_line = group.world_size > 1 and len(points) > 1
    return Curve(
        runs=tuple(run for point in points for run in point.runs),
        points=points,
        fit=fit_line(group.trips) if has_line else None,
        alone_s=alone_s,
    )


def _step_s(point: RunGroup) -> float:
    step_s = point.median_of("step_time_s")
    assert step_s is not None, "runs without a time are left out"
    return step_s


def _steps_per_epoch(point: RunGroup) -> int:
    return max(run["steps_per_epoch"] or 1 for run in point.runs)


def _fitted(shown: Iterable[Panel]) -> list[Curve]:
    return [curve for panel in shown for curve in panel.gangs if curve.fit is not None]


def latency_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time.
    """
    kept = one_kind(runs, study="latency")
    shown = panels_of(kept)
    curves = [curve for panel in shown for curve in panel.curves]
    points = [point for curve in curves for point in curve.points]
    models = sorted({(-(run.parameter_count or 0), run["model"] or "") for run in kept})
    datasets = sorted({run["dataset"] or "" for run in kept})
    gradients = [run.gradient_bytes or 0 for run in kept if run["world_size"] > 1]
    in_order = [run for curve in curves for run in curve.runs]
    texts = conditions.texts(runs, in_order, points) | {
        "models": listing([f"`{model}` ({whole(-count)} parameters)" for count, model in models]),
        "datasets": listing([f"`{name}`" for name in datasets]),
        "findings": conditions.findings(kept, lambda some: _findings(panels_of(some))),
        "fits": _fits_table(shown),
        "comparison": _comparison(shown),
        "traffic": _traffic_table(shown),
        "sharing": _sharing(curves),
        "shares": _shares_table(shown),
        "link": display.plain(display.bit_rate(MAX_BANDWIDTH_BYTES_PER_S)),
        "profile": _profile_table(shown),
        "configurations_count": str(len(points)),
        "precision": _precision(points),
        "largest_gradients": kb(max(gradients, default=0)),
        "configurations": _configurations_table(points),
    }
    epoch_times = [_epoch_times_figure(panel) for panel in shown]
    round_trips = [_round_trips_figure(panel) for panel in shown]
    return write_page(
        "latency",
        texts,
        Drawing("latency-epoch-time", partial(draw_charts, epoch_times)),
        Drawing("latency-round-trips", partial(draw_charts, round_trips, shares_legend=False)),
    )


def _findings(shown: Sequence[Panel]) -> list[str]:
    return [*_trips(shown), *_turning_points(shown), *_network_shares(shown)]


def _trips(shown: Sequence[Panel]) -> list[str]:
    lines = []
    for world_size, curves in _by_world_size(shown).items():
        slopes = sorted(curve.line.slope for curve in curves)
        trips = span(f"{slope:.1f}" for slope in slopes)
        lines.append(
            f"**With {world_size} hosts a step costs {trips} round trips**: each millisecond of "
            f"one-way delay makes it longer by {span(significant(2 * s) for s in slopes)} ms."
        )
    return lines


def _by_world_size(shown: Sequence[Panel]) -> dict[int, list[Curve]]:
    found: dict[int, list[Curve]] = {}
    for curve in sorted(_fitted(shown), key=lambda curve: curve.world_size):
        found.setdefault(curve.world_size, []).append(curve)
    return found


def _turning_points(shown: Sequence[Panel]) -> list[str]:
    lines = []
    for panel in shown:
        upto = {c.world_size: c.pays_up_to_s for c in _fitted([panel]) if c.alone_s is not None}
        parts = [
            f"{size} hosts beat one up to {ms(upto_s)} ms one way"
            for size, upto_s in upto.items()
            if upto_s is not None
        ]
        if never := [str(size) for size, upto_s in upto.items() if upto_s is None]:
            parts.append(f"{listing(never)} hosts never beat one here, not even without a delay")
        if parts:
            lines.append(
                f"`{panel.first['model']}`, batch {panel.global_batch_size}: {'; '.join(parts)}."
            )
    return lines


def _network_shares(shown: Sequence[Panel]) -> list[str]:
    farthest = [(curve.line, curve.points[-1]) for curve in _fitted(shown)]
    farthest_s = max((point.one_way_delay_s for _, point in farthest), default=0.0)
    shares = sorted(
        line.slope * rtt_s / line.at(rtt_s)
        for line, point in farthest
        if point.one_way_delay_s == farthest_s and (rtt_s := point.median_of("rtt_s")) is not None
    )
    if not shares:
        return []
    return [
        f"At {delay_ms(farthest_s)} ms one way, round trips are {span(map(percent, shares))} of a "
        "step's time."
    ]


def _comparison(shown: Sequence[Panel]) -> str:
    """Say of each world size how the fitted slopes stand to the 2 n - 1 of one exchange."""
    parts = []
    for world_size, curves in _by_world_size(shown).items():
        ratios = sorted(curve.line.slope / curve.serial_trips for curve in curves)
        times = span(f"{ratio:.2f}" for ratio in ratios)
        parts.append(f"{times} times that with {world_size} hosts")
    return f"Here *r* is {listing(parts)}." if parts else ""


def _sharing(curves: Sequence[Curve]) -> str:
    """Say which gangs had fewer cores than ranks."""
    crowded = {curve.world_size: curve for curve in curves if curve.ranks_on_a_core > 1}
    if not crowded:
        return "Every rank had a core of its own, so that they computed side by side."
    sentences = [
        f"{size} hosts shared {counted(curve.core_count, 'core')}: "
        f"{curve.ranks_on_a_core} of them took turns on one, so that the computing of a step takes "
        f"{curve.ranks_on_a_core}/{size} of what one host needs for it, where {size} machines "
        f"would need 1/{size}."
        for size, curve in sorted(crowded.items())
    ]
    sizes = {curve.world_size for curve in curves} - set(crowded) - {1}
    sentences += [f"{size} hosts had a core each." for size in sorted(sizes)]
    return " ".join(sentences)


def _precision(points: Sequence[RunGroup]) -> str:
    """Say how wide the intervals are."""
    halves = [half for p in points if (half := p.half_width_ratio("step_time_s")) is not None]
    if not halves:
        return ""
    return (
        f"; half of the 95 % interval is {percent(statistics.median(halves))} of the median as a "
        f"rule, and {percent(max(halves))} at most"
    )


def _fits_table(shown: Sequence[Panel]) -> str:
    """The fitted lines: a, r, and up to which delay the gang beats one host."""

    def intercept(curve: Curve) -> str:
        fit = curve.line
        return f"{ms(fit.intercept)} ({ms(fit.intercept_low)} to {ms(fit.intercept_high)})"

    def slope(curve: Curve) -> str:
        fit = curve.line
        return f"{fit.slope:.2f} ({fit.slope_low:.2f} to {fit.slope_high:.2f})"

    columns: list[CurveColumn] = [
        ("a (ms)", intercept),
        ("r", slope),
        ("2 n - 1", lambda curve: str(curve.serial_trips)),
        ("bend", lambda curve: percent(curve.bend_ratio)),
        ("runs", lambda curve: str(curve.line.count)),
        ("one host (ms)", lambda curve: ms(curve.alone_s)),
        ("pays up to (ms)", lambda c: "never" if c.pays_up_to_s is None else ms(c.pays_up_to_s)),
    ]
    return tables.table_of(_fitted(shown), [*_NAMES, *columns])


def _traffic_table(shown: Sequence[Panel]) -> str:
    """Bytes that one rank sends for a step, against the least that a ring must."""

    def more(column: str) -> CurveColumn:
        return "", lambda curve: percent(curve.over_expected(column), is_signed=True)

    columns: list[CurveColumn] = [
        ("gradients (kB)", lambda curve: kb(max(run.gradient_bytes or 0 for run in curve.runs))),
        ("theory (kB)", lambda curve: kb(curve.expected_bytes_per_step)),
        tables.mean("sent (kB)", "sent_bytes_per_step", kb),
        more("sent_bytes_per_step"),
        tables.mean("on the wire (kB)", "wire_bytes_per_step", kb),
        more("wire_bytes_per_step"),
    ]
    gangs = [curve for panel in shown for curve in panel.gangs if curve.expected_bytes_per_step]
    return tables.table_of(gangs, [*_NAMES, *columns])


def _shares_table(shown: Sequence[Panel]) -> str:
    """What a consists of: computing on shared cores, the wire, and the rest."""

    def computing_s(curve: Curve) -> float:
        return (curve.alone_s or 0.0) * curve.ranks_on_a_core / curve.world_size

    def wire_s(curve: Curve) -> float | None:
        wire_bytes = curve.mean_of("wire_bytes_per_step")
        return None if wire_bytes is None else wire_bytes / MAX_BANDWIDTH_BYTES_PER_S

    columns: list[CurveColumn] = [
        ("cores", lambda curve: str(curve.core_count)),
        ("share", lambda curve: f"{curve.ranks_on_a_core}/{curve.world_size}"),
        ("computing (ms)", lambda curve: ms(computing_s(curve))),
        ("wire (ms)", lambda curve: ms(wire_s(curve))),
        ("rest (ms)", lambda c: ms(c.line.intercept - computing_s(c) - (wire_s(c) or 0.0))),
        ("a (ms)", lambda curve: ms(curve.line.intercept)),
    ]
    gangs = [curve for curve in _fitted(shown) if curve.alone_s is not None]
    return tables.table_of(gangs, [*_NAMES, *columns])


def _profile_table(shown: Sequence[Panel]) -> str:
    """What ranks spend outside of collectives, by delay: the first, and the others."""
    curves = [curve for panel in shown for curve in panel.gangs]
    delays_s = sorted({point.one_way_delay_s for c in curves for point in c.points})
    rows = []
    for curve in curves:
        for who, column in _PROFILED.items():
            known = {p.one_way_delay_s: p.median_of(column) for p in curve.points}
            cells = [ms(known.get(delay_s)) for delay_s in delays_s]
            rows.append([*(write(curve) for _, write in _NAMES), who, *cells])
    titles = [*(title for title, _ in _NAMES), "rank", *(f"{delay_ms(s)} ms" for s in delays_s)]
    first, others = (_growths(curves, column) for column in _PROFILED.values())
    if not first or not others:
        return table(titles, rows)
    return (
        f"{table(titles, rows)}\n\n"
        f"For each millisecond of round trip rank 0 spends {span(first)} ms more there, and the "
        f"others {span(others)} ms."
    )


def _growths(curves: Sequence[Curve], column: str) -> list[str]:
    """Return, from the shortest to the longest delay, the growth of a time over that of the RTT."""
    found = []
    for curve in curves:
        pairs = [(point.median_of("rtt_s"), point.median_of(column)) for point in curve.points]
        (near_s, low), (far_s, high) = pairs[0], pairs[-1]
        if len(pairs) < 2 or near_s is None or far_s is None or low is None or high is None:
            continue
        found.append((high - low) / (far_s - near_s))
    return [f"{ratio:.2f}" for ratio in sorted(found)]


def _configurations_table(points: Sequence[RunGroup]) -> str:
    """Every configuration with its median, its interval and its runs."""
    columns: list[tables.GroupColumn] = [
        tables.DELAY_COLUMN,
        tables.median("RTT (ms)", "rtt_s", ms),
        tables.STEP_TIME_COLUMN,
        ("epoch (s)", lambda point: significant(_step_s(point) * _steps_per_epoch(point))),
        tables.RUNS_COLUMN,
        tables.FLAGGED_COLUMN,
    ]
    return tables.table_of(points, [*_NAMES, *columns])


def _epoch_times_figure(panel: Panel) -> Figure:
    farthest_s = max(run["one_way_delay_s"] for run in panel.runs)
    series: list[ChartSeries] = []
    for curve in panel.curves:
        name, style = counted(curve.world_size, "host"), curve.world_size - 1
        is_joined = curve.world_size > 1
        if not is_joined:
            # One machine waits for nobody: what was measured once holds at every delay.
            epoch_s = _step_s(curve.points[0]) * _steps_per_epoch(curve.points[0])
            series.append(level(name, y=epoch_s, x=(0.0, farthest_s), style=style))
        marks = (
            point.mark("step_time_s", x=point.one_way_delay_s, factor=_steps_per_epoch(point))
            for point in curve.points
        )
        series.append(series_of(name, marks, is_joined=is_joined, style=style))
    return Figure(
        title=_title(panel),
        summary="time per epoch against delay",
        x=ChartAxis(title="one-way delay", write=display.duration),
        y=ChartAxis(title="time per epoch", write=display.duration),
        series=series,
    )


def _round_trips_figure(panel: Panel) -> Figure:
    series: list[ChartSeries] = []
    for curve in panel.gangs:
        if not curve.trips:
            continue
        name, style = f"{curve.world_size} hosts", curve.world_size - 1
        if curve.fit is not None:
            name += f": {ms(curve.fit.intercept)} ms + {curve.fit.slope:.2f} RTT"
            ends_s = (0.0, max(rtt_s for rtt_s, _ in curve.trips))
            line = [Mark(x=rtt_s, y=curve.fit.at(rtt_s)) for rtt_s in ends_s]
            series.append(ChartSeries(name=name, marks=line, has_dots=False, style=style))
        # Hollow, since runs lie upon each other.
        dots = [Mark(x=rtt_s, y=time_s, is_solid=False) for rtt_s, time_s in curve.trips]
        series.append(ChartSeries(name=name, marks=dots, is_joined=False, style=style))
    return Figure(
        title=_title(panel),
        summary="step time against measured round trip",
        x=ChartAxis(title="measured round trip", write=display.duration),
        y=ChartAxis(title="step time", write=display.duration),
        series=series,
    )


def _title(panel: Panel) -> str:
    return f"{panel.first['model']}, global batch {panel.global_batch_size}"


LATENCY = Study(
    name="latency",
    summary="time per epoch against the delay between 1, 2 and 3 machines",
    place=LabHosts(3),
    page_file="latency-study.md",
    page=latency_page,
)
