"""The first schema.

Names of constraints and indexes follow the naming convention in `farm.store.tables`.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)

# In order of creation: a table comes after those it refers to.
_TABLES = (
    "sweeps",
    "jobs",
    "agents",
    "attempts",
    "ranks",
    "job_events",
    "samples",
    "step_chunks",
    "epochs",
    "measurements",
    "spool_positions",
    "late_reports",
)


def upgrade() -> None:
    _create_sweeps_and_jobs()
    _create_agents()
    _create_attempts()
    _create_series()
    _create_measurements()
    _create_reports()


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _required(name: str, *kind_and_more: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, *kind_and_more, nullable=False, **options)


def _key(name: str, kind: Any, *more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, primary_key=True, autoincrement=False)


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Double()) for name in names]


def _state(name: str, *states: str) -> sa.Enum:
    return sa.Enum(*states, name=name, native_enum=False, create_constraint=True, length=16)


def _create_sweeps_and_jobs() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", _ID, primary_key=True),
        _required("name", sa.Text()),
        _required("spec", sa.JSON()),
        _required("skipped", sa.JSON()),
        _required("created_at", _INSTANT),
    )
    states = ("waiting", "leased", "running", "succeeded", "failed", "cancelled")
    op.create_table(
        "jobs",
        sa.Column("id", _ID, primary_key=True),
        _required("sweep_id", _ID, sa.ForeignKey("sweeps.id"), index=True),
        _required("spec", sa.JSON()),
        _required("cell_hash", sa.String(64), index=True),
        _required("model", sa.Text()),
        _required("dataset", sa.Text()),
        _required("strategy", sa.Text()),
        _required("world_size", sa.Integer()),
        _required("global_batch_size", sa.Integer()),
        _required("repetition", sa.Integer()),
        _required("priority", sa.Integer()),
        _required("state", _state("job_state", *states), index=True),
        sa.Column("attempt_id", _ID),
        _required("attempt_count", sa.Integer()),
        _required("due_at", _INSTANT),
        _required("cancel_requested", sa.Boolean()),
        sa.Column("failure_kind", sa.String(32)),
        sa.Column("reason", sa.Text()),
        _required("created_at", _INSTANT),
        sa.Column("finished_at", _INSTANT),
        sa.CheckConstraint(
            "(state IN ('leased', 'running')) = (attempt_id IS NOT NULL)", name="leased_has_attempt"
        ),
        sa.Index("ix_jobs_state_priority_due_at", "state", "priority", "due_at"),
    )


def _create_agents() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(128), primary_key=True),
        _required("boot_id", sa.String(64)),
        _required("beat_counter", sa.BigInteger()),
        _required("state", _state("agent_state", "idle", "busy", "spool_full", "leaving")),
        sa.Column("heartbeat_at", _INSTANT, index=True),
        _required("first_seen_at", _INSTANT),
        sa.Column("clock_offset_s", sa.Double()),
        _required("machine_id", sa.String(128)),
        _required("facts", sa.JSON()),
        _required("fingerprint", sa.String(64)),
        _required("is_drained", sa.Boolean()),
        sa.Column("attempt_id", _ID),
        sa.Column("lease_expires_at", _INSTANT),
        sa.Column("lease_boot_id", sa.String(64)),
        sa.Column("unclean_token", _ID),
        sa.Column("stop_sent_at", _INSTANT),
    )


def _create_attempts() -> None:
    active = ("preparing", "measuring", "shaping", "starting", "running")
    ended = ("succeeded", "failed", "lost", "void", "cancelled")
    op.create_table(
        "attempts",
        sa.Column("id", _ID, primary_key=True),
        _required("job_id", _ID, sa.ForeignKey("jobs.id")),
        _required("number", sa.Integer()),
        _required("state", _state("attempt_state", *active, *ended), index=True),
        _required("state_since", _INSTANT),
        _required("leased_at", _INSTANT),
        sa.Column("started_at", _INSTANT),
        sa.Column("ended_at", _INSTANT),
        sa.Column("failure_kind", sa.String(32)),
        sa.Column("reason", sa.Text()),
        sa.UniqueConstraint("job_id", "number"),
        sqlite_autoincrement=True,
    )
    phases = ("leased", "prepared", "measured", "shaped", "started", "ended")
    op.create_table(
        "ranks",
        _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
        _key("rank", sa.Integer()),
        _required("agent_id", sa.String(128), sa.ForeignKey("agents.id"), index=True),
        _required("phase", _state("rank_phase", *phases)),
        sa.Column("commanded_at", _INSTANT),
        _required("hardware", sa.JSON()),
        *(
            sa.Column(report, sa.JSON(none_as_null=True))
            for report in ("prepared", "peers", "shaped", "started", "ended")
        ),
        sa.Column("ended_at", _INSTANT),
    )
    op.create_table(
        "job_events",
        sa.Column("id", _ID, primary_key=True),
        _required("job_id", _ID, sa.ForeignKey("jobs.id"), index=True),
        sa.Column("attempt_id", _ID),
        _required("at", _INSTANT),
        _required("event", sa.String(64)),
        sa.Column("reason", sa.Text()),
    )


def _create_series() -> None:
    op.create_table(
        "samples",
        _key("day", sa.Date()),
        _key("attempt_id", _ID),
        _key("rank", sa.Integer()),
        _key("tick", sa.Integer()),
        *_numbers("machine_cpu_ratio", "machine_steal_ratio", "cpu_ratio"),
        sa.Column("memory_used_bytes", sa.BigInteger()),
        sa.Column("resident_bytes", sa.BigInteger()),
        *_numbers("net_rx_bytes_per_s", "net_tx_bytes_per_s"),
        *_numbers("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
        *_numbers("disk_read_operations_per_s", "disk_write_operations_per_s"),
        sa.Column("extra", sa.JSON(none_as_null=True)),
        postgresql_partition_by="RANGE (day)",
    )
    if op.get_bind().dialect.name == "postgresql":
        # Takes every day that has no partition of its own.
        op.execute("CREATE TABLE samples_default PARTITION OF samples DEFAULT")
    op.create_table(
        "step_chunks",
        _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
        _key("rank", sa.Integer()),
        _key("first_step", sa.Integer()),
        _required("kind", _state("step_kind", "warmup", "timed", "partial", "profiled")),
        _required("begun_s", sa.Double()),
        _required("step_count", sa.Integer()),
        _required("median_s", sa.Double()),
        _required("p95_s", sa.Double()),
        _required("times", sa.LargeBinary()),
    )
    op.create_table(
        "epochs",
        _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
        _key("rank", sa.Integer()),
        _key("epoch", sa.Integer()),
        _required("train_s", sa.Double()),
        _required("step_count", sa.Integer()),
        *_numbers("train_loss", "val_loss", "val_accuracy_ratio"),
    )


def _create_measurements() -> None:
    texts = ("framework", "strategy", "placement", "network", "instance_type")
    op.create_table(
        "measurements",
        sa.Column("id", _ID, primary_key=True),
        _required("origin", sa.String(64)),
        _required("source_key", sa.String(64)),
        sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), unique=True),
        sa.Column("attempt_id", _ID),
        _required("created_at", _INSTANT),
        _required("status", sa.String(32)),
        sa.Column("model", sa.Text()),
        sa.Column("dataset", sa.Text()),
        _required("training_pass", sa.String(32)),
        *(sa.Column(name, sa.Text()) for name in texts),
        _required("world_size", sa.Integer()),
        _required("server_count", sa.Integer()),
        _required("global_batch_size", sa.Integer()),
        _required("one_way_delay_s", sa.Double()),
        *_numbers("bandwidth_bytes_per_s"),
        _required("packet_loss_ratio", sa.Double()),
        _required("jitter_s", sa.Double()),
        _required("repetition", sa.Integer()),
        sa.Column("fingerprint", sa.String(64)),
        *_numbers("step_time_s", "step_time_p25_s", "step_time_p75_s", "step_time_spread_s"),
        sa.Column("timed_step_count", sa.Integer()),
        sa.Column("steps_per_epoch", sa.Integer()),
        *_numbers("time_per_epoch_s"),
        sa.Column("epochs", sa.Integer()),
        *_numbers("accuracy", "throughput_examples_per_s"),
        sa.Column("parameter_count", sa.BigInteger()),
        sa.Column("gradient_bytes", sa.BigInteger()),
        *_numbers("compute_s", "communication_s", "profiled_step_time_s", "cpu_ratio"),
        sa.Column("resident_bytes", sa.BigInteger()),
        *_numbers("net_rx_bytes_per_s", "net_tx_bytes_per_s", "sent_bytes_per_step", "rtt_s"),
        _required("details", sa.JSON()),
        sa.UniqueConstraint("origin", "source_key"),
        sa.Index("ix_measurements_question", "origin", "model", "dataset", "global_batch_size"),
    )


def _create_reports() -> None:
    op.create_table(
        "spool_positions",
        sa.Column("agent_id", sa.String(128), primary_key=True),
        sa.Column("generation", sa.String(64), primary_key=True),
        _required("confirmed_number", sa.BigInteger()),
        _required("updated_at", _INSTANT),
    )
    op.create_table(
        "late_reports",
        sa.Column("id", _ID, primary_key=True),
        _required("agent_id", sa.String(128)),
        _required("generation", sa.String(64)),
        _required("number", sa.BigInteger()),
        _required("token", sa.BigInteger()),
        _required("rank", sa.Integer()),
        _required("kind", sa.String(32)),
        _required("body", sa.JSON()),
        _required("received_at", _INSTANT),
        _required("reason", sa.Text()),
        sa.UniqueConstraint("agent_id", "generation", "number"),
    )
