"""A metric of a sweep's cells over two of its axes: fields with numbers, shaded by size.

Values only; `web.drawing.heat_map` draws them. Pure.
Legible without colour: every field has its number, or says why it has none.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from farm.figures.cell_axes import CellAxis, Value, named_together
from farm.figures.cell_groups import Groups
from farm.figures.display import MISSING
from farm.figures.sweep_choice import Choice
from farm.figures.sweep_table import CellLine, CellState, SweepTable

SHADES = 6  # of the style sheet, from least to most
MOST_COLUMNS = 16
MOST_ROWS = 16
_SPREAD_OF_LOGARITHMS = 10  # from this ratio of largest to smallest, shades follow the logarithm


class FieldKind(enum.Enum):
    """What a field says."""

    KNOWN = "known"
    FAILED = "failed"
    OPEN = "open"  # waits, runs, or was cancelled
    MISSING = "missing"  # the sweep has no such cell, or not this value of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`text` stands in the field at `where`, `said` in full. `shade` None: it has no number."""

    kind: FieldKind
    where: str
    text: str
    said: str
    job_id: int | None = None
    shade: int | None = None

    @property
    def tone(self) -> str:
        """The colour's name in the style sheet."""
        return self.kind.value if self.shade is None else f"h{self.shade}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """`fields` by row; `held`: what the other axes are at. `left_out`: what did not fit, or None.

    `least` and `most`: the ends of the shades; None without any number.
    """

    title: str
    summary: str
    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    fields: Sequence[Sequence[Field]]
    held: str
    left_out: str | None
    least: str | None
    most: str | None

    @property
    def width_class(self) -> int:
        """How many columns it needs room for, in fours."""
        return math.ceil(len(self.columns) / 4) * 4


def heat_map(table: SweepTable, choice: Choice) -> HeatMap | None:
    """Map the chosen metric; None where the sweep varies nothing.

    What neither axis is, and is not held by the choice, is held where most cells are.
    """
    x, y = choice.x, choice.y
    if x is None:
        return None
    shown = [x] if y is None else [x, y]
    groups = Groups(table, choice, shown=shown)
    largest = groups.largest(1)
    if not largest:
        return None
    columns = _held_to(x, table, choice, MOST_COLUMNS)
    rows = _held_to(y, table, choice, MOST_ROWS) if y is not None else [None]
    values = {x.name: columns} if y is None else {x.name: columns, y.name: rows}
    cells = groups.completed(largest[0], values)
    lines = [[cells.get((c,) if y is None else (c, r)) for c in columns] for r in rows]
    return _mapped(
        lines,
        choice,
        columns=columns,
        rows=rows,
        held=_held(largest[0].rest, groups.rest),
        left_out=_left_out(table, x, y, hidden_count=largest[0].hidden_count),
    )


def _mapped(
    lines: Sequence[Sequence[CellLine | None]],
    choice: Choice,
    *,
    columns: Sequence[Value],
    rows: Sequence[Value],
    held: str,
    left_out: str | None,
) -> HeatMap:
    metric, x, y = choice.metric, choice.x, choice.y
    assert x is not None
    numbers = {
        (i, j): value
        for j, row in enumerate(lines)
        for i, line in enumerate(row)
        if line is not None and (value := metric.read(line)) is not None
    }
    ends = (min(numbers.values()), max(numbers.values())) if numbers else None
    column_names = [x.write(value) for value in columns]
    row_names = ["" if y is None else y.write(value) for value in rows]
    fields = [
        [
            _field(
                line,
                numbers.get((i, j)),
                choice,
                where=_where((x, column_names[i]), (y, row_names[j])),
                ends=ends,
            )
            for i, line in enumerate(row)
        ]
        for j, row in enumerate(lines)
    ]
    over = x.title if y is None else f"{x.title} and {y.title.lower()}"
    return HeatMap(
        title=f"{metric.title} over {over[0].lower()}{over[1:]}",
        summary=_summary(fields, numbers, choice),
        x_title=x.title,
        y_title="" if y is None else y.title,
        columns=column_names,
        rows=row_names,
        fields=fields,
        held=held,
        left_out=left_out,
        least=metric.write(ends[0]) if ends else None,
        most=metric.write(ends[1]) if ends else None,
    )


def _field(
    line: CellLine | None,
    value: float | None,
    choice: Choice,
    *,
    where: str,
    ends: tuple[float, float] | None,
) -> Field:
    if line is None:
        return Field(kind=FieldKind.MISSING, where=where, text=MISSING, said="not in this sweep")
    if value is not None and ends is not None:
        text, shade = choice.metric.write(value), shade_of(value, *ends)
        return _of(line, FieldKind.KNOWN, where, text, said=_told(line, text), shade=shade)
    if line.state is CellState.FAILED:
        why = (line.failure_kind or "for an unknown reason").replace("_", " ")
        return _of(line, FieldKind.FAILED, where, "failed", said=f"failed, {why}")
    if line.state is CellState.MEASURED:
        said = "measured, but this is not known of it"
        return _of(line, FieldKind.MISSING, where, "?", said=said)
    text = line.state.value
    return _of(line, FieldKind.OPEN, where, text, said=text)


def _of(
    line: CellLine, kind: FieldKind, where: str, text: str, *, said: str, shade: int | None = None
) -> Field:
    job_id = line.first_job_id
    return Field(kind=kind, where=where, text=text, said=said, job_id=job_id, shade=shade)


def _told(line: CellLine, text: str) -> str:
    known = len(line.times_s)
    told = f"{text}, {known} {'repetition' if known == 1 else 'repetitions'}"
    return f"{told}, {len(line.failed_job_ids)} failed" if line.failed_job_ids else told


def shade_of(value: float, least: float, most: float) -> int:
    """Return the shade from 0 to SHADES - 1; by the logarithm where values span a decade."""
    if most <= least:
        return 0
    if least > 0 and most / least >= _SPREAD_OF_LOGARITHMS:
        share = math.log(value / least) / math.log(most / least)
    else:
        share = (value - least) / (most - least)
    return min(SHADES - 1, int(share * SHADES))


def _held_to(axis: CellAxis, table: SweepTable, choice: Choice, most: int) -> list[Value]:
    """Return the values of an axis that are shown: one where the choice holds it."""
    if axis.name in choice.fixed:
        return [choice.fixed[axis.name]]
    return list(table.values[axis.name][:most])


def _held(rest: Sequence[Value], axes: Sequence[CellAxis]) -> str:
    return named_together(axes, rest)


def _left_out(
    table: SweepTable, x: CellAxis, y: CellAxis | None, *, hidden_count: int
) -> str | None:
    said = [
        f"the first {most} of {len(table.values[axis.name])} values of {axis.title.lower()}"
        for axis, most in ((x, MOST_COLUMNS), (y, MOST_ROWS))
        if axis is not None and len(table.values[axis.name]) > most
    ]
    if hidden_count:
        said.append(
            "1 cell stands behind another that differs in no axis"
            if hidden_count == 1
            else f"{hidden_count} cells stand behind others that differ in no axis"
        )
    return "; ".join(said) or None


def _where(*named: tuple[CellAxis | None, str]) -> str:
    parts = [f"{axis.title.lower()} {text}" for axis, text in named if axis is not None]
    return ", ".join(parts)


def _summary(
    fields: Sequence[Sequence[Field]], numbers: dict[tuple[int, int], float], choice: Choice
) -> str:
    kinds = [field.kind for row in fields for field in row]
    said = [f"{len(numbers)} of {len(kinds)} fields have a number"]
    if numbers:
        (i, j), least = min(numbers.items(), key=lambda item: item[1])
        (k, m), most = max(numbers.items(), key=lambda item: item[1])
        low, high = fields[j][i].where, fields[m][k].where
        said.append(f"from {choice.metric.write(least)} at {low}")
        said.append(f"to {choice.metric.write(most)} at {high}")
    failed = sum(kind is FieldKind.FAILED for kind in kinds)
    if failed:
        said.append(f"{failed} failed")
    return ", ".join(said)
