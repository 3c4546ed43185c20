"""A table of comma-separated values as people's programs write it: cells by column, row by row.

Takes a byte order mark, either line ending, quotes, empty lines, and columns in any order and case.
Does not guess: what is not such a table is refused, with the row as a spreadsheet numbers it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from farm.core.fields import did_you_mean
from farm.errors import InvalidSpec

MAX_BYTES = 64 * 2**20
MAX_ROWS = 100_000
_ARCHIVE = b"PK\x03\x04"  # as .xlsx and .ods begin


@dataclass(frozen=True, slots=True)
class SheetRow:
    """`number`: the line on which the row ends, the header's being 1; `cells`: texts by column."""

    number: int
    cells: dict[str, str]

    def where(self, column: str) -> str:
        """Name a cell as errors do."""
        return f"row {self.number}, column {column}"


def read_sheet(
    content: bytes,
    *,
    known: Sequence[str],
    required: Collection[str] = (),
    ignored: Collection[str] = (),
) -> list[SheetRow]:
    """Return the rows with their `known` columns, those that are missing left out.

    `ignored`: columns that are not known, and may be there all the same.

    A column without a name may be there as long as it is empty: spreadsheets write such.

    Raises:
        InvalidSpec: not such a table, or too large, a required column is missing, a column is not
            known, or a row has more or fewer cells than the header.
    """
    lines = _lines(_decode(content))
    header_number, header = next(lines, (1, []))
    columns = _columns(header, known=known, required=required, ignored=ignored)
    rows: list[SheetRow] = []
    for number, cells in lines:
        if len(cells) != len(header):
            expected = f"{len(header)} cells as in row {header_number}"
            raise InvalidSpec(f"row {number}", len(cells), expected)
        if len(rows) == MAX_ROWS:
            raise InvalidSpec(f"row {number}", "more", f"at most {MAX_ROWS} rows in one file")
        row = SheetRow(number, {})
        for index, (name, text) in enumerate(zip(columns, cells, strict=True), start=1):
            if name:
                row.cells[name] = text.strip()
            elif name is not None and text.strip():
                expected = "nothing, since the column has no name"
                raise InvalidSpec(row.where(str(index)), text, expected)
        rows.append(row)
    return rows


def _decode(content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise InvalidSpec("the table", f"{len(content)} bytes", f"at most {MAX_BYTES} bytes")
    if content.startswith(_ARCHIVE):
        raise InvalidSpec("the table", "a spreadsheet or archive", "text: save it as CSV in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = content[error.start : error.start + 1]
        raise InvalidSpec(f"row {row}", found, "text in UTF-8") from None


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not empty, with the number of the line they end on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InvalidSpec(
                f"row {reader.line_num}", str(error), "comma-separated values, quoted correctly"
            ) from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _columns(
    header: Sequence[str],
    *,
    known: Sequence[str],
    required: Collection[str],
    ignored: Collection[str],
) -> list[str | None]:
    """Return the column of each cell: None for what is ignored, "" for one without a name."""
    names = [name.strip().lower() for name in header]
    _refuse_other_separators(names)
    left_out = {name.strip().lower() for name in ignored}
    for name in sorted(left_out.intersection(known)):
        raise InvalidSpec(f"column {name}", name, "a column that has no meaning here, to ignore it")
    for i, name in enumerate(names):
        if name in left_out or not name:
            continue
        if name not in known:
            hint = did_you_mean(name, known)
            expected = f"one of {', '.join(known)}{hint}; or `--ignore` it"
            raise InvalidSpec(f"column {name}", header[i], expected)
        if name in names[:i]:
            raise InvalidSpec(f"column {name}", "it twice", "each column once")
    for name in required:
        if name not in names:
            raise InvalidSpec(f"column {name}", None, "this column: it is required")
    return [None if name in left_out else name for name in names]


def _refuse_other_separators(names: Sequence[str]) -> None:
    for separator, word in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and separator in names[0]:
            raise InvalidSpec("row 1", word, "commas between the columns")
