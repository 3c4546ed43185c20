"""Charts as plotly names their parts; colours are left to the page's script.

Plotly reads markup in texts, and what users named must not become any.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence

from markupsafe import Markup

from farm.charts.chart import STYLES, ChartAxis, ChartSeries, Figure, Mark, ends, heights, ticks


def to_plotly(figure: Figure) -> dict[str, object]:
    """Return traces and axes of a chart."""
    return {
        "summary": figure.summary,
        "data": [_trace(series, number) for number, series in enumerate(figure.series)],
        "layout": {
            "xaxis": _axis(figure.x, [mark.x for mark in figure.marks]),
            "yaxis": _axis(figure.y, heights(figure.marks)),
            "showlegend": len(figure.series) > 1,
        },
    }


def _trace(series: ChartSeries, number: int) -> dict[str, object]:
    marks = series.marks
    parts = ["lines"] * series.is_joined + ["markers"] * series.has_dots
    return {
        "type": "scatter",
        "mode": "+".join(parts) or "none",
        "name": literally(series.name),
        "x": [mark.x for mark in marks],
        "y": [mark.y for mark in marks],
        "text": [literally(mark.note or series.name) for mark in marks],
        "hovertemplate": "%{text}<extra></extra>",
        "meta": {"style": (number if series.style is None else series.style) % STYLES},
        "marker": {"symbol": ["circle" if mark.is_solid else "circle-open" for mark in marks]},
        "error_y": intervals(marks),
    }


def intervals(marks: Sequence[Mark]) -> dict[str, object]:
    """Return the intervals of marks as plotly has them: distances from the values."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if m.high is None else max(0.0, m.high - m.y) for m in marks],
        "arrayminus": [None if m.low is None else max(0.0, m.y - m.low) for m in marks],
    }


def _axis(axis: ChartAxis, values: Sequence[float]) -> dict[str, object]:
    """Name the ticks as the server does, so that both drawings say the same."""
    places, span = ticks(axis, values), ends(axis, values)
    return {
        "title": {"text": literally(axis.title)},
        "type": "log" if axis.is_log else "linear",
        "tickvals": places,
        "ticktext": [literally(axis.write(place)) for place in places],
        "range": [math.log10(end) for end in span] if axis.is_log else list(span),
    }


def in_page(data: object) -> Markup:
    """Write JSON so that nothing in it can end the element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for mark in "<>&'":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Markup(text)  # noqa: S704 (marks are escaped above)


def literally(text: str) -> str:
    """Escape what plotly would read as markup."""
    return html.escape(text, quote=False)
