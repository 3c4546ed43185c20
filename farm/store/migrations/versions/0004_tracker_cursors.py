"""Which measurements each experiment tracker has received."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "tracker_cursors"
down_revision = "notifications"
branch_labels = None
depends_on = None

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_UTC = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tracker_cursors",
        sa.Column("tracker", sa.String(32), nullable=False),
        sa.Column("since_id", _BIG_ID, nullable=False),
        sa.Column("sent_tokens", sa.JSON(), nullable=False),
        sa.Column("tries", sa.JSON(), nullable=False),
        sa.Column("due_at", _UTC, nullable=False),
        sa.Column("failure_count", sa.Integer(), nullable=False),
        sa.Column("trouble", sa.Text()),
        sa.Column("sent_at", _UTC),
        sa.PrimaryKeyConstraint("tracker", name="pk_tracker_cursors"),
    )


def downgrade() -> None:
    op.drop_table("tracker_cursors")
