"""Types of published studies, and the reader of their files, which checks each file's hash."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from farm.errors import FarmError
from farm.measuring.imported import ImportedMeasurement


@dataclass(frozen=True, slots=True)
class PrintedRow:
    """One row of a publication's file by its columns, as printed; the header is line 1."""

    line_number: int
    cells: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A published set of measurements, shipped with this program.

    `name` is the origin it gets. `file` lies in `farm/importers/data`, and `sha256` is its
    content's, so that nobody measures against a file that was edited. `read` turns the rows
    into measurements: a row that repeats another gives none, every other gives one.
    """

    name: str
    citation: str
    what: str  # in one line: what was measured, on what
    file: str
    sha256: str
    read: Callable[[Sequence[PrintedRow]], list[ImportedMeasurement]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A source read whole. `row_count` is of its rows; repeated ones are measured once.

    `conversions`: columns of other units, in a line each: what was made of them.
    """

    measurements: tuple[ImportedMeasurement, ...]
    row_count: int
    conversions: tuple[str, ...] = ()

    @property
    def repeated_count(self) -> int:
        """Rows that print a measurement again that stands in another."""
        return self.row_count - len(self.measurements)


def read_publication(publication: Publication) -> Reading:
    """Return the measurements of a published study.

    Raises:
        FarmError: the file is not the one that belongs to this program.
    """
    content = (files("farm.importers") / "data" / publication.file).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != publication.sha256:
        raise FarmError(
            f"{publication.file}: expected SHA-256 {publication.sha256}, got {found}: install "
            "benchfarm again, and import a table of your own with `farm import table`"
        )
    reader = csv.DictReader(io.StringIO(content.decode(), newline=""))
    rows = [PrintedRow(reader.line_num, cells) for cells in reader]
    return Reading(measurements=tuple(publication.read(rows)), row_count=len(rows))
