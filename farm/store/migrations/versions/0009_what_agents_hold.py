"""What an agent holds back and how much room it has; attempts by their failure."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_HELD: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("backlog_count", sa.BigInteger()),
    ("backlog_bytes", sa.BigInteger()),
    ("report_lag_s", sa.Double()),
    ("disk_free_bytes", sa.BigInteger()),
)


def upgrade() -> None:
    for name, kind in _HELD:
        op.add_column("agents", sa.Column(name, kind, nullable=True))
    columns = ["failure_kind", "ended_at"]
    op.create_index("ix_attempts_failure_kind_ended_at", "attempts", columns)


def downgrade() -> None:
    op.drop_index("ix_attempts_failure_kind_ended_at", "attempts")
    for name, _ in _HELD:
        op.drop_column("agents", name)
