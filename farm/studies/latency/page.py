"""The latency study's page: every number in it comes from the runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from string import Template

from farm.errors import FarmError
from farm.lab.wirefilter import MAX_BANDWIDTH_BYTES_PER_S
from farm.measuring.study_run import StudyRun
from farm.studies import conditions
from farm.studies.contracts import Drawing, Page
from farm.studies.latency.cells import Curve, Panel, panels_of, worth_it_up_to_s
from farm.studies.latency.figures import draw_epoch_times, draw_round_trips
from farm.studies.latency.method import method_texts
from farm.studies.latency.tables import (
    configurations_table,
    fits_table,
    profile_table,
    shares_table,
    traffic_table,
)
from farm.studies.run_groups import one_kind
from farm.studies.text import delay_ms, listing, ms, percent, significant, span, whole
from farm.text import display


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
        **method_texts(runs, shown),
        findings=conditions.findings(kept, lambda some: _findings(panels_of(some))),
        disturbed=conditions.disturbed(kept),
        fits=fits_table(shown),
        comparison=_comparison(shown),
        traffic=traffic_table(shown),
        shares=shares_table(shown),
        link=display.plain(display.bit_rate(MAX_BANDWIDTH_BYTES_PER_S)),
        profile=profile_table(shown),
        configurations=configurations_table(shown),
    )
    return Page(
        text=text,
        drawings=(
            Drawing("latency-epoch-time", partial(draw_epoch_times, shown)),
            Drawing("latency-round-trips", partial(draw_round_trips, shown)),
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


def _findings(shown: Sequence[Panel]) -> list[str]:
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
            lines.append(f"{_name(panel)}: {'; '.join(parts)}.")
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


def _name(panel: Panel) -> str:
    return f"`{panel.model}`, batch {panel.global_batch_size}"


def _fitted(shown: Sequence[Panel]) -> list[Curve]:
    return [curve for panel in shown for curve in panel.gangs if curve.fit is not None]


def _slope(curve: Curve) -> float:
    assert curve.fit is not None
    return curve.fit.slope
