"""Style of printed figures, readable by the colour-blind, and their files."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farm.errors import FarmError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito 2008, "Color universal design": told apart by the colour-blind. Yellow is left out,
# which paper does not show. Markers and dashes differ as well, for print without colours.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("s", "o", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("--", "-", (0, (6, 1.5)), "-.", ":", (0, (3, 1)), (0, (1, 1)))
FORMS = ("png", "svg", "pdf")
_DPI = 160
# Any, since matplotlib's own type would list its six hundred names.
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "errorbar.capsize": 3,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "none",
    # Names are those that users gave, and no formulas.
    "text.parse_math": False,
    # Equal figures are equal files, or every page would change with every run.
    "svg.hashsalt": "benchfarm",
}


def require() -> None:
    """Raise FarmError where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise FarmError(
            "figures need matplotlib: pip install 'benchfarm[plot]' (matplotlib is absent)"
        )


def paper_style() -> AbstractContextManager[None]:
    """Draw in the common style until the end of the block; matplotlib is installed."""
    import matplotlib as mpl

    return mpl.rc_context(_STYLE)


@contextmanager
def panels(
    rows: int, columns: int, *, width_in: float = 7.2, row_height_in: float = 2.6
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure of `rows` x `columns` panels in the common style, its axes by row.

    Raises:
        FarmError: matplotlib is not installed.
    """
    require()
    from matplotlib.figure import Figure

    with paper_style():
        # No pyplot: its figures live on until they are closed, and it looks for a display.
        figure = Figure(figsize=(width_in, row_height_in * rows), layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(
    figure: Figure, folder: Path, name: str, *, forms: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure as NAME.png and so on; return the paths. Equal figures are equal files."""
    paths = [folder / f"{name}.{form}" for form in forms]
    for path in paths:
        path.write_bytes(file_of(figure, path.suffix[1:]))
    return paths


def file_of(figure: Figure, form: str) -> bytes:
    """Return the content of a file of that form, one of FORMS."""
    # What tells when and by what it was made would make equal figures different files.
    metadata: dict[str, None] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }[form]
    content = io.BytesIO()
    with paper_style():
        figure.savefig(content, format=form, dpi=_DPI, metadata=metadata)
    if form == "svg":
        # Its lines end in spaces, which no text file of a repository should.
        return b"\n".join(line.rstrip() for line in content.getvalue().splitlines()) + b"\n"
    return content.getvalue()
