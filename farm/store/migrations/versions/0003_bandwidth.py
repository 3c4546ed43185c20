"""What the ways between the ranks were measured to carry."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurements", sa.Column("measured_bandwidth_bytes_per_s", sa.Double()))


def downgrade() -> None:
    op.drop_column("measurements", "measured_bandwidth_bytes_per_s")
