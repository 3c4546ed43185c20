"""Reads the shipped file of a publication after checking its hash."""

from __future__ import annotations

import csv
import hashlib
import io
from importlib.resources import files

from farm.errors import FarmError
from farm.importers.contracts import PrintedRow, Publication, Reading


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
