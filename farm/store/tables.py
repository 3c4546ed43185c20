"""Database tables for sweeps, jobs, attempts, agents and access.

Instants are UTC and aware; states are stored as their text. The migrations build the same schema;
a test holds the two together. Each table says who writes it; migrations, copies of a store and
restored backups write all of them.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.keys.api_tokens import Scope
from farm.messages.agents import AgentState
from farm.notifications.events import DeliveryState
from farm.store.base import BigId, Table, Utc, state_column


class SweepRow(Table):
    """A sweep as it was submitted.

    Written by the web server and commands; the scheduler notes that a budget is used up.
    """

    __tablename__ = "sweeps"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(sa.Text)
    spec: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # as submitted
    skipped: Mapped[list[str]] = mapped_column(sa.JSON)  # impossible cells left out, with reason
    # None of its jobs is started any more; those that run go on.
    is_paused: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    # Seconds of agents that all its attempts together may take; None: as many as they need.
    budget_machine_s: Mapped[float | None]
    # When a job was not started since no budget was left; a new budget sets it back to None.
    budget_used_up_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    created_at: Mapped[dt.datetime] = mapped_column(Utc)


class JobRow(Table):
    """A job. `spec` is the whole JobSpec; the columns beside it are copies to filter and sort by.

    Written by the web server and commands that submit, cancel and retry, and by the scheduler.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        sa.Index("ix_jobs_state_priority_due_at", "state", "priority", "due_at"),
        sa.Index("ix_jobs_cell_hash_sweep_id", "cell_hash", "sweep_id"),
        # All that tells how far a sweep is and whether it has changed, without its jobs' rows.
        sa.Index(
            "ix_jobs_progress",
            *("sweep_id", "state", "finished_at", "attempt_count", "cancel_requested", "id"),
        ),
        sa.Index("ix_jobs_finished_at", "finished_at"),
        sa.CheckConstraint(
            "(state IN ('leased', 'running')) = (attempt_id IS NOT NULL)", name="leased_has_attempt"
        ),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    sweep_id: Mapped[int] = mapped_column(sa.ForeignKey("sweeps.id"))
    spec: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    cell_hash: Mapped[str] = mapped_column(sa.String(64))
    model: Mapped[str] = mapped_column(sa.Text)
    dataset: Mapped[str] = mapped_column(sa.Text)
    strategy: Mapped[str] = mapped_column(sa.Text)
    world_size: Mapped[int]
    # Agents that its gang needs, since parameter servers may have their own.
    agent_count: Mapped[int] = mapped_column(server_default="1")
    # What each of them must be capable of, sorted.
    requires: Mapped[list[str]] = mapped_column(sa.JSON, default=list, server_default="[]")
    global_batch_size: Mapped[int]
    repetition: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0)
    state: Mapped[JobState] = mapped_column(state_column(JobState, "job_state"), index=True)
    # The current attempt, that is the only fencing token whose reports count; None unless active.
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    attempt_count: Mapped[int] = mapped_column(default=0)  # since it was last asked for
    due_at: Mapped[dt.datetime] = mapped_column(Utc)  # waits from here on; later than now: a pause
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    failure_kind: Mapped[str | None] = mapped_column(sa.String(32))
    reason: Mapped[str | None] = mapped_column(sa.Text)
    created_at: Mapped[dt.datetime] = mapped_column(Utc)
    finished_at: Mapped[dt.datetime | None] = mapped_column(Utc)


