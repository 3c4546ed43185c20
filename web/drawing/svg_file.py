"""Charts as SVG files of their own: complete with title, key and colours, on white, for papers.

The drawings are those of the pages, whose colours come from style sheets; a file has its own.
"""

from __future__ import annotations

import base64
import hashlib
import re

from markupsafe import Markup

from farm.figures.bars import Bars
from farm.figures.chart import STYLES, Figure
from farm.figures.heat_map import SHADES, HeatMap
from web.drawing.figure_svg import drawn
from web.drawing.heat_map import draw_map

_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_OWN_SIZE = re.compile(r' (width|height)="[^"]*"')
_MARGIN, _TITLE, _LINE = 14.0, 34.0, 16.0
_LINES_OF_COLOUR = ("#2563c4", "#c2571a", "#23834f", "#8a4bb3", "#b03060", "#5d6470")
_SHADES = ("#eef3fb", "#d7e4f7", "#bcd3f1", "#9dbfea", "#7caae2", "#5b93d8")
_TONES = {"failed": "#fbe9e7", "open": "#fcf1da", "missing": "#f4f5f7"}

assert len(_LINES_OF_COLOUR) == STYLES
assert len(_SHADES) == SHADES


def _style() -> str:
    rules = [
        "text{font:12px system-ui,sans-serif;fill:#444d58}",
        ".title{font-weight:600;font-size:14px;fill:#1c2430}",
        ".value,.key{fill:#1c2430}",
        ".paper{fill:#fff}",
        ".axis{stroke:#c9ced6;fill:none}",
        ".line,.whisker,.cross{fill:none}",
        ".line{stroke-width:1.6;stroke-linejoin:round}",
        ".whisker{stroke-width:1.2}",
        ".upon{stroke:#1c2430}",
        ".hollow{fill:#fff;stroke-width:1.8}",
        ".cross{stroke:#b3261e;stroke-opacity:.35}",
    ]
    for number, colour in enumerate(_LINES_OF_COLOUR):
        rules.append(f".dot.s{number}{{fill:{colour}}}")
        rules.append(f".line.s{number},.whisker.s{number},.hollow.s{number}{{stroke:{colour}}}")
    rules += [f".h{number}{{fill:{colour}}}" for number, colour in enumerate(_SHADES)]
    rules += [f".{name}{{fill:{colour}}}" for name, colour in _TONES.items()]
    return "".join(rules)


STYLE = _style()
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# A browser that opens the file takes these very rules and nothing else, scripts least of all.
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'"


def figure_file(figure: Figure | Bars) -> str:
    """Return the file of a chart, which must have something to draw."""
    shown = drawn(figure)
    drawing = shown.svg
    width, height = _size(drawing)
    names = shown.key if len(shown.key) > 1 else []
    key = Markup("").join(
        Markup(
            '<path class="line s{}" d="M{} {}h18"/><text class="key" x="{}" y="{}">{}</text>'
        ).format(style, _MARGIN, y - 4, _MARGIN + 24, y, name)
        for number, (name, style) in enumerate(names)
        for y in [_TITLE + height + _LINE * (number + 1)]
    )
    return _file(
        figure.title,
        _placed(drawing, width, height),
        key,
        width=width + 2 * _MARGIN,
        height=_TITLE + height + _LINE * len(names) + _MARGIN,
    )


def map_file(shown: HeatMap) -> str:
    """Return the file of a heat map."""
    drawing = draw_map(shown)
    width, height = _size(drawing)
    remarks = [text for text in (shown.held, *shown.remarks) if text]
    below = Markup("").join(
        Markup('<text class="key" x="{}" y="{}">{}</text>').format(
            _MARGIN, _TITLE + height + _LINE * number, remark
        )
        for number, remark in enumerate(remarks, start=1)
    )
    return _file(
        shown.title,
        _placed(drawing, width, height),
        below,
        # A title or a remark may be longer than two columns of numbers.
        width=2 * _MARGIN + max(width, 7.5 * len(shown.title), *(7 * len(r) for r in remarks)),
        height=_TITLE + height + _LINE * len(remarks) + _MARGIN,
    )


def _size(drawing: Markup) -> tuple[float, float]:
    box = _BOX.search(drawing)
    assert box is not None, "every drawing says how large it is"
    return float(box[1]), float(box[2])


def _placed(drawing: Markup, width: float, height: float) -> Markup:
    """Put a drawing below the title; on pages it is as wide as there is room."""
    tag, rest = str(drawing).split(">", 1)
    start = f'<svg x="{_MARGIN:g}" y="{_TITLE:g}" width="{width:g}" height="{height:g}"'
    return Markup(f"{_OWN_SIZE.sub('', tag).replace('<svg', start, 1)}>{rest}")  # noqa: S704 (of Markup and numbers)


def _file(title: str, drawing: Markup, below: Markup, *, width: float, height: float) -> str:
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" width="{w:g}" height="{h:g}" '
            'viewBox="0 0 {w:g} {h:g}"><style>{style}</style>'
            '<rect class="paper" width="{w:g}" height="{h:g}"/>'
            '<text class="title" x="{m:g}" y="22">{title}</text>{drawing}{below}</svg>\n'
        ).format(
            w=width,
            h=height,
            m=_MARGIN,
            style=Markup(STYLE),  # noqa: S704 (a file of our own)
            title=title,
            drawing=drawing,
            below=below,
        )
    )
