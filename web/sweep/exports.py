"""Exports of a sweep: measurements as a file, charts as images."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections.abc import Sequence
from typing import IO

from sqlalchemy.orm import Session

from farm.cells.choice import Choice
from farm.cells.table import SweepTable
from farm.charts.chart import Bars, Figure
from farm.charts.heat_map import HeatMap, heat_map
from farm.charts.sweep_figures import figures_of
from farm.exporting import Form, write_export

HEAT_MAP = "map"  # the name of its drawing, beside those of `farm.charts.sweep_figures`
_IN_MEMORY_BYTES = 4 << 20


@functools.cache
def forms() -> Sequence[Form]:
    """Return the kinds of file that can be written here."""
    can_parquet = importlib.util.find_spec("pyarrow") is not None
    return [form for form in Form if can_parquet or form is not Form.PARQUET]


def measurements_file(session: Session, sweep_id: int, form: Form) -> IO[bytes]:
    """Return a file at its beginning; the caller closes it.

    Whole before the first byte is sent: a slow reader keeps no transaction open, and an error is
    an error and no half of a file. A large one is on disk, not in memory.
    """
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 # the caller closes it
    try:
        write_export(session, sweep_id, form, file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def chart_of(table: SweepTable, choice: Choice, name: str) -> Figure | Bars | HeatMap | None:
    """Return a chart of a sweep; None: there is none of that name."""
    if name == HEAT_MAP:
        return heat_map(table, choice)
    return figures_of(table, choice).get(name)
