"""Formats the measured cells of a sweep as a table of text, with a legend. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from farm.cells.axes import COLUMN_AXES, places_of
from farm.cells.choice import STEP_TIME, columns_of
from farm.cells.configuration import CellConfiguration
from farm.cells.table import CellLine
from farm.configuration.axis import Axis, Value
from farm.measuring.measurement import STEP_TIME_NOTE
from farm.measuring.noise import disturbed_by
from farm.measuring.precision import TimeRatio
from farm.text.columns import Column
from farm.text.display import MISSING, between, duration, in_text, plus_minus, short_fingerprint
from farm.text.plurals import counted

REPETITIONS_COLUMN = Column("repetitions", is_right=True)


class NamedLine(Protocol):
    """A line of a table that `naming_columns` names."""

    @property
    def configuration(self) -> CellConfiguration: ...

    @property
    def fingerprint(self) -> str | None: ...

    @property
    def framework(self) -> str | None: ...


def axis_column(axis: Axis) -> Column:
    """Return the column of an axis, under its title."""
    return Column(in_text(axis.title), is_right=axis.is_number)


def quantity_column(title: str) -> Column:
    """Return the column of a measured quantity."""
    return Column(in_text(title), is_right=True)


def notes(lines: Sequence[CellLine]) -> list[str]:
    """Return a legend of the signs that occur in the table."""
    found = []
    if any(line.statistics.half_width_ratio is not None for line in lines):
        found.append("±: 95 % interval of the median step time, over the repetitions")
    if any(_shows_steps(line) for line in lines):
        found.append("in parentheses: the middle half of the steps within a repetition")
    if job_ids := sorted(job_id for line in lines for job_id in line.statistics.outlier_job_ids):
        named = ", ".join(str(job_id) for job_id in job_ids)
        found.append(f"*: repetitions far from the others, which count, too: job {named}")
    if lines:
        found.append(STEP_TIME_NOTE)
    return [*found, *_disturbed(lines)]


def _disturbed(lines: Sequence[CellLine]) -> list[str]:
    disturbed = [one for line in lines for one in line.disturbed]
    if not disturbed:
        return []
    count = sum(line.repetition_count + line.set_aside_count for line in lines)
    sign = "!: " if any(line.is_disturbed for line in lines) else ""
    note = (
        f"{sign}{len(disturbed)} of {counted(count, 'repetition')} "
        f"{'was' if len(disturbed) == 1 else 'were'} disturbed, by {disturbed_by(disturbed)}"
    )
    if set_aside_count := sum(line.set_aside_count for line in lines):
        verb = "does" if set_aside_count == 1 else "do"
        note += (
            f"; {set_aside_count} of them {verb} not count, since undisturbed ones of the cell do"
        )
    return [note]


def table(lines: Sequence[CellLine]) -> tuple[list[Column], list[list[str]]]:
    """Return columns and rows, with columns in front for all that distinguishes cells."""
    columns = [
        *naming_columns(lines),
        (REPETITIONS_COLUMN, [repetitions_text(line) for line in lines]),
        (quantity_column(STEP_TIME.title), [step_time_text(line) for line in lines]),
        *(
            (quantity_column(one.title), [one.write(one.read(line)) for line in lines])
            for one in columns_of(lines)
        ),
    ]
    texts = [column for _, column in columns]
    return [column for column, _ in columns], [list(row) for row in zip(*texts, strict=True)]


def naming_columns(lines: Sequence[NamedLine]) -> list[tuple[Column, list[str]]]:
    """Return the columns that identify the cell of each line, with a text for each line.

    The first are those in which the lines differ.
    """
    return [
        *_distinguishing_columns(lines),
        *(
            (
                axis_column(axis),
                [_text(axis, axis.value_of(line.configuration)) for line in lines],
            )
            for axis in COLUMN_AXES
        ),
    ]


def _distinguishing_columns(lines: Sequence[NamedLine]) -> list[tuple[Column, list[str]]]:
    """Return what else tells cells apart, with a text for each cell."""
    axes, places, _ = places_of([line.configuration for line in lines])
    found = [
        (
            axis_column(axis),
            [_text(axis, place[i]) for place in places],
        )
        for i, axis in enumerate(axes)
        if axis not in COLUMN_AXES
    ]
    hardware = [short_fingerprint(line.fingerprint or MISSING) for line in lines]
    frameworks = [line.framework or MISSING for line in lines]
    for title, texts in (("framework", frameworks), ("hardware", hardware)):
        if len(set(texts)) > 1:
            found.append((Column(title), texts))
    return found


def _text(axis: Axis, value: Value) -> str:
    return MISSING if value is None and not axis.is_number else axis.text(value)


def repetitions_text(line: CellLine) -> str:
    """Write how many repetitions count, and the signs that `notes` explains."""
    target = line.statistics.target
    stands = "" if target is None else f" {target.value.replace('_', ' ')}"
    far = "*" if line.statistics.outlier_job_ids else ""
    disturbed = "!" if line.is_disturbed else ""
    return f"{line.repetition_count}{far}{disturbed}{stands}"


def _shows_steps(line: CellLine) -> bool:
    no_interval = line.statistics.half_width_ratio is None
    return no_interval and line.median("step_time_p25_s") is not None


def step_time_text(line: CellLine) -> str:
    """Write the step time with its interval.

    Two repetitions have no interval to speak of: then it is shown how steps differ within.
    """
    known = line.statistics
    text = duration(line.median_s)
    if not _shows_steps(line):
        return f"{text} {plus_minus(known.half_width_ratio)}".rstrip()
    low_s, high_s = line.median("step_time_p25_s"), line.median("step_time_p75_s")
    middle = between(low_s, high_s, line.median_s)
    return f"{text} ({middle})"


def ratio_text(ratio: TimeRatio | None) -> str:
    """Write how many times as long, with the 95 % interval."""
    if ratio is None:
        return MISSING
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3f}"
    return f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
