"""Heat maps of a sweep as data: one metric over two of its axes, a shaded number in each field.

Pure: values only, which `web.drawing.rendered` draws. Every field shows its number, or the reason
why it has none, so the map can be read without colour.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.cells.axes import is_named, named_together
from farm.cells.choice import Choice
from farm.cells.groups import AxisValues, Groups, settled_axes
from farm.cells.table import CellLine, CellState, SweepTable
from farm.configuration.axis import Axis, Value
from farm.configuration.sweep_cell import read_shown
from farm.measuring.precision import RepetitionState
from farm.text.display import MISSING
from farm.text.plurals import counted

SHADES = 6  # of the style sheet, from least to most
MOST_COLUMNS = 16
_MOST_ROWS = 16
DISTURBED = "!"  # after a number that other load disturbed
UNKNOWN = "?"
_SPREAD_OF_LOGARITHMS = 10  # from this ratio of largest to smallest, shades follow the logarithm


class FieldKind(enum.Enum):
    """The kind of a field."""

    KNOWN = "known"
    FAILED = "failed"
    OPEN = "open"  # waits, runs, or was cancelled
    UNKNOWN = "unknown"  # measured, but not this value of it
    ELSEWHERE = "elsewhere"  # in the sweep, but not at what is held
    IMPOSSIBLE = "impossible"  # left out when the sweep was submitted
    MISSING = "missing"  # the sweep has no such cell


_SHADED = frozenset({FieldKind.FAILED, FieldKind.OPEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`text` is shown in the field, `description` is its full form.

    `shade` None: it has no number.
    """

    kind: FieldKind
    where: str
    text: str
    description: str
    job_id: int | None = None
    shade: int | None = None
    is_disturbed: bool = False

    @property
    def tone(self) -> str:
        """The colour's name in the style sheet."""
        if self.shade is not None:
            return f"h{self.shade}"
        return (self.kind if self.kind in _SHADED else FieldKind.MISSING).value


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """`fields` by row; `held`: the values of the other axes. `left_out`: what did not fit, or None.

    `differing`: the other axes that are not at one value in all fields. `least` and `most`: the
    ends of the shades; None without any number.
    """

    title: str
    summary: str
    x_title: str
    y_title: str
    columns: Sequence[str]
    rows: Sequence[str]
    fields: Sequence[Sequence[Field]]
    held: str
    differing: Sequence[str]
    left_out: str | None
    least: str | None
    most: str | None

    @property
    def remarks(self) -> list[str]:
        """Explanations of differences and of the signs in the fields, one sentence each."""
        kinds = {field.kind for row in self.fields for field in row}
        sentences = []
        if self.differing:
            names = " and ".join(self.differing)
            verb = "differs" if len(self.differing) == 1 else "differ"
            sentences.append(f"{names[0].upper()}{names[1:]} {verb} from field to field.")
        if any(field.is_disturbed for row in self.fields for field in row):
            sentences.append(
                f"{DISTURBED} after a number: other load disturbed a measurement behind it."
            )
        if FieldKind.UNKNOWN in kinds:
            sentences.append(f"{UNKNOWN}: measured, but this is not known of it.")
        if FieldKind.ELSEWHERE in kinds:
            sentences.append("Elsewhere: in this sweep, but not at what this map is held at.")
        if FieldKind.IMPOSSIBLE in kinds:
            sentences.append("Impossible: left out when the sweep was submitted.")
        if FieldKind.MISSING in kinds:
            sentences.append("A dash: not in this sweep.")
        return sentences

    @property
    def width_class(self) -> int:
        """How many columns it needs room for, in fours."""
        return math.ceil(len(self.columns) / 4) * 4


def heat_map(table: SweepTable, choice: Choice) -> HeatMap | None:
    """Map the chosen metric; None where the sweep varies nothing.

    What neither axis is, and is not held by the choice, is held where most cells are, unless the
    two axes settle it.
    """
    x, y = choice.x, choice.y
    if x is None:
        return None
    shown = [x] if y is None else [x, y]
    groups = Groups(table, choice, shown=shown, settled=settled_axes(table, choice, shown))
    largest = groups.largest(1)
    if not largest:
        return None
    [drawn] = largest
    columns = _held_to(x, table, choice, MOST_COLUMNS)
    rows = _held_to(y, table, choice, _MOST_ROWS) if y is not None else [None]
    values = {x.name: columns} if y is None else {x.name: columns, y.name: rows}
    cells = groups.completed(drawn, values)
    others = [axis for axis in table.axes if axis not in shown]
    held, differing = _common(list(cells.values()), others, axes_held=groups.rest)
    return _mapped(
        [[cells.get((c,) if y is None else (c, r)) for c in columns] for r in rows],
        choice,
        columns=columns,
        rows=rows,
        held=held,
        differing=differing,
        absent=_Absent(table, choice, shown=shown, others=others),
        left_out=_left_out(table, x, y, hidden_count=drawn.hidden_count),
    )


