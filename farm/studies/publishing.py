"""Writes a study's page, its figures and its data into the documents' folder."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_type_hints

from farm.charts.files.style import save
from farm.configuration.axis import Axis
from farm.errors import FarmError, InvalidSpec
from farm.measuring.study_run import COLUMNS, FIRST_COLUMNS, RUN_AXES, RUN_QUANTITIES, StudyRun
from farm.processes.whole_file import write_whole
from farm.studies.contracts import Page, Study
from farm.values.fields import Amount, Boolean, WholeNumber

# Where things lie, below the folder of the documents.
IMAGES, DATA = "images", "studies"


def own_sweep(study: Study) -> Traversable:
    """Return the study's sweep file, which comes with the program."""
    return files(f"farm.studies.{study.name}").joinpath("sweep.toml")


def sweep_path(study: Study, documents: Path) -> Path:
    """Return where the sweep goes that was measured."""
    return documents / DATA / f"{study.name}.toml"


def data_path(study: Study, documents: Path) -> Path:
    """Return where the measurements lie that the page is made from."""
    return documents / DATA / f"{study.name}.csv"


def page_path(study: Study, documents: Path) -> Path:
    """Return where the page goes."""
    return documents / study.page_file


def read_data(path: Path) -> str:
    """Read a data file.

    Raises:
        InvalidSpec: it cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec("measurements", str(path), f"a readable file ({error})") from None


def publish_data(study: Study, documents: Path, *, data: str, sweep: str) -> None:
    """Write the measurements, and the sweep file that made them, so that the folder is complete.

    Raises:
        FarmError: a file cannot be written.
    """
    with _writing(documents / DATA):
        write_whole(data_path(study, documents), data.encode())
        write_whole(sweep_path(study, documents), sweep.encode())


def publish_page(study: Study, documents: Path, *, page: Page) -> list[Path]:
    """Write the page, and each figure as PNG and SVG; return the paths, the page's first.

    Raises:
        FarmError: a file cannot be written, or matplotlib is absent.
    """
    path = page_path(study, documents)
    written = [path]
    # The page last: it shall not speak of figures that are not there.
    with _writing(documents / IMAGES) as folder:
        for drawing in page.drawings:
            written += save(drawing.draw(), folder, drawing.name)
        write_whole(path, page.text.encode())
    return written


@contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except OSError as error:
        raise FarmError(
            f"{error.filename or folder} cannot be written: {error.strerror or error}"
        ) from error


def write_runs(runs: Sequence[StudyRun]) -> str:
    """Return the file's text; `read_runs` makes equal runs of it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_write(run[column]) for column in COLUMNS] for run in runs)
    return text.getvalue()


def read_runs(text: str, *, name: str) -> list[StudyRun]:
    """Read a file's text; `name` is how errors call it.

    Raises:
        InvalidSpec: it is not such a file; names line and column.
    """
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise InvalidSpec(f"{name} line {reader.line_num}", str(error), "CSV") from None
    columns = tuple(reader.fieldnames or ())
    if columns != COLUMNS[: len(columns)] or len(columns) < len(FIRST_COLUMNS):
        found = ",".join(reader.fieldnames or ())
        raise InvalidSpec(f"{name} line 1", found, f"the columns {','.join(COLUMNS)}")
    return [_run(row, where=f"{name} line {line}") for line, row in enumerate(rows, start=2)]


def _run(row: dict[str, Any], *, where: str) -> StudyRun:
    if None in row or None in row.values():
        cells = sum(text is not None for text in row.values())
        raise InvalidSpec(where, f"{cells} cells", f"{len(row.keys() - {None})} cells")
    found = {}
    for column, text in row.items():
        what, parse = _PARSERS[_TYPES[column]]
        try:
            found[column] = parse(text)
        except (ValueError, TypeError):
            raise InvalidSpec(f"{where} {column}", text, what) from None
    return StudyRun.of(found)


def _write(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _instant(text: str) -> dt.datetime:
    instant = dt.datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(text)
    return instant


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: parse(text) if text != "" else None


def _type_of_axis(axis: Axis) -> Any:
    if isinstance(axis.type, WholeNumber | Amount):
        number = int if isinstance(axis.type, WholeNumber) else float
        return number if axis.is_required or axis.value_in({}) is not None else number | None
    return bool | None if isinstance(axis.type, Boolean) else str | None


_TYPES: dict[str, Any] = {
    **get_type_hints(StudyRun),
    **{axis.field: _type_of_axis(axis) for axis in RUN_AXES},
    **{one.name: int | None if one.is_whole else float | None for one in RUN_QUANTITIES},
}
# By the column's type: what is expected, in words, and how it is read.
_PARSERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a number, 0 or more", _number),
    str: ("a text", str),
    dt.datetime: ("an instant with its time zone", _instant),
    tuple[str, ...]: ("names with spaces between", lambda text: tuple(text.split())),
    int | None: ("a whole number or nothing", _or_none(int)),
    float | None: ("a number, 0 or more, or nothing", _or_none(_number)),
    bool | None: ("true or false, or nothing", _or_none(_flag)),
    str | None: ("a text or nothing", _or_none(str)),
}
