"""How many reports of a spool did not count and are not kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("late_count", "late_hour_count"):
        count = sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
        op.add_column("spool_positions", count)
    op.add_column("spool_positions", sa.Column("late_hour", sa.DateTime(timezone=True)))


def downgrade() -> None:
    for name in ("late_hour", "late_hour_count", "late_count"):
        op.drop_column("spool_positions", name)
