"""Every table. Instants are UTC and aware; states are stored as their text.

Written for SQLite and PostgreSQL alike. The migrations build the same schema; a test holds the
two together.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from farm.core.lifecycle import AttemptState, JobState, RankPhase
from farm.core.messages import AgentState
from farm.core.trainer_lines import StepKind

_E = TypeVar("_E", bound=enum.Enum)

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


class Utc(TypeDecorator[dt.datetime]):
    """An aware instant in UTC. SQLite forgets time zones, so they are put back on reading."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> Any:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a naive instant, {value}, has no place in the store")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> dt.datetime | None:
        if value is None:
            return None
        stored: dt.datetime = value
        return stored.replace(tzinfo=dt.UTC) if stored.tzinfo is None else stored.astimezone(dt.UTC)


def _state(kind: type[_E], name: str) -> sa.Enum:
    return sa.Enum(
        kind,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=16,
        values_callable=lambda states: [s.value for s in states],
    )


class Table(DeclarativeBase):
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Sweep(Table):
    __tablename__ = "sweeps"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(sa.Text)
    spec: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # as submitted
    skipped: Mapped[list[str]] = mapped_column(sa.JSON)  # impossible cells left out, with reason
    created_at: Mapped[dt.datetime] = mapped_column(Utc)


class Job(Table):
    """`spec` is the whole JobSpec; the columns beside it are copies to filter and sort by."""

    __tablename__ = "jobs"
    __table_args__ = (
        sa.Index("ix_jobs_state_priority", "state", "priority"),
        sa.CheckConstraint(
            "(state IN ('leased', 'running')) = (attempt_id IS NOT NULL)", name="leased_has_attempt"
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    sweep_id: Mapped[int] = mapped_column(sa.ForeignKey("sweeps.id"), index=True)
    spec: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    cell_hash: Mapped[str] = mapped_column(sa.String(64), index=True)
    model: Mapped[str] = mapped_column(sa.Text)
    dataset: Mapped[str] = mapped_column(sa.Text)
    strategy: Mapped[str] = mapped_column(sa.Text)
    world_size: Mapped[int]
    global_batch_size: Mapped[int]
    repetition: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[JobState] = mapped_column(_state(JobState, "job_state"), index=True)
    # The current attempt, that is the only fencing token whose reports count; None unless active.
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    attempt_count: Mapped[int] = mapped_column(default=0)  # since it was last asked for
    due_at: Mapped[dt.datetime] = mapped_column(Utc)  # waits from here on; later than now: a pause
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    failure_kind: Mapped[str | None] = mapped_column(sa.String(32))
    reason: Mapped[str | None] = mapped_column(sa.Text)
    created_at: Mapped[dt.datetime] = mapped_column(Utc)
    finished_at: Mapped[dt.datetime | None] = mapped_column(Utc)


class Agent(Table):
    """`unclean_token`: the attempt whose end the agent has not yet confirmed by a heartbeat.

    It is leased again only when a heartbeat says that it serves nothing and has seen a token at
    least as high, so that a late command of the old attempt can no longer start anything.
    """

    __tablename__ = "agents"

    id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    boot_id: Mapped[str] = mapped_column(sa.String(64))
    beat_counter: Mapped[int] = mapped_column(sa.BigInteger)
    state: Mapped[AgentState] = mapped_column(_state(AgentState, "agent_state"))
    heartbeat_at: Mapped[dt.datetime | None] = mapped_column(Utc, index=True)  # last fresh one
    first_seen_at: Mapped[dt.datetime] = mapped_column(Utc)
    clock_offset_s: Mapped[float | None]  # agent's clock minus the server's, the way included
    machine_id: Mapped[str] = mapped_column(sa.String(128))
    facts: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # AgentFacts
    fingerprint: Mapped[str] = mapped_column(sa.String(64))  # hash of the hardware
    is_drained: Mapped[bool] = mapped_column(default=False)
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    lease_expires_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    # The boot that took the leased rank, or will: a later boot cannot vouch for it.
    lease_boot_id: Mapped[str | None] = mapped_column(sa.String(64))
    unclean_token: Mapped[int | None] = mapped_column(BigId)
    stop_sent_at: Mapped[dt.datetime | None] = mapped_column(Utc)


class Attempt(Table):
    """Its id is the fencing token, so ids are never used twice, not even on SQLite."""

    __tablename__ = "attempts"
    __table_args__ = (
        sa.UniqueConstraint("job_id", "number"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(sa.ForeignKey("jobs.id"))
    number: Mapped[int]  # from 1, over the whole life of the job
    state: Mapped[AttemptState] = mapped_column(_state(AttemptState, "attempt_state"), index=True)
    state_since: Mapped[dt.datetime] = mapped_column(Utc)
    leased_at: Mapped[dt.datetime] = mapped_column(Utc)
    started_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # every rank did its first step
    ended_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    failure_kind: Mapped[str | None] = mapped_column(sa.String(32))
    reason: Mapped[str | None] = mapped_column(sa.Text)


class Rank(Table):
    """One member of one attempt, and what it has reported once."""

    __tablename__ = "ranks"

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    agent_id: Mapped[str] = mapped_column(sa.ForeignKey("agents.id"), index=True)
    phase: Mapped[RankPhase] = mapped_column(_state(RankPhase, "rank_phase"))
    commanded_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # last command of this phase
    hardware: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # at the time of the lease
    # Each the JSON of the report of that name in farm.core.messages, as it came.
    prepared: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    peers: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    shaped: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    started: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    ended: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    ended_at: Mapped[dt.datetime | None] = mapped_column(Utc)


class JobEvent(Table):
    """The story of a job: every change of state of it and of its attempts, with the reason."""

    __tablename__ = "job_events"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(sa.ForeignKey("jobs.id"), index=True)
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    at: Mapped[dt.datetime] = mapped_column(Utc)
    event: Mapped[str] = mapped_column(sa.String(64))  # such as "job: running", "attempt: lost"
    reason: Mapped[str | None] = mapped_column(sa.Text)


class SampleRow(Table):
    """One tick of one rank. `day` is the attempt's day, so a repeated report finds its row."""

    __tablename__ = "samples"

    day: Mapped[dt.date] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tick: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
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
    extra: Mapped[dict[str, float] | None] = mapped_column(sa.JSON(none_as_null=True))


class StepChunk(Table):
    """Consecutive step times of one kind, compressed; quantiles beside them for plain SQL."""

    __tablename__ = "step_chunks"

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[StepKind] = mapped_column(_state(StepKind, "step_kind"))
    begun_s: Mapped[float]
    step_count: Mapped[int]
    median_s: Mapped[float]
    p95_s: Mapped[float]
    times: Mapped[bytes] = mapped_column(sa.LargeBinary)  # zlib of little-endian float64, seconds


class EpochRow(Table):
    __tablename__ = "epochs"

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    train_s: Mapped[float]
    step_count: Mapped[int]
    train_loss: Mapped[float | None]
    val_loss: Mapped[float | None]
    val_accuracy_ratio: Mapped[float | None]


class MeasurementRow(Table):
    """One row per finished job or imported cell. `origin` and `source_key` name its source."""

    __tablename__ = "measurements"
    __table_args__ = (
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
    model: Mapped[str | None] = mapped_column(sa.Text)
    dataset: Mapped[str | None] = mapped_column(sa.Text)
    training_pass: Mapped[str] = mapped_column(sa.String(32))
    framework: Mapped[str | None] = mapped_column(sa.Text)
    strategy: Mapped[str | None] = mapped_column(sa.Text)
    placement: Mapped[str | None] = mapped_column(sa.Text)
    network: Mapped[str | None] = mapped_column(sa.Text)
    instance_type: Mapped[str | None] = mapped_column(sa.Text)
    world_size: Mapped[int]
    server_count: Mapped[int] = mapped_column(default=0)
    global_batch_size: Mapped[int]
    one_way_delay_s: Mapped[float] = mapped_column(default=0.0)
    bandwidth_bytes_per_s: Mapped[float | None]
    packet_loss_ratio: Mapped[float] = mapped_column(default=0.0)
    jitter_s: Mapped[float] = mapped_column(default=0.0)
    repetition: Mapped[int] = mapped_column(default=0)
    fingerprint: Mapped[str | None] = mapped_column(sa.String(64))
    step_time_s: Mapped[float | None]  # median of the timed steps
    step_time_p25_s: Mapped[float | None]
    step_time_p75_s: Mapped[float | None]
    step_time_spread_s: Mapped[float | None]  # p75 - p25
    timed_step_count: Mapped[int | None]
    steps_per_epoch: Mapped[int | None]
    time_per_epoch_s: Mapped[float | None]
    epochs: Mapped[int | None]
    accuracy: Mapped[float | None]  # val_accuracy_ratio at the end
    throughput_examples_per_s: Mapped[float | None]
    parameter_count: Mapped[int | None] = mapped_column(sa.BigInteger)
    gradient_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    compute_s: Mapped[float | None]  # per step, mean over the ranks
    communication_s: Mapped[float | None]
    profiled_step_time_s: Mapped[float | None]
    cpu_ratio: Mapped[float | None]  # means over ranks and ticks of the timed window
    resident_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)  # largest over ranks
    net_rx_bytes_per_s: Mapped[float | None]
    net_tx_bytes_per_s: Mapped[float | None]
    sent_bytes_per_step: Mapped[float | None]  # one rank's, see farm.core.measurement
    rtt_s: Mapped[float | None]  # largest between two ranks, as shaped
    details: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # data source, seed, ranks' hardware


class SpoolPosition(Table):
    """How far the reports of one spool generation are stored: what the agent may forget."""

    __tablename__ = "spool_positions"

    agent_id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    generation: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    confirmed_number: Mapped[int] = mapped_column(sa.BigInteger)
    updated_at: Mapped[dt.datetime] = mapped_column(Utc)


class LateReport(Table):
    """A report that was not admitted: kept and counted, never dropped in silence."""

    __tablename__ = "late_reports"
    __table_args__ = (sa.UniqueConstraint("agent_id", "generation", "number"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    agent_id: Mapped[str] = mapped_column(sa.String(128))
    generation: Mapped[str] = mapped_column(sa.String(64))
    number: Mapped[int] = mapped_column(sa.BigInteger)
    token: Mapped[int] = mapped_column(sa.BigInteger)
    rank: Mapped[int]
    kind: Mapped[str] = mapped_column(sa.String(32))
    body: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    received_at: Mapped[dt.datetime] = mapped_column(Utc)
    reason: Mapped[str] = mapped_column(sa.Text)
