"""What a job is compared with: like configurations with one axis changed, and their ratio to it.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from farm.configuration.axes import AXES, BY_NAME, STRATEGY, Axis, AxisKind, Value, spec_values
from farm.configuration.spec import JobSpec
from farm.statistics.means import mean, quantile
from farm.store.measurements.neighbours import Neighbour
from farm.text.nouns import counted
from web.setup_words import setup_words

_MOST_OF_AN_AXIS = 12
# In the order in which a page has them.
_AXES = (
    *(BY_NAME[name] for name in ("world_size", "global_batch_size", "pass", "strategy")),
    *(axis for axis in AXES if axis.kind in (AxisKind.SETUP, AxisKind.LINK, AxisKind.PROFILE)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The measurements of one configuration that differs in `axis` alone; times are medians.

    The ratios are its value over the job's; None where either was not measured. `job_id` is the
    latest of them.
    """

    axis: str
    value: str
    job_id: int
    repetition_count: int
    step_time_s: float
    step_ratio: float | None
    throughput_examples_per_s: float | None
    throughput_ratio: float | None
    is_disturbed: bool


@dataclass(frozen=True, slots=True)
class _Cell:
    axis: Axis
    key: Value
    value: str
    rows: list[Neighbour]


def compare(
    spec: JobSpec,
    neighbours: Sequence[Neighbour],
    *,
    step_time_s: float | None,
    throughput_examples_per_s: float | None,
) -> list[Compared]:
    """Group neighbours, the latest first, into configurations, and hold them against the job."""
    own = spec_values(spec)
    cells: dict[object, _Cell] = {}
    for row in neighbours:
        axis, key, value = _difference(own, row)
        # Kinds of hardware and of emulators stay apart, as everywhere.
        setup = tuple(setup_words(row.values))
        identity = (axis, key, row.values["strategy"], setup, row.network, row.fingerprint)
        cells.setdefault(identity, _Cell(axis, key, value, [])).rows.append(row)
    found: list[Compared] = []
    for axis in _AXES:
        of_axis = [cell for cell in cells.values() if cell.axis == axis]
        latest = of_axis[:_MOST_OF_AN_AXIS]
        latest.sort(key=_order)
        found += [_compared(cell, step_time_s, throughput_examples_per_s) for cell in latest]
    return found


def _order(cell: _Cell) -> tuple[bool, bool, Any]:
    # Not limited is more than any limit.
    return isinstance(cell.key, str), cell.key is None, cell.key or 0


def _compared(
    cell: _Cell, step_time_s: float | None, throughput_examples_per_s: float | None
) -> Compared:
    times_s = sorted(row.step_time_s for row in cell.rows)
    median_s = quantile(times_s, 0.5)
    throughput = mean(row.throughput_examples_per_s for row in cell.rows)
    return Compared(
        axis=cell.axis.title.lower(),
        value=cell.value,
        job_id=cell.rows[0].job_id,
        repetition_count=len(cell.rows),
        step_time_s=median_s,
        step_ratio=median_s / step_time_s if step_time_s else None,
        throughput_examples_per_s=throughput,
        throughput_ratio=throughput / throughput_examples_per_s
        if throughput is not None and throughput_examples_per_s
        else None,
        is_disturbed=any(row.is_disturbed for row in cell.rows),
    )


def _difference(own: Mapping[str, Value], row: Neighbour) -> tuple[Axis, Value, str]:
    """Return the axis in which a neighbour differs, its value there, and as it is written."""
    axis = next((one for one in _AXES if row.values[one.field] != own[one.field]), _AXES[0])
    value = row.values[axis.field]
    strategy = str(row.values["strategy"] or "unnamed")
    if axis is STRATEGY:
        text = ", ".join([strategy, *setup_words(row.values)])
        return axis, text, text
    if axis.name != "world_size":
        is_said = axis.is_number and value is not None
        return axis, value, axis.said(value) if is_said else axis.text(value)
    machines = counted(cast(int, value), "machine")
    is_other = row.values["strategy"] != own["strategy"]
    return axis, value, f"{machines}, {strategy}" if is_other else machines
