"""What every plot of a page is drawn in: a picture that scales, and says in words what it shows."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup


def framed(
    parts: Iterable[Markup], *, width: float, height: float, title: str, summary: str
) -> Markup:
    """Return the picture; `width` and `height` are the units of its parts, not its size."""
    return Markup(
        '<svg class="chart plot" viewBox="0 0 {w:g} {h:g}" role="img" aria-label="{label}">'
        "{parts}</svg>"
    ).format(w=width, h=height, label=f"{title}: {summary}", parts=Markup("").join(parts))
