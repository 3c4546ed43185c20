"""Tables of results: samples, step times, epochs, logs and measurements."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from farm.configuration.axes import AXES
from farm.configuration.axis import Axis, AxisKind
from farm.measuring.imported import UNSAID
from farm.measuring.quantities import QUANTITIES, Quantity
from farm.messages.trainer_lines import StepKind
from farm.store.base import BigId, Table, Utc, axis_type, state_column
from farm.values.fields import Amount, Boolean, WholeNumber
from farm.values.ranges import (
    Duration,
    FiniteFloat,
    Rate,
    Share,
)


class SampledColumns:
    """What one tick has measured: the columns of samples, imported ones too."""

    machine_cpu_ratio: Mapped[float | None]
    machine_steal_ratio: Mapped[float | None]
    cpu_ratio: Mapped[float | None]
    memory_used_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    resident_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    net_rx_bytes_per_s: Mapped[float | None]
    net_tx_bytes_per_s: Mapped[float | None]
    disk_read_bytes_per_s: Mapped[float | None]
    disk_write_bytes_per_s: Mapped[float | None]
    disk_read_operations_per_s: Mapped[float | None]
    disk_write_operations_per_s: Mapped[float | None]
    swap_bytes_per_s: Mapped[float | None]
    throttled_ratio: Mapped[float | None]
    # How many ticks, this one the last, the row is the mean of: above 1 once it was thinned.
    span_ticks: Mapped[int] = mapped_column(default=1, server_default="1")
    extra: Mapped[dict[str, float] | None] = mapped_column(sa.JSON(none_as_null=True))


class SampleRow(SampledColumns, Table):
    """One tick of one rank. `day` is the attempt's day, so a repeated report finds its row.

    Written by the collector; thinned and removed by `farm db prune`.
    """

    __tablename__ = "samples"

    day: Mapped[dt.date] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tick: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class ImportedSampleRow(SampledColumns, Table):
    """A sample of another farm, by the numbers that its job and attempt have there.

    Written by imports, of commands and the web server; removed by `farm db prune`.
    """

    __tablename__ = "imported_samples"

    origin: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    attempt_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tick: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[int] = mapped_column(BigId)


class StepChunk(Table):
    """Consecutive step times of one kind, compressed; quantiles beside them for plain SQL.

    Written by the collector.
    """

    __tablename__ = "step_chunks"

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # Which of the agent's ranks made them.
    process: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, server_default=sa.text("0")
    )
    first_step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[StepKind] = mapped_column(state_column(StepKind, "step_kind"))
    begun_s: Mapped[float]
    step_count: Mapped[int]
    median_s: Mapped[float]
    p95_s: Mapped[float]
    times: Mapped[bytes] = mapped_column(sa.LargeBinary)  # zlib of little-endian float64, seconds


class EpochRow(Table):
    """One pass of a rank over the training set.

    Written by the collector.
    """

    __tablename__ = "epochs"

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    train_s: Mapped[float]
    step_count: Mapped[int]
    train_loss: Mapped[FiniteFloat | None]
    val_loss: Mapped[FiniteFloat | None]
    val_accuracy_ratio: Mapped[Share | None]


class LogPartRow(Table):
    """What the trainers of a rank wrote, one piece of it; a rank's pieces follow each other.

    Written by the collector; removed by `farm db prune`.
    """

    __tablename__ = "log_parts"
    # Each row may have some ten thousand characters: `farm db copy` takes fewer of them at once.
    __table_args__ = ({"info": {"rows_at_once": 200}},)

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_character: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    text: Mapped[str] = mapped_column(sa.Text)


def axis_column(axis: Axis) -> sa.ColumnElement[Any]:
    """Return an axis of measurements as SQL: its column, or its value in `details.axes`."""
    if axis.has_column:
        return MeasurementRow.__table__.c[axis.stored]
    value = MeasurementRow.details["axes"][axis.field]
    found: sa.ColumnElement[Any]
    match axis.type:
        case WholeNumber():
            found = value.as_integer()
        case Amount():
            found = value.as_float()
        case Boolean():
            found = value.as_boolean()
        case _:
            found = value.as_string()
    return found


def axis_value(axis: Axis) -> sa.ColumnElement[Any]:
    """Return the same with the value of older measurements that lack the axis."""
    absent = axis.value_in({"server_count": 1})
    return axis_column(axis) if absent is None else sa.func.coalesce(axis_column(axis), absent)


def quantity_column(quantity: Quantity) -> sa.ColumnElement[Any]:
    """Return a quantity of measurements as SQL: its column, or its value in the details."""
    if quantity.stored_as is not None:
        return MeasurementRow.__table__.c[quantity.name]
    # As a float also where it is whole: an integer of a database has 32 bits.
    found: sa.ColumnElement[Any] = MeasurementRow.details["quantities"][quantity.name].as_float()
    return found


class MeasurementRow(Table):
    """One row per finished job or imported cell. `origin` and `source_key` name its source.

    The columns of axes and quantities are made from their declarations. An import has to give a
    size, and gives a value of the axes in `UNSAID`; it may not know the others.

    Written by the scheduler, as it ends an attempt (`farm.store.gangs.decisions`), and by imports;
    removed by retries of the job, and by the removal of an import.
    """

    __tablename__ = "measurements"
    __table_args__ = (
        *(
            sa.Column(
                axis.stored,
                axis_type(axis),
                nullable=axis.kind is not AxisKind.SIZE and UNSAID.get(axis.stored) is None,
                default=UNSAID.get(axis.stored),
            )
            for axis in AXES
            if axis.has_column
        ),
        *(
            sa.Column(quantity.name, Table.type_annotation_map[quantity.stored_as])
            for quantity in QUANTITIES
            if quantity.stored_as is not None
        ),
        sa.UniqueConstraint("origin", "source_key"),
        sa.Index("ix_measurements_question", "origin", "model", "dataset", "global_batch_size"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    origin: Mapped[str] = mapped_column(sa.String(64))  # "farm", or an imported study
    source_key: Mapped[str] = mapped_column(sa.String(64))  # "job 17", or the imported row's hash
    job_id: Mapped[int | None] = mapped_column(sa.ForeignKey("jobs.id"), unique=True)
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    created_at: Mapped[dt.datetime] = mapped_column(Utc)
    status: Mapped[str] = mapped_column(sa.String(32))  # "ok", or a FailureKind
    framework: Mapped[str | None] = mapped_column(sa.Text)
    instance_type: Mapped[str | None] = mapped_column(sa.Text)
    repetition: Mapped[int] = mapped_column(default=0)
    fingerprint: Mapped[str | None] = mapped_column(sa.String(64))
    step_time_low_s: Mapped[Duration | None]  # 95 % interval of the median, within this attempt
    step_time_high_s: Mapped[Duration | None]
    outlier_step_count: Mapped[int | None]  # far from the median; counted in it all the same
    parameter_count: Mapped[int | None] = mapped_column(sa.BigInteger)
    gradient_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    rtt_s: Mapped[Duration | None]  # largest between two ranks, as shaped
    measured_bandwidth_bytes_per_s: Mapped[Rate | None]  # smallest of a rank to another, as shaped
    # Largest of a rank to another beside one bulk stream; why it is None: details.unmeasured.
    loaded_rtt_s: Mapped[Duration | None]
    control_ratio: Mapped[Rate | None]  # slowest rank's control run over its agent's own past
    # What disturbed it, each {"kind", "message", "value"}; empty: nothing was seen.
    flags: Mapped[list[dict[str, Any]]] = mapped_column(sa.JSON, default=list, server_default="[]")
    details: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # data source, seed, ranks' hardware

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # a column of an axis or a quantity


# The same columns by name, those of axes and quantities too: `MEASUREMENTS.step_time_s`.
MEASUREMENTS = MeasurementRow.__table__.c