class AgentRow(Table):
    """An agent, from its last heartbeat, and the attempt that it serves.

    `unclean_token`: the attempt whose end the agent has not yet confirmed by a heartbeat. It is
    leased again only when a heartbeat says that it serves nothing and has seen a token at least as
    high, so that a late command of the old attempt can no longer start anything.

    Written by the collector (heartbeats), the scheduler (leases), the web server and commands.
    """

    __tablename__ = "agents"

    id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    boot_id: Mapped[str] = mapped_column(sa.String(64))
    beat_counter: Mapped[int] = mapped_column(sa.BigInteger)
    state: Mapped[AgentState] = mapped_column(state_column(AgentState, "agent_state"))
    heartbeat_at: Mapped[dt.datetime | None] = mapped_column(Utc, index=True)  # last fresh one
    first_seen_at: Mapped[dt.datetime] = mapped_column(Utc)
    clock_offset_s: Mapped[float | None]  # agent's clock minus the server's, the way included
    machine_id: Mapped[str] = mapped_column(sa.String(128))
    facts: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # AgentFacts
    fingerprint: Mapped[str] = mapped_column(sa.String(64))  # hash of the hardware
    is_drained: Mapped[bool] = mapped_column(default=False)
    # By a person: what it says counts no more, whether it has a key or not.
    is_removed: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    lease_expires_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    # The boot that took the leased rank, or will: a later boot cannot vouch for it.
    lease_boot_id: Mapped[str | None] = mapped_column(sa.String(64))
    unclean_token: Mapped[int | None] = mapped_column(BigId)
    stop_sent_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    template_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)  # of its warm trainer
    # Reports on its disk that are not confirmed, and for how long the oldest has waited.
    backlog_count: Mapped[int | None] = mapped_column(sa.BigInteger)
    backlog_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    report_lag_s: Mapped[float | None]
    disk_free_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)


