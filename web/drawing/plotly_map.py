"""A heat map as plotly draws it: rectangles and texts.

Plotly's own heat maps are an image with an inline style, which the pages' content security policy
forbids. Colours come from the style sheet by the names of tones.
"""

from __future__ import annotations

from collections.abc import Sequence

from farm.charts.heat_map import HeatMap
from web.drawing.plotly_figure import literally

FIELD_HEIGHT = 34  # pixels


def map_to_plotly(shown: HeatMap) -> dict[str, object]:
    """Return rectangles and texts; the page's script knows the colours.

    Plotly reads markup in texts, and what users named must not become any.
    """
    places = [(i, j) for j in range(len(shown.rows)) for i in range(len(shown.columns))]
    fields = [shown.fields[j][i] for i, j in places]
    return {
        "summary": shown.summary,
        "data": [
            {
                "type": "scatter",
                "mode": "text",
                "x": [i for i, _ in places],
                "y": [j for _, j in places],
                "text": [literally(field.text) for field in fields],
                "hovertext": [literally(f"{field.where}: {field.said}") for field in fields],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "meta": {"style": 0},
            }
        ],
        "layout": {
            "xaxis": _axis(shown.x_title, shown.columns, is_downward=False),
            "yaxis": _axis(shown.y_title, shown.rows, is_downward=True),
            "showlegend": False,
            "height": 110 + FIELD_HEIGHT * len(shown.rows),
            "shapes": [
                {
                    "type": "rect",
                    "layer": "below",
                    "x0": i - 0.5,
                    "x1": i + 0.5,
                    "y0": j - 0.5,
                    "y1": j + 0.5,
                    "tone": field.tone,
                }
                for (i, j), field in zip(places, fields, strict=True)
            ],
        },
    }


def _axis(title: str, names: Sequence[str], *, is_downward: bool) -> dict[str, object]:
    span = [-0.5, len(names) - 0.5]
    return {
        "title": {"text": literally(title)},
        "type": "linear",
        "tickvals": list(range(len(names))),
        "ticktext": [literally(name) for name in names],
        "range": span[::-1] if is_downward else span,
        "showgrid": False,
    }
