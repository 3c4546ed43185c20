"""Histograms as SVG text that needs no script, and as what plotly draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from farm.core.display import count, duration
from farm.figures.chart import ChartAxis, ends, ticks
from farm.figures.histogram import Bin, Histogram
from web.drawing.plot_frame import framed
from web.drawing.plotly_figure import in_page, literally

_WIDTH, _HEIGHT = 440.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 12.0, 28.0
_NAMED_BINS = 5
_COUNT = ChartAxis(title="Steps", write=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnHistogram:
    """A chart as its template shows it: `json` is what the script reads."""

    figure: Histogram
    svg: Markup
    json: Markup


def drawn(figure: Histogram) -> DrawnHistogram:
    """Return all that a template needs to show a histogram."""
    return DrawnHistogram(figure=figure, svg=draw(figure), json=in_page(_to_plotly(figure)))


def draw(figure: Histogram) -> Markup:
    """Draw it as SVG text."""
    counts = [float(one.count) for one in figure.bins]
    high = ends(_COUNT, counts)[1]
    floor, slot = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - _RIGHT) / len(figure.bins)

    def up(value: float) -> float:
        return round(floor - (floor - _TOP) * value / high, 1)

    parts = [
        Markup(
            '<path class="axis" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(_LEFT, up(v), _WIDTH - _RIGHT, _LEFT - 6, up(v) + 4, count(v))
        for v in _whole_ticks(counts)
    ]
    for i, one in enumerate(figure.bins):
        parts.append(
            Markup(
                '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>'
            ).format(
                "column far" if one.is_far else "column",
                round(_LEFT + i * slot, 1),
                up(one.count),
                round(slot * 0.92, 1),
                round(floor - up(one.count), 1),
                one.note,
            )
        )
    for i in _named(figure.bins):
        x = round(_LEFT + (i + 0.5) * slot, 1)
        name = _name(figure.bins[i])
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(x, floor + 16, name)
        )
    return framed(parts, width=_WIDTH, height=_HEIGHT, title=figure.title, summary=figure.summary)


def _to_plotly(figure: Histogram) -> dict[str, object]:
    counts = [float(one.count) for one in figure.bins]
    named = _named(figure.bins)
    return {
        "summary": figure.summary,
        "data": [
            {
                "type": "bar",
                "x": [i for i, one in enumerate(figure.bins) if one.is_far == is_far],
                "y": [one.count for one in figure.bins if one.is_far == is_far],
                "text": [literally(one.note) for one in figure.bins if one.is_far == is_far],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "name": "far from the median" if is_far else "steps",
                "meta": {"tone": "bad" if is_far else "s0"},
            }
            for is_far in (False, True)
            if any(one.is_far == is_far for one in figure.bins)
        ],
        "layout": {
            "xaxis": {
                "title": {"text": "Step time"},
                "tickvals": named,
                "ticktext": [literally(_name(figure.bins[i])) for i in named],
                "range": [-0.6, len(figure.bins) - 0.4],
            },
            "yaxis": {
                "title": {"text": "Steps"},
                "tickvals": _whole_ticks(counts),
                "ticktext": [count(value) for value in _whole_ticks(counts)],
                "range": list(ends(_COUNT, counts)),
            },
            "showlegend": False,
        },
    }


def _whole_ticks(counts: Sequence[float]) -> list[float]:
    return [value for value in ticks(_COUNT, counts) if value == int(value)]


def _named(bins: Sequence[Bin]) -> list[int]:
    """Return the places of the bins that have their names written below them."""
    step = -(-len(bins) // _NAMED_BINS)
    return list(range(step // 2, len(bins), step))


def _name(one: Bin) -> str:
    return duration((one.low_s + one.high_s) / 2)
