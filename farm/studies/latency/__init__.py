"""The latency study: time of a synchronous step by network delay, and its page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.charts.chart import ChartAxis, ChartSeries, Figure, Mark
from farm.charts.files.charts import draw_charts
from farm.errors import FarmError
from farm.lab.wirefilter import MAX_BANDWIDTH_BYTES_PER_S
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, LabHosts, Page, Study
from farm.studies.latency.cells import Curve, Panel, panels_of, worth_it_up_to_s
from farm.studies.run_groups import one_kind
from farm.studies.text import (
    MISSING,
    delay_ms,
    kb,
    listing,
    ms,
    percent,
    significant,
    span,
    table,
    whole,
)
from farm.text import display

_PROFILED = (("0", "rank_0_compute_s"), ("others", "other_ranks_compute_s"))


def latency_page(runs: Sequence[StudyRun]) -> Page:
    """Make the page and its figures.

    Raises:
        FarmError: there is no run with a time.
    """
    kept = one_kind(runs)
    if not kept:
        raise FarmError("the latency study has no measured run to show")
    shown = panels_of(kept)
    template = Template(files("farm.studies.latency").joinpath("page.md").read_text())
    text = template.substitute(
        **_axes(kept, shown),
        **_method_texts(runs, shown),
        findings=conditions.findings(kept, _findings),
        disturbed=conditions.disturbed(kept),
        fits=_fits_table(shown),
        comparison=_comparison(shown),
        traffic=_traffic_table(shown),
        shares=_shares_table(shown),
        link=display.plain(display.bit_rate(MAX_BANDWIDTH_BYTES_PER_S)),
        profile=_profile_table(shown),
        configurations=_configurations_table(shown),
    )
    epoch_times = [_epoch_times_figure(panel) for panel in shown]
    round_trips = [_round_trips_figure(panel) for panel in shown]
    return Page(
        text=text,
        drawings=(
            Drawing("latency-epoch-time", partial(draw_charts, epoch_times)),
            Drawing("latency-round-trips", partial(draw_charts, round_trips, shares_legend=False)),
        ),
    )


def _axes(runs: Sequence[StudyRun], shown: Sequence[Panel]) -> dict[str, str]:
    models = sorted({(-(run.parameter_count or 0), run.model or "") for run in runs})
    delays_s = sorted({run.one_way_delay_s for run in runs})
    counts = sorted(len(p.runs) for panel in shown for c in panel.curves for p in c.points)
    return {
        "models": listing([f"`{model}` ({whole(-count)} parameters)" for count, model in models]),
        "datasets": listing([f"`{name}`" for name in sorted({run.dataset or "" for run in runs})]),
        "world_sizes": listing([str(size) for size in sorted({run.world_size for run in runs})]),
        "batches": listing([whole(b) for b in sorted({run.global_batch_size for run in runs})]),
        "delays": listing([delay_ms(delay_s) for delay_s in delays_s]),
        "repetitions": f"{span(map(str, counts))} runs",
    }


def _findings(runs: Sequence[StudyRun]) -> list[str]:
    shown = panels_of(runs)
    return [*_trips(shown), *_turning_points(shown), *_network_shares(shown)]


def _trips(shown: Sequence[Panel]) -> list[str]:
    lines = []
    for world_size in sorted({c.world_size for c in _fitted(shown)}):
        slopes = sorted(_slope(c) for c in _fitted(shown) if c.world_size == world_size)
        trips = span(f"{slope:.1f}" for slope in slopes)
        lines.append(
            f"**With {world_size} hosts a step costs {trips} round trips**: each millisecond of "
            f"one-way delay makes it longer by {span(significant(2 * s) for s in slopes)} ms."
        )
    return lines


def _turning_points(shown: Sequence[Panel]) -> list[str]:
    lines = []
    for panel in shown:
        if panel.alone is None:
            continue
        upto = {
            curve.world_size: worth_it_up_to_s(curve, panel.alone)
            for curve in panel.gangs
            if curve.fit is not None
        }
        parts = [
            f"{size} hosts beat one up to {ms(upto_s)} ms one way"
            for size, upto_s in upto.items()
            if upto_s is not None
        ]
        if never := [str(size) for size, upto_s in upto.items() if upto_s is None]:
            parts.append(f"{listing(never)} hosts never beat one here, not even without a delay")
        if parts:
            lines.append(
                f"`{panel.first.model}`, batch {panel.first.global_batch_size}: {'; '.join(parts)}."
            )
    return lines


def _network_shares(shown: Sequence[Panel]) -> list[str]:
    farthest_s = max((c.points[-1].one_way_delay_s for c in _fitted(shown)), default=0.0)
    shares = sorted(
        _slope(c) * c.points[-1].rtt_s / c.fit.at(c.points[-1].rtt_s)
        for c in _fitted(shown)
        if c.fit is not None
        and c.points[-1].rtt_s is not None
        and c.points[-1].one_way_delay_s == farthest_s
    )
    if not shares:
        return []
    return [
        f"At {delay_ms(farthest_s)} ms one way, round trips are {span(map(percent, shares))} of a "
        "step's time."
    ]


def _comparison(shown: Sequence[Panel]) -> str:
    """Say of each world size how the fitted slopes stand to the 2 (n - 1) of one exchange."""
    parts = []
    for world_size in sorted({c.world_size for c in _fitted(shown)}):
        curves = [c for c in _fitted(shown) if c.world_size == world_size]
        ratios = sorted(_slope(c) / c.serial_trips for c in curves)
        parts.append(
            f"{span(f'{ratio:.2f}' for ratio in ratios)} times that with {world_size} hosts"
        )
    return f"Here *r* is {listing(parts)}." if parts else ""


def _fitted(shown: Sequence[Panel]) -> list[Curve]:
    return [curve for panel in shown for curve in panel.gangs if curve.fit is not None]


def _slope(curve: Curve) -> float:
    assert curve.fit is not None
    return curve.fit.slope


def _method_texts(runs: Sequence[StudyRun], shown: Sequence[Panel]) -> dict[str, str]:
    """Return what the template's sentences on method and limits leave open, by name.

    `runs` are all of the study, `shown` what is left of them in one kind of hardware.
    """
    curves = [curve for panel in shown for curve in panel.curves]
    kept = [run for curve in curves for run in curve.runs]
    gradients = [run.gradient_bytes or 0 for run in kept if run.world_size > 1]
    return {
        "sharing": _sharing(curves),
        "machine": conditions.machine(kept),
        "counts": _counts(curves, kept),
        "round_trips": conditions.round_trips(kept),
        "noise": conditions.noise(kept),
        "left_out": conditions.left_out(runs, kept),
        "largest_gradients": kb(max(gradients, default=0)),
    }


def _sharing(curves: Sequence[Curve]) -> str:
    """Say which gangs had fewer cores than ranks."""
    crowded = {curve.world_size: curve for curve in curves if curve.ranks_on_a_core > 1}
    if not crowded:
        return "Every rank had a core of its own, so that they computed side by side."
    sentences = [
        f"{size} hosts shared {curve.core_count} {'core' if curve.core_count == 1 else 'cores'}: "
        f"{curve.ranks_on_a_core} of them took turns on one, so that the computing of a step takes "
        f"{curve.ranks_on_a_core}/{size} of what one host needs for it, where {size} machines "
        f"would need 1/{size}."
        for size, curve in sorted(crowded.items())
    ]
    sizes = {curve.world_size for curve in curves} - set(crowded) - {1}
    sentences += [f"{size} hosts had a core each." for size in sorted(sizes)]
    return " ".join(sentences)


def _counts(curves: Sequence[Curve], kept: Sequence[StudyRun]) -> str:
    points = [point for curve in curves for point in curve.points]
    steps = sorted({run.timed_step_count for run in kept if run.timed_step_count})
    text = (
        f"{len(kept)} runs of {len(points)} configurations, "
        f"each of {span(map(str, steps))} timed steps"
    )
    halves = [half for point in points if (half := point.half_width_ratio) is not None]
    if halves:
        middle, most = percent(statistics.median(halves)), percent(max(halves))
        text += (
            f"; half of the 95 % interval is {middle} of the median as a rule, and {most} at most"
        )
    return text


def _fits_table(shown: Sequence[Panel]) -> str:
    """The fitted lines: a, r, and up to which delay the gang beats one host."""
    rows = []
    for panel in shown:
        for curve in panel.gangs:
            fit = curve.fit
            if fit is None:
                continue
            upto_s = worth_it_up_to_s(curve, panel.alone) if panel.alone else None
            rows.append(
                [
                    *_names_of_curve(curve),
                    f"{ms(fit.intercept)} ({ms(fit.intercept_low)} to {ms(fit.intercept_high)})",
                    f"{fit.slope:.2f} ({fit.slope_low:.2f} to {fit.slope_high:.2f})",
                    str(curve.serial_trips),
                    percent(curve.bend_ratio),
                    str(fit.count),
                    ms(panel.alone.points[0].step_time_s) if panel.alone else MISSING,
                    "never" if upto_s is None else ms(upto_s),
                ]
            )
    titles = ("a (ms)", "r", "2 n - 1", "bend", "runs", "one host (ms)", "pays up to (ms)")
    return table(["model", "batch", "hosts", *titles], rows)


def _traffic_table(shown: Sequence[Panel]) -> str:
    """Bytes that one rank sends for a step, against the least that a ring must."""
    rows = []
    for curve in (c for panel in shown for c in panel.gangs):
        expected = curve.expected_bytes_per_step
        sent, wire = curve.mean_of("sent_bytes_per_step"), curve.mean_of("wire_bytes_per_step")
        if not expected:
            continue
        rows.append(
            [
                *_names_of_curve(curve),
                kb(max(run.gradient_bytes or 0 for run in curve.runs)),
                kb(expected),
                kb(sent),
                MISSING if sent is None else percent(sent / expected - 1, is_signed=True),
                kb(wire),
                MISSING if wire is None else percent(wire / expected - 1, is_signed=True),
            ]
        )
    titles = ("gradients (kB)", "theory (kB)", "sent (kB)", "", "on the wire (kB)", "")
    return table(["model", "batch", "hosts", *titles], rows)


def _shares_table(shown: Sequence[Panel]) -> str:
    """What a consists of: computing on shared cores, the wire, and the rest."""
    rows = []
    for panel in shown:
        for curve in panel.gangs:
            if curve.fit is None or panel.alone is None:
                continue
            share = curve.ranks_on_a_core / curve.world_size
            computing_s = panel.alone.points[0].step_time_s * share
            wire = curve.mean_of("wire_bytes_per_step")
            wire_s = None if wire is None else wire / MAX_BANDWIDTH_BYTES_PER_S
            rest_s = curve.fit.intercept - computing_s - (wire_s or 0.0)
            rows.append(
                [
                    *_names_of_curve(curve),
                    str(curve.core_count),
                    f"{curve.ranks_on_a_core}/{curve.world_size}",
                    ms(computing_s),
                    ms(wire_s),
                    ms(rest_s),
                    ms(curve.fit.intercept),
                ]
            )
    titles = ("cores", "share", "computing (ms)", "wire (ms)", "rest (ms)", "a (ms)")
    return table(["model", "batch", "hosts", *titles], rows)


def _profile_table(shown: Sequence[Panel]) -> str:
    """What ranks spend outside of collectives, by delay: the first, and the others."""
    curves = [c for panel in shown for c in panel.gangs]
    delays_s = sorted({p.one_way_delay_s for c in curves for p in c.points})
    rows = []
    for curve in curves:
        for who, column in _PROFILED:
            known = {p.one_way_delay_s: getattr(p, column) for p in curve.points}
            rows.append(
                [*_names_of_curve(curve), who, *(ms(known.get(delay_s)) for delay_s in delays_s)]
            )
    titles = [f"{delay_ms(delay_s)} ms" for delay_s in delays_s]
    text = table(["model", "batch", "hosts", "rank", *titles], rows)
    grown = {who: _growths(curves, column) for who, column in _PROFILED}
    if all(grown.values()):
        trips = {who: [f"{ratio:.2f}" for ratio in grown[who]] for who in grown}
        text += (
            f"\n\nFor each millisecond of round trip rank 0 spends {span(trips['0'])} ms more "
            f"there, and the others {span(trips['others'])} ms."
        )
    return text


def _growths(curves: Sequence[Curve], column: str) -> list[float]:
    """Return, from the shortest to the longest delay, the growth of a time over that of the RTT."""
    found = []
    for curve in curves:
        near, far = curve.points[0], curve.points[-1]
        low, high = getattr(near, column), getattr(far, column)
        if near is far or None in (low, high) or near.rtt_s is None or far.rtt_s is None:
            continue
        found.append((high - low) / (far.rtt_s - near.rtt_s))
    return sorted(found)


def _configurations_table(shown: Sequence[Panel]) -> str:
    """Every configuration with its median, its interval and its runs."""
    rows = []
    for curve in (c for panel in shown for c in panel.curves):
        for point in curve.points:
            flagged = sum(bool(run.flags) for run in point.runs)
            rows.append(
                [
                    *_names_of_curve(curve),
                    delay_ms(point.one_way_delay_s) if curve.world_size > 1 else MISSING,
                    ms(point.rtt_s),
                    f"{ms(point.step_time_s)} ± {percent(point.half_width_ratio)}",
                    significant(point.step_time_s * point.steps_per_epoch),
                    str(len(point.runs)),
                    str(flagged),
                ]
            )
    titles = ("delay (ms)", "RTT (ms)", "step time (ms)", "epoch (s)", "runs", "flagged")
    return table(["model", "batch", "hosts", *titles], rows)


def _names_of_curve(curve: Curve) -> list[str]:
    return [f"`{curve.first.model}`", str(curve.first.global_batch_size), str(curve.world_size)]


def _epoch_times_figure(panel: Panel) -> Figure:
    farthest_s = max(p.one_way_delay_s for curve in panel.curves for p in curve.points)
    series: list[ChartSeries] = []
    for curve in panel.curves:
        name = f"{curve.world_size} {'host' if curve.world_size == 1 else 'hosts'}"
        style, marks = curve.world_size - 1, _epoch_marks(curve)
        if curve.world_size == 1:
            # One machine waits for nobody: what was measured once holds at every delay.
            flat = [Mark(x=end_s, y=marks[0].y) for end_s in (0.0, farthest_s)]
            series.append(ChartSeries(name=name, marks=flat, has_dots=False, style=style))
        is_joined = curve.world_size > 1
        series.append(ChartSeries(name=name, marks=marks, is_joined=is_joined, style=style))
    return Figure(
        title=_title(panel),
        summary="time per epoch against delay",
        x=ChartAxis(title="one-way delay", write=display.duration),
        y=ChartAxis(title="time per epoch", write=display.duration),
        series=series,
    )


def _epoch_marks(curve: Curve) -> list[Mark]:
    return [
        Mark(
            x=p.one_way_delay_s,
            y=p.step_time_s * p.steps_per_epoch,
            low=p.interval.low_s * p.steps_per_epoch if p.interval else None,
            high=p.interval.high_s * p.steps_per_epoch if p.interval else None,
        )
        for p in curve.points
    ]


def _round_trips_figure(panel: Panel) -> Figure:
    series: list[ChartSeries] = []
    for curve in panel.gangs:
        pairs = [(run.rtt_s, run.step_time_s) for run in curve.runs]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        if not known:
            continue
        name, style = f"{curve.world_size} hosts", curve.world_size - 1
        if curve.fit is not None:
            name += f": {ms(curve.fit.intercept)} ms + {curve.fit.slope:.2f} RTT"
            line = [Mark(x=x, y=curve.fit.at(x)) for x in (0.0, max(x for x, _ in known))]
            series.append(ChartSeries(name=name, marks=line, has_dots=False, style=style))
        # Hollow, since runs lie upon each other.
        dots = [Mark(x=x, y=y, is_solid=False) for x, y in known]
        series.append(ChartSeries(name=name, marks=dots, is_joined=False, style=style))
    return Figure(
        title=_title(panel),
        summary="step time against measured round trip",
        x=ChartAxis(title="measured round trip", write=display.duration),
        y=ChartAxis(title="step time", write=display.duration),
        series=series,
    )


def _title(panel: Panel) -> str:
    return f"{panel.first.model}, global batch {panel.first.global_batch_size}"


LATENCY = Study(
    name="latency",
    summary="time per epoch against the delay between 1, 2 and 3 machines",
    place=LabHosts(3),
    page_file="latency-study.md",
    page=latency_page,
)
