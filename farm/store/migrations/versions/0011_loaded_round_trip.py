"""The round trip between the ranks beside one bulk stream."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurements", sa.Column("loaded_rtt_s", sa.Double()))


def downgrade() -> None:
    op.drop_column("measurements", "loaded_rtt_s")