def _common(
    lines: Sequence[CellLine], axes: Sequence[Axis], *, axes_held: Sequence[Axis]
) -> tuple[str, list[Axis]]:
    """Return what the cells have in common on these axes, and the axes on which they differ.

    One machine that stands beside gangs does not count: it has neither their strategy nor network.
    """
    gangs = [line for line in lines if not line.configuration.is_one_machine] or lines
    values = {axis: {axis.value_of(line.configuration) for line in gangs} for axis in axes}
    common = [axis for axis in axes if len(values[axis]) == 1]
    differing = [axis for axis in axes if len(values[axis]) > 1 and axis not in axes_held]
    return named_together(common, [next(iter(values[axis])) for axis in common]), differing


class _Absent:
    """What is to be said of fields that have no cell in the group that is drawn."""

    def __init__(
        self,
        table: SweepTable,
        choice: Choice,
        *,
        shown: Sequence[Axis],
        others: Sequence[Axis],
    ) -> None:
        self._choice = choice
        self._others = others
        self._shown = shown
        self._elsewhere: dict[AxisValues, list[CellLine]] = {}
        at = [table.axes.index(axis) for axis in shown]
        for line, full in choice.admitted(table):
            self._elsewhere.setdefault(tuple([full[i] for i in at]), []).append(line)
        fixed = [axis for axis in others if axis.name in choice.fixed]
        values = [choice.fixed[axis.name] for axis in fixed]
        self._fixed = named_together(fixed, values)
        cells = [read_shown(line) for line in table.skipped]
        self._skipped = [
            (named, reason) for named, reason in cells if self._stands_at(named, fixed, values)
        ]

    def field(self, place: AxisValues, where: str) -> Field:
        """Return a field that says where in the sweep the cell is, or that it does not exist."""
        if lines := self._elsewhere.get(place):
            return _of(
                lines[0],
                FieldKind.ELSEWHERE,
                where,
                "elsewhere",
                description=self._said_elsewhere(lines),
            )
        reason = next(
            (why for named, why in self._skipped if self._stands_at(named, self._shown, place)),
            None,
        )
        if reason is not None:
            return Field(
                kind=FieldKind.IMPOSSIBLE,
                where=where,
                text="impossible",
                description=f"left out: {reason}",
            )
        at = f" at {self._fixed}" if self._fixed else ""
        return Field(
            kind=FieldKind.MISSING, where=where, text=MISSING, description=f"not in this sweep{at}"
        )

    def _said_elsewhere(self, lines: Sequence[CellLine]) -> str:
        line, metric = lines[0], self._choice.metric
        value = metric.read(line)
        found = line.state.value if value is None else metric.write(value)
        names = named_together(
            self._others, [axis.value_of(line.configuration) for axis in self._others]
        )
        more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
        return f"in this sweep at {names or 'other settings'}: {found}{more}"

    @staticmethod
    def _stands_at(named: Mapping[str, str], axes: Sequence[Axis], values: Sequence[Value]) -> bool:
        return all(is_named(axis, named, value) for axis, value in zip(axes, values, strict=True))


def _mapped(
    lines: Sequence[Sequence[CellLine | None]],
    choice: Choice,
    *,
    columns: Sequence[Value],
    rows: Sequence[Value],
    held: str,
    differing: Sequence[Axis],
    absent: _Absent,
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
    column_names = [x.text(value) for value in columns]
    row_names = ["" if y is None else y.text(value) for value in rows]

    def field_at(i: int, j: int) -> Field:
        where = f"{x.title.lower()} {column_names[i]}"
        if y is not None:
            where += f", {y.title.lower()} {row_names[j]}"
        line = lines[j][i]
        if line is None:
            return absent.field((columns[i],) if y is None else (columns[i], rows[j]), where)
        what = named_together(differing, [axis.value_of(line.configuration) for axis in differing])
        return _field(line, numbers.get((i, j)), choice, where=where, what=what, ends=ends)

    fields = [[field_at(i, j) for i in range(len(columns))] for j in range(len(rows))]
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
        differing=[axis.title.lower() for axis in differing],
        left_out=left_out,
        least=metric.write(ends[0]) if ends else None,
        most=metric.write(ends[1]) if ends else None,
    )


