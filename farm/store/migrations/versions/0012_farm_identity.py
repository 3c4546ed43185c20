"""Which farm a store is of, and which broker serves it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "farm_identity",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("farm_id", sa.String(32), nullable=False),
        sa.Column("incarnation", sa.Integer, nullable=False),
        sa.Column("place", sa.Text),
        sa.Column("broker_id", sa.String(32)),
        sa.Column("broker_seen_at", sa.DateTime(timezone=True)),
    )


def downgrade() -> None:
    op.drop_table("farm_identity")
