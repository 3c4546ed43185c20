"""Which keys of which agents count, and who was removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "agent_keys",
        sa.Column("agent_id", sa.String(128), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("made_at", _INSTANT, nullable=False),
        sa.Column("previous_until", _INSTANT),
        sa.Column("revoked_at", _INSTANT),
    )
    removed = sa.Column("is_removed", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("agents", removed)


def downgrade() -> None:
    op.drop_column("agents", "is_removed")
    op.drop_table("agent_keys")