class AttemptRow(Table):
    """An attempt of a job: its id is the fencing token, never used twice, not even on SQLite.

    Written by the scheduler alone: `farm.store.gangs.leases` adds it, `decisions` and
    `clock_steps` beside that change it.
    """

    __tablename__ = "attempts"
    __table_args__ = (
        sa.UniqueConstraint("job_id", "number"),
        # How many were lost, and when, without reading them all.
        sa.Index("ix_attempts_failure_kind_ended_at", "failure_kind", "ended_at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(sa.ForeignKey("jobs.id"))
    number: Mapped[int]  # from 1, over the whole life of the job
    state: Mapped[AttemptState] = mapped_column(
        state_column(AttemptState, "attempt_state"), index=True
    )
    state_since: Mapped[dt.datetime] = mapped_column(Utc)
    leased_at: Mapped[dt.datetime] = mapped_column(Utc)
    started_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # every rank did its first step
    ended_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    failure_kind: Mapped[str | None] = mapped_column(sa.String(32))
    reason: Mapped[str | None] = mapped_column(sa.Text)


class RankRow(Table):
    """One member of one attempt, and what it has reported once.

    Written by the scheduler (the lease, commands sent, disturbances) and the collector (reports).
    """

    __tablename__ = "ranks"
    __table_args__ = (sa.Index("ix_ranks_agent_id_attempt_id", "agent_id", "attempt_id"),)

    attempt_id: Mapped[int] = mapped_column(
        BigId, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
    )
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    agent_id: Mapped[str] = mapped_column(sa.ForeignKey("agents.id"))
    phase: Mapped[RankPhase] = mapped_column(state_column(RankPhase, "rank_phase"))
    commanded_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # last command of this phase
    hardware: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # at the time of the lease
    # Each the JSON of the report of that name in farm.messages.envelope, as it came.
    prepared: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    peers: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    shaped: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    started: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    ended: Mapped[dict[str, Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    ended_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    control_s: Mapped[float | None]  # its agent's control run before go
    disturbed_by: Mapped[str | None] = mapped_column(sa.Text)  # why its machine voided the attempt


class JobEvent(Table):
    """The story of a job: every change of state of it and of its attempts, with the reason.

    Written by the web server and commands that submit, cancel and retry, and by the scheduler.
    """

    __tablename__ = "job_events"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    job_id: Mapped[int] = mapped_column(sa.ForeignKey("jobs.id"), index=True)
    attempt_id: Mapped[int | None] = mapped_column(BigId)
    at: Mapped[dt.datetime] = mapped_column(Utc)
    event: Mapped[str] = mapped_column(sa.String(64))  # such as "job: running", "attempt: lost"
    reason: Mapped[str | None] = mapped_column(sa.Text)


class SpoolPosition(Table):
    """How far the reports of one spool generation are stored, so the agent may delete them.

    And how many of them did not count, beside those that `LateReport` keeps: all, and those of the
    last hour in which there were any.

    Written by the collector; old ones are removed by `farm db prune`.
    """

    __tablename__ = "spool_positions"

    agent_id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    generation: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    confirmed_number: Mapped[int] = mapped_column(sa.BigInteger)
    updated_at: Mapped[dt.datetime] = mapped_column(Utc)
    late_count: Mapped[int] = mapped_column(sa.BigInteger, default=0, server_default="0")
    late_hour: Mapped[dt.datetime | None] = mapped_column(Utc)  # when it began
    late_hour_count: Mapped[int] = mapped_column(sa.BigInteger, default=0, server_default="0")


class LateReport(Table):
    """A report that was not admitted: kept and counted, never dropped in silence.

    Written by the collector; removed by `farm db prune`.
    """

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


class BaselineRow(Table):
    """A sweep by the name that later ones are checked against.

    Written by `farm baseline`.
    """

    __tablename__ = "baselines"

    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    sweep_id: Mapped[int] = mapped_column(sa.ForeignKey("sweeps.id"))
    set_at: Mapped[dt.datetime] = mapped_column(Utc)


class NotificationTarget(Table):
    """An address that messages go to: those of one sweep, or of the whole farm.

    `due_at`: no message goes there before; as long as somebody sends to it, this is later than now.

    Written by the web server and commands that submit, and by the scheduler.
    """

    __tablename__ = "notification_targets"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    address: Mapped[str] = mapped_column(sa.Text)  # often with a secret in it
    secret: Mapped[str] = mapped_column(sa.String(64))  # its messages are signed with it
    # None: of the whole farm.
    sweep_id: Mapped[int | None] = mapped_column(sa.ForeignKey("sweeps.id"), index=True)
    created_at: Mapped[dt.datetime] = mapped_column(Utc)
    removed_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    due_at: Mapped[dt.datetime] = mapped_column(Utc)
    failure_count: Mapped[int] = mapped_column(default=0)  # in a row, without an answer


class NotificationEvent(Table):
    """Something that messages say. The same subject at the same instant is the same event.

    Written by the scheduler; removed by `farm db prune`.
    """

    __tablename__ = "notification_events"
    __table_args__ = (sa.UniqueConstraint("kind", "subject", "at"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(32))
    subject: Mapped[str] = mapped_column(sa.String(160))  # such as "sweep 3", "agent NAME"
    at: Mapped[dt.datetime] = mapped_column(Utc)
    sweep_id: Mapped[int | None] = mapped_column(sa.ForeignKey("sweeps.id"))
    data: Mapped[dict[str, Any]] = mapped_column(sa.JSON)  # what the message says


class NotificationDelivery(Table):
    """One event on its way to one target: the log of what was sent.

    Written by the scheduler; removed by `farm db prune`.
    """

    __tablename__ = "notification_deliveries"
    __table_args__ = (
        sa.UniqueConstraint("event_id", "target_id"),
        sa.Index("ix_notification_deliveries_state_target_id", "state", "target_id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    event_id: Mapped[int] = mapped_column(sa.ForeignKey("notification_events.id"))
    target_id: Mapped[int] = mapped_column(sa.ForeignKey("notification_targets.id"))
    state: Mapped[DeliveryState] = mapped_column(state_column(DeliveryState, "delivery_state"))
    attempt_count: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[dt.datetime] = mapped_column(Utc)
    last_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    last_said: Mapped[str | None] = mapped_column(sa.Text)  # what the receiver answered last


class TrackerCursor(Table):
    """Which measurements an experiment tracker has: those up to `since_id`, and some later ones.

    `due_at`: nothing is sent before; as long as somebody sends, this is later than now.

    Written by the scheduler.
    """

    __tablename__ = "tracker_cursors"

    tracker: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    since_id: Mapped[int] = mapped_column(BigId)  # of measurements
    sent_tokens: Mapped[list[int]] = mapped_column(sa.JSON)  # of the later ones
    tries: Mapped[dict[str, int]] = mapped_column(sa.JSON)  # without success, by token
    due_at: Mapped[dt.datetime] = mapped_column(Utc)
    failure_count: Mapped[int] = mapped_column(default=0)  # in a row
    trouble: Mapped[str | None] = mapped_column(sa.Text)  # why the last turn failed
    sent_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # when it last got something


class ApiToken(Table):
    """A token of the web server; only the token's hash is stored.

    Ids are never used twice, since a session names its token by the id.

    Written by `farm token`; the web server notes when it was used.
    """

    __tablename__ = "api_tokens"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(64), unique=True)
    scope: Mapped[Scope] = mapped_column(state_column(Scope, "api_token_scope"))
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)  # SHA-256, hexadecimal
    created_at: Mapped[dt.datetime] = mapped_column(Utc)
    expires_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    revoked_at: Mapped[dt.datetime | None] = mapped_column(Utc)
    last_used_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # to about a minute


class AgentKeyRow(Table):
    """Which of an agent's keys count. The keys themselves are nowhere in the store.

    Written by `farm agent`, and by `farm up` for its own agents.
    """

    __tablename__ = "agent_keys"

    agent_id: Mapped[str] = mapped_column(sa.String(128), primary_key=True)
    number: Mapped[int]  # of the newest key; never smaller, not even after a removal
    made_at: Mapped[dt.datetime] = mapped_column(Utc)
    previous_until: Mapped[dt.datetime | None] = mapped_column(Utc)
    revoked_at: Mapped[dt.datetime | None] = mapped_column(Utc)


class FarmIdentity(Table):
    """The one row that identifies the farm of this store. A farm's first run creates it.

    `incarnation` grows when a restored or moved store takes over from its original. `place`: where
    the database is; a copy has another place and is refused. None: the next process sets it.

    Written by each process of the server that starts.
    """

    __tablename__ = "farm_identity"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # always 1
    farm_id: Mapped[str] = mapped_column(sa.String(32))  # hexadecimal
    incarnation: Mapped[int]
    place: Mapped[str | None] = mapped_column(sa.Text)
    broker_id: Mapped[str | None] = mapped_column(sa.String(32))  # of the broker that serves it
    broker_seen_at: Mapped[dt.datetime | None] = mapped_column(Utc)  # by one of its processes


class IdempotentAnswer(Table):
    """The answer to a request with an `Idempotency-Key`. `status` None: there is none yet.

    Written by the web server.
    """

    __tablename__ = "kept_answers"

    name: Mapped[str] = mapped_column(sa.String(64), primary_key=True)  # SHA-256, hexadecimal
    request_digest: Mapped[str] = mapped_column(sa.String(64))  # of the body, likewise
    begun_at: Mapped[dt.datetime] = mapped_column(Utc)
    status: Mapped[int | None]
    body: Mapped[bytes | None] = mapped_column(sa.LargeBinary)
    content_type: Mapped[str | None] = mapped_column(sa.Text)
    location: Mapped[str | None] = mapped_column(sa.Text)


class BundleRow(Table):
    """The files of a user's training script as one archive, which agents fetch by pieces.

    Written by the web server and commands that submit; removed by `farm db prune`.
    """

    __tablename__ = "script_bundles"

    sha256: Mapped[str] = mapped_column(sa.String(64), primary_key=True)  # hexadecimal
    byte_count: Mapped[int]
    piece_count: Mapped[int]
    added_at: Mapped[dt.datetime] = mapped_column(Utc)


class BundlePieceRow(Table):
    """A piece of a bundle's archive; all but the last are of the same length.

    Written with its row of `script_bundles`.
    """

    __tablename__ = "script_bundle_pieces"

    sha256: Mapped[str] = mapped_column(
        sa.ForeignKey("script_bundles.sha256", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[bytes] = mapped_column(sa.LargeBinary)
