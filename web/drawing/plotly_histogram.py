"""Histograms as plotly draws them."""

from __future__ import annotations

from collections.abc import Sequence

from farm.charts.chart import ChartAxis, ends, ticks
from farm.charts.histogram import Bin, Histogram
from farm.text.display import count, duration
from web.drawing.plotly_figure import literally

_NAMED_BINS = 5
_COUNT = ChartAxis(title="Steps", write=count)


def histogram_to_plotly(figure: Histogram) -> dict[str, object]:
    """Return the bars of the bins, those far from the median apart."""
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
