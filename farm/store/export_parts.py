"""The measurements of a sweep as rows of a file, in parts that fit into memory. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.store.measurements import EXPORT_COLUMNS
from farm.store.result_tables import MeasurementRow
from farm.store.tables import Job

_BYTES_PER_S_IN_ONE_MBIT_PER_S = 125_000
_ROWS_A_PART = 1000
# What a file has in another unit, or by another name.
_CONVERTED = {
    "pass": "training_pass",
    "one_way_delay_ms": "one_way_delay_s",
    "jitter_ms": "jitter_s",
    "bandwidth_mbit_per_s": "bandwidth_bytes_per_s",
    "packet_loss_percent": "packet_loss_ratio",
}


def export_parts(session: Session, sweep_id: int) -> Iterator[list[dict[str, object]]]:
    """Yield a sweep's measurements as rows of `EXPORT_COLUMNS`, by job.

    Delays are in milliseconds, bandwidths in megabits per second and losses in percent, as in
    every file that people read; what was not measured is None.
    """
    # Whole rows have twice as many columns, and take five times as long to load.
    columns = [getattr(MeasurementRow, _CONVERTED.get(name, name)) for name in EXPORT_COLUMNS]
    last_id = 0
    while True:
        rows = session.execute(
            select(Job.id, *columns)
            .join(MeasurementRow, MeasurementRow.job_id == Job.id)
            .where(Job.sweep_id == sweep_id, Job.id > last_id)
            .order_by(Job.id)
            .limit(_ROWS_A_PART)
        ).all()
        if not rows:
            return
        yield [_exported(row[1:]) for row in rows]
        last_id = rows[-1][0]


def _exported(values: Any) -> dict[str, object]:
    row: dict[str, Any] = dict(zip(EXPORT_COLUMNS, values, strict=True))
    # Rounded to a billionth, or 0.00397 s would be written as 3.9699999999999998 ms.
    for name, factor in (
        ("one_way_delay_ms", 1000),
        ("jitter_ms", 1000),
        ("packet_loss_percent", 100),
    ):
        row[name] = round(row[name] * factor, 9)
    bandwidth = row["bandwidth_mbit_per_s"]
    if bandwidth is not None:
        row["bandwidth_mbit_per_s"] = bandwidth / _BYTES_PER_S_IN_ONE_MBIT_PER_S
    return row
