"""Reads tables of comma-separated values as other programs write them.

It accepts a byte order mark, both line endings, quotes, empty lines, and columns in any order and
case, separated by commas, semicolons or tabs. A column in another unit is converted, see `headers`.
Any other table is refused, with the row number that a spreadsheet shows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from farm.errors import InvalidSpec
from farm.importers.columns import decimal, refuse_thousands
from farm.importers.headers import (
    CONVERTED,
    Conversion,
    Derivation,
    column_of,
    hint_of,
    least_of_several,
    wide_columns,
    wide_hint,
)
from farm.text.formulas import with_formula

MAX_SHEET_BYTES = 64 * 2**20
MAX_ROWS = 100_000
_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*(\{|\[\s*[\[{\]])")
_ARCHIVE = b"PK\x03\x04"  # as .xlsx and .ods begin


@dataclass(frozen=True, slots=True)
class SheetRow:
    """`number`: the line on which the row ends, the header's being 1; `cells`: texts by column.

    `headers`: of columns that were converted, what the file calls them. `refused`: cells that
    could not be.
    """

    number: int
    cells: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)
    refused: list[InvalidSpec] = field(default_factory=list)

    def where(self, column: str) -> str:
        """Name a cell as errors do."""
        header = self.headers.get(column)
        name = column if header is None else f"{header} ({column})"
        return f"row {self.number}, column {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The rows of a table, and in a line each which columns were converted, and how."""

    rows: list[SheetRow]
    conversions: tuple[str, ...]


def read_sheet(
    content: bytes,
    *,
    known: Sequence[str],
    required: Collection[str] = (),
    ignored: Collection[str] = (),
) -> Sheet:
    """Return the rows with their `known` columns, those that are missing left out.

    A column that gives a known one in another unit is converted into it. `ignored`: columns that
    are not known, and may be there all the same.

    A column without a name may be there as long as it is empty: spreadsheets write such.

    Raises:
        InvalidSpec: not such a table, or too large, a required column is missing, columns are not
            known, two give the same, or a row has more or fewer cells than the header.
    """
    text = _decode(content)
    lines = lines_of(text)
    header_number, header = next(lines, (1, []))
    columns = _columns(header, known=known, required=required, ignored=ignored)
    rows: list[SheetRow] = []
    for number, cells in lines:
        if len(cells) != len(header):
            expected = f"{len(header)} cells as in row {header_number}"
            if len(cells) > len(header):
                expected += " (numbers with a decimal point and without separators)"
            raise InvalidSpec(f"row {number}", len(cells), expected)
        if len(rows) == MAX_ROWS:
            raise InvalidSpec(f"row {number}", "more", f"at most {MAX_ROWS} rows in one file")
        row = SheetRow(number, {})
        derived: list[tuple[Conversion, str, str]] = []
        for index, (column, cell) in enumerate(zip(columns, cells, strict=True), start=1):
            if isinstance(column, Conversion):
                derived.append((column, header[index - 1].strip(), cell.strip()))
            elif column:
                row.cells[column] = with_formula(cell.strip())
            elif column is not None and cell.strip():
                expected = "nothing, since the column has no name"
                raise InvalidSpec(row.where(str(index)), cell, expected)
        # A batch first: a throughput is divided by it.
        for conversion, name, cell in sorted(derived, key=lambda d: _ORDER.index(d[0].derivation)):
            _convert(row, conversion, name, cell)
        rows.append(row)
    pairs = zip(columns, header, strict=True)
    statements = tuple(c.statement(h.strip()) for c, h in pairs if isinstance(c, Conversion))
    return Sheet(rows=rows, conversions=statements)


_ORDER = (Derivation.UNIT, Derivation.BATCH, Derivation.EXAMPLE_RATE, Derivation.STEP_RATE)


def _convert(row: SheetRow, conversion: Conversion, header: str, cell: str) -> None:
    """Write into the row's cells what a cell of a converted column comes to."""
    target = conversion.target
    row.headers[target] = header
    row.cells[target] = ""
    if not cell:
        return
    where = f"row {row.number}, column {header}"
    try:
        if conversion.derivation is Derivation.BATCH:
            refuse_thousands(cell, where)
        value = decimal(cell, where) * conversion.factor
        if conversion.derivation is not Derivation.UNIT:
            value = _derived(row, conversion.derivation, value, where=where)
        row.cells[target] = f"{value.normalize():e}" if value else "0"
    except InvalidSpec as error:
        row.refused.append(error)


def _derived(row: SheetRow, derivation: Derivation, value: Decimal, *, where: str) -> Decimal:
    if value <= 0:
        raise InvalidSpec(where, str(value), "a number above 0")
    if derivation is Derivation.STEP_RATE:
        return 1 / value
    if derivation is Derivation.EXAMPLE_RATE:
        return _other(row, "global_batch_size", where=where) / value
    if value != value.to_integral_value():
        raise InvalidSpec(where, str(value), "a whole number")
    replicas = _other(row, "replicas_per_rank", where=where, default=Decimal(1))
    return value * _other(row, "world_size", where=where) * replicas


def _other(row: SheetRow, column: str, *, where: str, default: Decimal | None = None) -> Decimal:
    """Return the value of another column of the row that a conversion needs."""
    cell = row.cells.get(column, "")
    if not cell and default is not None:
        return default
    if not cell:
        raise InvalidSpec(where, None, f"a value of {column} in the same row, to convert by")
    return decimal(cell, row.where(column))


