"""Exports of a sweep: measurements as a file, charts as images."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO

from flask import Response

from farm.cells.choice import Choice
from farm.cells.table import SweepTable
from farm.charts.chart import Bars, Figure
from farm.charts.heat_map import HeatMap, heat_map
from farm.charts.sweep_figures import figures_of
from farm.errors import NotFound
from farm.exporting import Form
from farm.processes.subprocess_call import run_in_subprocess
from farm.sweep_bundle.writing import ArchiveExport, export_archive
from web.backend import backend
from web.drawing.downloads import can_draw
from web.errors import RefusedRequest
from web.request_body import ZIP

HEAT_MAP = "map"  # the name of its drawing, beside those of `farm.charts.sweep_figures`
_IN_MEMORY_BYTES = 4 << 20
_CHUNK_BYTES = 1 << 16


@functools.cache
def forms() -> Sequence[Form]:
    """Return the formats of files that can be written here."""
    can_parquet = importlib.util.find_spec("pyarrow") is not None
    return [form for form in Form if can_parquet or form is not Form.PARQUET]


def exported_file(write: Callable[[IO[bytes]], object]) -> IO[bytes]:
    """Return a file that `write` has filled, positioned at its start; the caller closes it.

    It is complete before the first byte is sent, so a slow reader keeps no transaction open, and an
    error does not end in half a file. A large file is on disk, not in memory.
    """
    file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 # the caller closes it
    try:
        write(file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def can_bundle() -> bool:
    """Tell whether the libraries for the bundle of a sweep are installed here."""
    return can_draw() and Form.PARQUET in forms()


def bundle_answer(sweep_id: int, name: str) -> Response:
    """Answer with the bundle of a sweep, which another process writes.

    Raises:
        NotFound: figures cannot be drawn here, or there is no such sweep any more.
        RefusedRequest: see `one_bundle`.
    """
    if not can_bundle():
        raise NotFound(
            "a bundle needs matplotlib and pyarrow: pip install 'benchfarm[plot,server]'"
        )
    with one_bundle(), tempfile.TemporaryDirectory(prefix="farm-bundle-") as folder:
        path = Path(folder) / "bundle.zip"
        archive = ArchiveExport(
            database_url=backend().engine.url.render_as_string(hide_password=False),
            sweep_id=sweep_id,
            file=path,
            prices=backend().prices,
        )
        run_in_subprocess(export_archive, archive)
        file = path.open("rb")  # it can be read until it is closed
    return file_answer(file, media_type=ZIP, name=f"{file_name(sweep_id, name)}.zip")


@contextmanager
def one_bundle() -> Iterator[None]:
    """Allow one bundle at a time to be written or read: each takes a processor and disk space.

    Raises:
        RefusedRequest: there is one already.
    """
    lock = backend().bundling
    if not lock.acquire(blocking=False):
        raise RefusedRequest(
            HTTPStatus.TOO_MANY_REQUESTS,
            "another bundle is being written or read: ask again in some seconds",
            headers={"Retry-After": "5"},
        )
    try:
        yield
    finally:
        lock.release()


def file_answer(file: IO[bytes], *, media_type: str, name: str) -> Response:
    """Answer with a file, which is closed when the answer is out."""
    size_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    response = Response(_chunks(file), mimetype=media_type)
    response.content_length = size_bytes
    response.headers.set("Content-Disposition", "attachment", filename=name)
    response.call_on_close(file.close)
    return response


def file_name(sweep_id: int, name: str) -> str:
    """Name a file after its sweep, in characters that every system accepts."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"sweep-{sweep_id}-{plain}" if plain else f"sweep-{sweep_id}"


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def chart_of(table: SweepTable, choice: Choice, name: str) -> Figure | Bars | HeatMap | None:
    """Return a chart of a sweep; None if no chart has that name."""
    if name == HEAT_MAP:
        return heat_map(table, choice)
    return figures_of(table, choice).get(name)