def _field(
    line: CellLine,
    value: float | None,
    choice: Choice,
    *,
    where: str,
    what: str,
    ends: tuple[float, float] | None,
) -> Field:
    """Return the field of a cell; `what` it is on the axes that differ from field to field."""
    if value is not None and ends is not None:
        text, shade = choice.metric.write(value), shade_of(value, *ends)
        description = ", ".join([text, *([what] if what else []), *_counts(line)])
        sign = f" {DISTURBED}" if line.is_disturbed else ""
        return _of(
            line, FieldKind.KNOWN, where, f"{text}{sign}", description=description, shade=shade
        )
    if line.state is CellState.FAILED:
        why = (line.failure_kind or "for an unknown reason").replace("_", " ")
        return _of(line, FieldKind.FAILED, where, "failed", description=f"failed, {why}")
    if line.state is CellState.MEASURED:
        description = "measured, but this is not known of it"
        return _of(line, FieldKind.UNKNOWN, where, UNKNOWN, description=description)
    text, failed = line.state.value, len(line.failed_job_ids)
    return _of(
        line,
        FieldKind.OPEN,
        where,
        text,
        description=f"{text}, {failed} failed" if failed else text,
    )


def _of(
    line: CellLine,
    kind: FieldKind,
    where: str,
    text: str,
    *,
    description: str,
    shade: int | None = None,
) -> Field:
    return Field(
        kind=kind,
        where=where,
        text=text,
        description=description,
        job_id=line.first_job_id,
        shade=shade,
        is_disturbed=kind is FieldKind.KNOWN and line.is_disturbed,
    )


def _counts(line: CellLine) -> list[str]:
    """Say on how many repetitions a number rests, and what became of the others."""
    known, total = len(line.times_s), len(line.repetitions)
    pending = sum(one.state is RepetitionState.PENDING for one in line.repetitions)
    of_all = f"{known} of {total}" if pending else str(known)
    parts = [f"{of_all} {'repetition' if total == 1 or of_all == '1' else 'repetitions'}"]
    if pending:
        parts[0] += " so far"
    if line.disturbed_text:
        parts.append(line.disturbed_text)
    if line.failed_job_ids:
        parts.append(f"{len(line.failed_job_ids)} failed")
    return parts


def shade_of(value: float, least: float, most: float) -> int:
    """Return the shade from 0 to SHADES - 1; by the logarithm where values span a decade."""
    if most <= least:
        return 0
    if least > 0 and most / least >= _SPREAD_OF_LOGARITHMS:
        share = math.log(value / least) / math.log(most / least)
    else:
        share = (value - least) / (most - least)
    return min(SHADES - 1, int(share * SHADES))


def _held_to(axis: Axis, table: SweepTable, choice: Choice, most: int) -> list[Value]:
    """Return the values of an axis that are shown: one where the choice holds it."""
    if axis.name in choice.fixed:
        return [choice.fixed[axis.name]]
    return list(table.values[axis.name][:most])


def _left_out(table: SweepTable, x: Axis, y: Axis | None, *, hidden_count: int) -> str | None:
    parts = [
        f"the first {most} of {len(table.values[axis.name])} values of {axis.title.lower()}"
        for axis, most in ((x, MOST_COLUMNS), (y, _MOST_ROWS))
        if axis is not None and len(table.values[axis.name]) > most
    ]
    if hidden_count:
        parts.append(
            counted(
                hidden_count,
                "cell stands behind another that differs in no axis",
                "cells stand behind others that differ in no axis",
            )
        )
    return "; ".join(parts) or None


def _summary(
    fields: Sequence[Sequence[Field]], numbers: dict[tuple[int, int], float], choice: Choice
) -> str:
    kinds = [field.kind for row in fields for field in row]
    parts = [f"{len(numbers)} of {len(kinds)} fields have a number"]
    if numbers:
        (i, j), least = min(numbers.items(), key=lambda item: item[1])
        (k, m), most = max(numbers.items(), key=lambda item: item[1])
        low, high = fields[j][i].where, fields[m][k].where
        parts.append(f"from {choice.metric.write(least)} at {low}")
        parts.append(f"to {choice.metric.write(most)} at {high}")
    failed = sum(kind is FieldKind.FAILED for kind in kinds)
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)