def _decode(content: bytes) -> str:
    if len(content) > MAX_SHEET_BYTES:
        raise InvalidSpec("the table", f"{len(content)} bytes", f"at most {MAX_SHEET_BYTES} bytes")
    if content.startswith(_ARCHIVE):
        raise InvalidSpec("the table", "a spreadsheet or archive", "text: save it as CSV in UTF-8")
    if _JSON.match(content):
        raise InvalidSpec("the table", "JSON", "comma-separated values: save it as CSV")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        found = content[error.start : error.start + 1]
        raise InvalidSpec(f"row {row}", found, "text in UTF-8") from None


# What Excel writes in a line of its own before the header, and reads.
_SEPARATOR_LINE = re.compile(r'\s*"?sep=([,;\t])"?[ ,;\t]*(?=\r?\n|\r|$)', re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')


def _separator_of(text: str) -> str:
    """Return what is between the columns: what the header has most of outside of quotes."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    bare = _QUOTED.sub("", header)
    return max((",", ";", "\t"), key=bare.count)


def lines_of(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows that are not empty, with the number of the line they end on.

    Raises:
        InvalidSpec: what is quoted is not quoted correctly.
    """
    if declared := _SEPARATOR_LINE.match(text):
        separator, text = (
            declared[1],
            text[declared.end() :],
        )  # the end of its line stays, and counts
    else:
        separator = _separator_of(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
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
) -> list[str | Conversion | None]:
    """Return the column of each cell: None for what is ignored, "" for one without a name."""
    if len(header) == 1:
        between = "|" if "|" in header[0] else " "
        words = header[0].split(between)
        if between == "|" or sum(bool(word and column_of(word, known)) for word in words) > 1:
            expected = "commas, semicolons or tabs between the columns"
            raise InvalidSpec("row 1", "'|'" if between == "|" else "spaces", expected)
    left_out = {name.strip().lower() for name in ignored}
    for name in sorted(left_out.intersection(known)):
        raise InvalidSpec(f"column {name}", name, "a column that has no meaning here, to ignore it")
    columns: list[str | Conversion | None] = []
    unknown: list[str] = []
    by_target: dict[str, list[str]] = {}
    doubtful = {*left_out, *(name.strip().lower() for name in least_of_several(header))}
    for name in header:
        column = None if name.strip().lower() in doubtful else column_of(name, known)
        columns.append(column)
        if column:
            target = column.target if isinstance(column, Conversion) else column
            by_target.setdefault(target, []).append(name.strip())
        elif column is None and name.strip().lower() not in left_out:
            unknown.append(name.strip())
    for i, column in enumerate(columns):
        # An export passes its throughput along; alone it says how long a step takes.
        conversion = CONVERTED.get(column) if isinstance(column, str) else None
        if conversion and conversion.target in known and conversion.target not in by_target:
            columns[i] = conversion
    missing = [name for name in required if name not in by_target]
    if unknown:
        raise _refuse_unknown(unknown, known=known, missing=missing)
    for target, names in by_target.items():
        if len(names) == 1:
            continue
        if all(name.lower() == target for name in names):
            raise InvalidSpec(f"column {target}", "it twice", "each column once")
        expected = f"one column that gives {target}; `--ignore` the others"
        raise InvalidSpec(f"columns {', '.join(names)}", "several", expected)
    if missing:
        raise _refuse_missing(missing, [name for name in header if name.strip()], known=known)
    return columns


def _refuse_missing(
    missing: Sequence[str], header: Sequence[str], *, known: Sequence[str]
) -> InvalidSpec:
    """Name all columns that are missing, and those left out that may have been meant by them."""
    left_out = [name.strip() for name in header if column_of(name, known) is None][:_MOST_NAMED]
    hints = [(name, hint_of(name, known)) for name in left_out]
    meant = [f"{n}: {hint}" for n, hint in hints if hint and any(m in hint for m in missing)]
    expected = "this column: it is required"
    if others := missing[1:]:
        expected += f", and so {'is' if len(others) == 1 else 'are'} {', '.join(others)}"
    if meant:
        expected += f" ({'; '.join(meant)})"
    return InvalidSpec(f"column {missing[0]}", None, expected)


def _refuse_unknown(
    unknown: Sequence[str], *, known: Sequence[str], missing: Sequence[str]
) -> InvalidSpec:
    """Name all columns that are not known at once, each with a hint where there is one."""
    shown_names, more = unknown[:_MOST_NAMED], len(unknown) - _MOST_NAMED
    wide = wide_columns(unknown)
    hints = []
    if wide:
        how = wide_hint(wide[0], known, missing=missing)
        hints.append(f"{', '.join(wide[:_SHOWN])}: {how}")
    found = [(name, hint_of(name, known)) for name in shown_names if name not in wide]
    hints += [f"{name}: {hint}" for name, hint in found if hint]
    if nameless := [name for name, hint in found if hint is None]:
        hints.append(f"{', '.join(nameless[:_SHOWN])}: none of {', '.join(known)}")
    if more > 0:
        hints.append(f"and {more} more")
    if missing:
        hints.append(f"{', '.join(missing)}: required, and not there")
    field_name = f"column{'s' if len(unknown) > 1 else ''} {', '.join(shown_names)}"
    shown = unknown[0] if len(unknown) == 1 else f"{len(unknown)} others"
    expected = f"columns of the measurement table, or `--ignore` for each ({'; '.join(hints)})"
    return InvalidSpec(field_name, shown, expected)


_SHOWN = 8
_MOST_NAMED = 20
