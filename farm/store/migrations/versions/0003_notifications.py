"""Messages about sweeps and agents: where they go, what they say, and what became of each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "notifications"
down_revision = "baselines"
branch_labels = None
depends_on = None

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UTC = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "notification_targets",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("sweep_id", _BIG_ID),
        sa.Column("created_at", _UTC, nullable=False),
        sa.Column("removed_at", _UTC),
        sa.Column("due_at", _UTC, nullable=False),
        sa.Column("failure_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notification_targets"),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name="fk_notification_targets_sweep_id"
        ),
    )
    op.create_index("ix_notification_targets_sweep_id", "notification_targets", ["sweep_id"])
    op.create_table(
        "notification_events",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(160), nullable=False),
        sa.Column("at", _UTC, nullable=False),
        sa.Column("sweep_id", _BIG_ID),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notification_events"),
        sa.ForeignKeyConstraint(
            ["sweep_id"], ["sweeps.id"], name="fk_notification_events_sweep_id"
        ),
        sa.UniqueConstraint("kind", "subject", "at", name="uq_notification_events_kind_subject_at"),
    )
    op.create_table(
        "notification_deliveries",
        sa.Column("id", _BIG_ID, nullable=False),
        sa.Column("event_id", _BIG_ID, nullable=False),
        sa.Column("target_id", _BIG_ID, nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                *("waiting", "delivered", "given_up"),
                name="delivery_state",
                native_enum=False,
                create_constraint=True,
                length=16,
            ),
            nullable=False,
        ),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("due_at", _UTC, nullable=False),
        sa.Column("last_at", _UTC),
        sa.Column("last_said", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_notification_deliveries"),
        sa.ForeignKeyConstraint(
            ["event_id"], ["notification_events.id"], name="fk_notification_deliveries_event_id"
        ),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["notification_targets.id"],
            name="fk_notification_deliveries_target_id",
        ),
        sa.UniqueConstraint(
            "event_id", "target_id", name="uq_notification_deliveries_event_id_target_id"
        ),
    )
    op.create_index(
        "ix_notification_deliveries_state_target_id",
        "notification_deliveries",
        ["state", "target_id"],
    )


def downgrade() -> None:
    op.drop_table("notification_deliveries")
    op.drop_table("notification_events")
    op.drop_table("notification_targets")
