"""Draw a heat map: as SVG text on the server, and as what plotly draws it from.

Colours come from the style sheet by the names of tones, since inline styles are against the
pages' content security policy. Plotly's own heat maps are an image with an inline style, so it
gets rectangles and texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from farm.figures.heat_map import Field, FieldKind, HeatMap
from web.drawing.plotly_figure import literally

FIELD_WIDTH, FIELD_HEIGHT = 76, 34  # pixels

_A_CHARACTER = 6.6  # pixels, about
_MOST_CHARACTERS = 22  # of the name of a row
_TOP, _BOTTOM = 6, 44
_GAP = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMap:
    """A heat map as its template shows it: `data` is what the script reads."""

    map: HeatMap
    svg: Markup
    data: dict[str, object]


def drawn_map(shown: HeatMap) -> DrawnMap:
    """Return all that a template needs to show a heat map."""
    return DrawnMap(map=shown, svg=draw_map(shown), data=to_plotly(shown))


def _size_of(shown: HeatMap) -> tuple[float, float]:
    """Return width and height of the drawing, in pixels."""
    width = _left(shown) + FIELD_WIDTH * len(shown.columns) + 6
    return width, _TOP + FIELD_HEIGHT * len(shown.rows) + _BOTTOM


def draw_map(shown: HeatMap) -> Markup:
    """Draw it in its natural size; the page lets it be scrolled where that is too wide."""
    left, (width, height) = _left(shown), _size_of(shown)
    parts = [
        _field(field, left + FIELD_WIDTH * i, _TOP + FIELD_HEIGHT * j)
        for j, row in enumerate(shown.fields)
        for i, field in enumerate(row)
    ]
    floor = _TOP + FIELD_HEIGHT * len(shown.rows)
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            left + FIELD_WIDTH * (i + 0.5), floor + 15, _shortened(name, FIELD_WIDTH)
        )
        for i, name in enumerate(shown.columns)
    ]
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
            left - 6, _TOP + FIELD_HEIGHT * (j + 0.5) + 4, name[:_MOST_CHARACTERS]
        )
        for j, name in enumerate(shown.rows)
    ]
    parts.append(
        Markup('<text class="name" x="{}" y="{}" text-anchor="end">{}</text>').format(
            width - 6, height - 8, shown.x_title
        )
    )
    if shown.y_title:
        parts.append(
            Markup('<text class="name" x="6" y="{}">{}</text>').format(height - 8, shown.y_title)
        )
    return Markup(
        '<svg class="chart heat" width="{w:g}" height="{h:g}" viewBox="0 0 {w:g} {h:g}" '
        'role="img" aria-label="{label}">{parts}</svg>'
    ).format(
        w=width, h=height, label=f"{shown.title}: {shown.summary}", parts=Markup("").join(parts)
    )


def to_plotly(shown: HeatMap) -> dict[str, object]:
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


def _left(shown: HeatMap) -> float:
    longest = max((len(name) for name in shown.rows), default=0)
    return 14 + _A_CHARACTER * min(longest, _MOST_CHARACTERS)


def _field(field: Field, x: float, y: float) -> Markup:
    width, height = FIELD_WIDTH - 2 * _GAP, FIELD_HEIGHT - 2 * _GAP
    left, top = x + _GAP, y + _GAP
    # What failed is crossed out as well, so that no colour is needed to tell it.
    cross = (
        Markup('<path class="cross" d="M{} {}l{} {}m0 {}l{} {}"/>').format(
            left, top, width, height, -height, -width, height
        )
        if field.kind is FieldKind.FAILED
        else Markup("")
    )
    return Markup(
        '<g><title>{}</title><rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="3"/>{}'
        '<text class="value" x="{}" y="{}" text-anchor="middle">{}</text></g>'
    ).format(
        f"{field.where}: {field.said}",
        field.tone,
        *(left, top, width, height),
        cross,
        *(x + FIELD_WIDTH / 2, y + FIELD_HEIGHT / 2 + 4),
        field.text,
    )


def _shortened(name: str, width: float) -> str:
    most = int(width / _A_CHARACTER)
    return name if len(name) <= most else f"{name[: most - 1]}…"


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
