"""The first schema.

It does not change when the tables in `farm.store` do: `farm.store.maintenance.convert` makes the
tables that a store lacks from it, and compares the store with it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "initial"
down_revision = None
branch_labels = None
depends_on = None

TABLES = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_NULLABLE_JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    TABLES.create_all(op.get_bind(), checkfirst=False)
    if op.get_bind().dialect.name == "postgresql":
        # Takes every day that has no partition of its own.
        op.execute("CREATE TABLE samples_default PARTITION OF samples DEFAULT")


def downgrade() -> None:
    TABLES.drop_all(op.get_bind(), checkfirst=False)


def _required(name: str, *kind_and_more: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, *kind_and_more, nullable=False, **options)


def _key(name: str, kind: Any, *more: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *more, primary_key=True, autoincrement=False, **options)


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Double()) for name in names]


def _integers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Integer()) for name in names]


def _state(name: str, *states: str) -> sa.Enum:
    return sa.Enum(*states, name=name, native_enum=False, create_constraint=True, length=16)


def _sampled() -> list[sa.Column[Any]]:
    return [
        *_numbers("machine_cpu_ratio", "machine_steal_ratio", "cpu_ratio"),
        sa.Column("memory_used_bytes", sa.BigInteger()),
        sa.Column("resident_bytes", sa.BigInteger()),
        *_numbers("net_rx_bytes_per_s", "net_tx_bytes_per_s"),
        *_numbers("disk_read_bytes_per_s", "disk_write_bytes_per_s"),
        *_numbers("disk_read_operations_per_s", "disk_write_operations_per_s"),
        *_numbers("swap_bytes_per_s", "throttled_ratio"),
        _required("span_ticks", sa.Integer(), server_default="1"),
        sa.Column("extra", _NULLABLE_JSON),
    ]


sa.Table(
    "sweeps",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("name", sa.Text()),
    _required("spec", sa.JSON()),
    _required("skipped", sa.JSON()),
    _required("is_paused", sa.Boolean(), server_default=sa.false()),
    *_numbers("budget_machine_s"),
    sa.Column("budget_used_up_at", _INSTANT),
    _required("created_at", _INSTANT),
)
sa.Table(
    "jobs",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("sweep_id", _ID, sa.ForeignKey("sweeps.id")),
    _required("spec", sa.JSON()),
    _required("cell_hash", sa.String(64)),
    _required("model", sa.Text()),
    _required("dataset", sa.Text()),
    _required("strategy", sa.Text()),
    _required("world_size", sa.Integer()),
    _required("agent_count", sa.Integer(), server_default="1"),
    _required("requires", sa.JSON(), server_default="[]"),
    _required("global_batch_size", sa.Integer()),
    _required("repetition", sa.Integer()),
    _required("priority", sa.Integer()),
    _required(
        "state",
        _state("job_state", "waiting", "leased", "running", "succeeded", "failed", "cancelled"),
        index=True,
    ),
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
    sa.Index("ix_jobs_cell_hash_sweep_id", "cell_hash", "sweep_id"),
    # Whatever tells how far a sweep is, so that no job's row has to be read for it.
    sa.Index(
        "ix_jobs_progress",
        *("sweep_id", "state", "finished_at", "attempt_count", "cancel_requested", "id"),
    ),
    sa.Index("ix_jobs_finished_at", "finished_at"),
)
sa.Table(
    "agents",
    TABLES,
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
    _required("is_removed", sa.Boolean(), server_default=sa.false()),
    sa.Column("attempt_id", _ID),
    sa.Column("lease_expires_at", _INSTANT),
    sa.Column("lease_boot_id", sa.String(64)),
    sa.Column("unclean_token", _ID),
    sa.Column("stop_sent_at", _INSTANT),
    sa.Column("template_bytes", sa.BigInteger()),
    sa.Column("backlog_count", sa.BigInteger()),
    sa.Column("backlog_bytes", sa.BigInteger()),
    sa.Column("report_lag_s", sa.Double()),
    sa.Column("disk_free_bytes", sa.BigInteger()),
)
sa.Table(
    "attempts",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("job_id", _ID, sa.ForeignKey("jobs.id")),
    _required("number", sa.Integer()),
    _required(
        "state",
        _state(
            "attempt_state",
            *("preparing", "measuring", "shaping", "starting", "running"),
            *("succeeded", "failed", "lost", "void", "cancelled"),
        ),
        index=True,
    ),
    _required("state_since", _INSTANT),
    _required("leased_at", _INSTANT),
    sa.Column("started_at", _INSTANT),
    sa.Column("ended_at", _INSTANT),
    sa.Column("failure_kind", sa.String(32)),
    sa.Column("reason", sa.Text()),
    sa.UniqueConstraint("job_id", "number"),
    sa.Index("ix_attempts_failure_kind_ended_at", "failure_kind", "ended_at"),
    sqlite_autoincrement=True,
)
sa.Table(
    "ranks",
    TABLES,
    _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
    _key("rank", sa.Integer()),
    _required("agent_id", sa.String(128), sa.ForeignKey("agents.id")),
    _required(
        "phase",
        _state("rank_phase", "leased", "prepared", "measured", "shaped", "started", "ended"),
    ),
    sa.Column("commanded_at", _INSTANT),
    _required("hardware", sa.JSON()),
    sa.Column("prepared", _NULLABLE_JSON),
    sa.Column("peers", _NULLABLE_JSON),
    sa.Column("shaped", _NULLABLE_JSON),
    sa.Column("started", _NULLABLE_JSON),
    sa.Column("ended", _NULLABLE_JSON),
    sa.Column("ended_at", _INSTANT),
    sa.Column("control_s", sa.Double()),
    sa.Column("disturbed_by", sa.Text()),
    sa.Index("ix_ranks_agent_id_attempt_id", "agent_id", "attempt_id"),
)
sa.Table(
    "job_events",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("job_id", _ID, sa.ForeignKey("jobs.id"), index=True),
    sa.Column("attempt_id", _ID),
    _required("at", _INSTANT),
    _required("event", sa.String(64)),
    sa.Column("reason", sa.Text()),
)
sa.Table(
    "samples",
    TABLES,
    _key("day", sa.Date()),
    _key("attempt_id", _ID),
    _key("rank", sa.Integer()),
    _key("tick", sa.Integer()),
    *_sampled(),
    postgresql_partition_by="RANGE (day)",
)
sa.Table(
    "imported_samples",
    TABLES,
    sa.Column("origin", sa.String(64), primary_key=True),
    _key("attempt_id", _ID),
    _key("rank", sa.Integer()),
    _key("tick", sa.Integer()),
    _required("job_id", _ID),
    *_sampled(),
)
sa.Table(
    "step_chunks",
    TABLES,
    _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
    _key("rank", sa.Integer()),
    _key("process", sa.Integer(), server_default=sa.text("0")),
    _key("first_step", sa.Integer()),
    _required("kind", _state("step_kind", "warmup", "timed", "partial", "profiled")),
    _required("begun_s", sa.Double()),
    _required("step_count", sa.Integer()),
    _required("median_s", sa.Double()),
    _required("p95_s", sa.Double()),
    _required("times", sa.LargeBinary()),
)
sa.Table(
    "epochs",
    TABLES,
    _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
    _key("rank", sa.Integer()),
    _key("epoch", sa.Integer()),
    _required("train_s", sa.Double()),
    _required("step_count", sa.Integer()),
    *_numbers("train_loss", "val_loss", "val_accuracy_ratio"),
)
sa.Table(
    "log_parts",
    TABLES,
    _key("attempt_id", _ID, sa.ForeignKey("attempts.id")),
    _key("rank", sa.Integer()),
    _key("first_character", sa.Integer()),
    _required("text", sa.Text()),
)
sa.Table(
    "measurements",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("origin", sa.String(64)),
    _required("source_key", sa.String(64)),
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id"), unique=True),
    sa.Column("attempt_id", _ID),
    _required("created_at", _INSTANT),
    _required("status", sa.String(32)),
    sa.Column("model", sa.Text()),
    sa.Column("dataset", sa.Text()),
    _required("training_pass", sa.Text()),
    sa.Column("framework", sa.Text()),
    sa.Column("strategy", sa.Text()),
    sa.Column("placement", sa.Text()),
    sa.Column("network", sa.Text()),
    sa.Column("instance_type", sa.Text()),
    _required("world_size", sa.Integer()),
    _required("server_count", sa.Integer()),
    sa.Column("server_placement", sa.Text()),
    *_integers("replicas_per_rank", "steps_between_averages"),
    sa.Column("batch_split", sa.Text()),
    _required("global_batch_size", sa.Integer()),
    _required("one_way_delay_s", sa.Double()),
    *_numbers("bandwidth_bytes_per_s"),
    _required("packet_loss_ratio", sa.Double()),
    _required("jitter_s", sa.Double()),
    _required("repetition", sa.Integer()),
    sa.Column("fingerprint", sa.String(64)),
    *_numbers("step_time_s", "step_time_p25_s", "step_time_p75_s", "step_time_spread_s"),
    *_numbers("step_time_low_s", "step_time_high_s"),
    *_integers("timed_step_count", "outlier_step_count", "steps_per_epoch"),
    *_numbers("time_per_epoch_s"),
    *_integers("epochs"),
    *_numbers("accuracy", "throughput_examples_per_s"),
    sa.Column("parameter_count", sa.BigInteger()),
    sa.Column("gradient_bytes", sa.BigInteger()),
    *_numbers("compute_s", "communication_s", "profiled_step_time_s", "cpu_ratio"),
    sa.Column("resident_bytes", sa.BigInteger()),
    *_numbers("net_rx_bytes_per_s", "net_tx_bytes_per_s"),
    *_numbers("sent_bytes_per_step", "received_bytes_per_step", "idle_ratio", "push_s", "pull_s"),
    *_integers("update_count"),
    *_numbers("staleness_mean"),
    *_integers("staleness_max"),
    *_numbers("rtt_s", "measured_bandwidth_bytes_per_s", "loaded_rtt_s", "control_ratio"),
    _required("flags", sa.JSON(), server_default="[]"),
    _required("details", sa.JSON()),
    sa.UniqueConstraint("origin", "source_key"),
    sa.Index("ix_measurements_question", "origin", "model", "dataset", "global_batch_size"),
)
sa.Table(
    "spool_positions",
    TABLES,
    sa.Column("agent_id", sa.String(128), primary_key=True),
    sa.Column("generation", sa.String(64), primary_key=True),
    _required("confirmed_number", sa.BigInteger()),
    _required("updated_at", _INSTANT),
    _required("late_count", sa.BigInteger(), server_default="0"),
    sa.Column("late_hour", _INSTANT),
    _required("late_hour_count", sa.BigInteger(), server_default="0"),
)
sa.Table(
    "late_reports",
    TABLES,
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
sa.Table(
    "baselines",
    TABLES,
    sa.Column("name", sa.String(64), primary_key=True),
    _required("sweep_id", _ID, sa.ForeignKey("sweeps.id")),
    _required("set_at", _INSTANT),
)
sa.Table(
    "notification_targets",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("address", sa.Text()),
    _required("secret", sa.String(64)),
    sa.Column("sweep_id", _ID, sa.ForeignKey("sweeps.id"), index=True),
    _required("created_at", _INSTANT),
    sa.Column("removed_at", _INSTANT),
    _required("due_at", _INSTANT),
    _required("failure_count", sa.Integer()),
)
sa.Table(
    "notification_events",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("kind", sa.String(32)),
    _required("subject", sa.String(160)),
    _required("at", _INSTANT),
    sa.Column("sweep_id", _ID, sa.ForeignKey("sweeps.id")),
    _required("data", sa.JSON()),
    sa.UniqueConstraint("kind", "subject", "at"),
)
sa.Table(
    "notification_deliveries",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("event_id", _ID, sa.ForeignKey("notification_events.id")),
    _required("target_id", _ID, sa.ForeignKey("notification_targets.id")),
    _required("state", _state("delivery_state", "waiting", "delivered", "given_up")),
    _required("attempt_count", sa.Integer()),
    _required("due_at", _INSTANT),
    sa.Column("last_at", _INSTANT),
    sa.Column("last_said", sa.Text()),
    sa.UniqueConstraint("event_id", "target_id"),
    sa.Index("ix_notification_deliveries_state_target_id", "state", "target_id"),
)
sa.Table(
    "tracker_cursors",
    TABLES,
    sa.Column("tracker", sa.String(32), primary_key=True),
    _required("since_id", _ID),
    _required("sent_tokens", sa.JSON()),
    _required("tries", sa.JSON()),
    _required("due_at", _INSTANT),
    _required("failure_count", sa.Integer()),
    sa.Column("trouble", sa.Text()),
    sa.Column("sent_at", _INSTANT),
)
sa.Table(
    "api_tokens",
    TABLES,
    sa.Column("id", _ID, primary_key=True),
    _required("name", sa.String(64), unique=True),
    _required("scope", _state("api_token_scope", "read", "submit", "admin")),
    _required("secret_hash", sa.String(64), unique=True),
    _required("created_at", _INSTANT),
    sa.Column("expires_at", _INSTANT),
    sa.Column("revoked_at", _INSTANT),
    sa.Column("last_used_at", _INSTANT),
    sqlite_autoincrement=True,
)
sa.Table(
    "agent_keys",
    TABLES,
    sa.Column("agent_id", sa.String(128), primary_key=True),
    _required("number", sa.Integer()),
    _required("made_at", _INSTANT),
    sa.Column("previous_until", _INSTANT),
    sa.Column("revoked_at", _INSTANT),
)
sa.Table(
    "farm_identity",
    TABLES,
    _key("id", sa.Integer()),
    _required("farm_id", sa.String(32)),
    _required("incarnation", sa.Integer()),
    sa.Column("place", sa.Text()),
    sa.Column("broker_id", sa.String(32)),
    sa.Column("broker_seen_at", _INSTANT),
)
sa.Table(
    "kept_answers",
    TABLES,
    sa.Column("name", sa.String(64), primary_key=True),
    _required("request_digest", sa.String(64)),
    _required("begun_at", _INSTANT),
    sa.Column("status", sa.Integer()),
    sa.Column("body", sa.LargeBinary()),
    sa.Column("content_type", sa.Text()),
    sa.Column("location", sa.Text()),
)
sa.Table(
    "script_bundles",
    TABLES,
    _key("sha256", sa.String(64)),
    _required("byte_count", sa.Integer()),
    _required("piece_count", sa.Integer()),
    _required("added_at", _INSTANT),
)
sa.Table(
    "script_bundle_pieces",
    TABLES,
    _key("sha256", sa.String(64), sa.ForeignKey("script_bundles.sha256", ondelete="CASCADE")),
    _key("number", sa.Integer()),
    _required("content", sa.LargeBinary()),
)
