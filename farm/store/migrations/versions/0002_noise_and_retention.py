"""What tells a disturbed measurement from a quiet one, and what retention needs to know."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


# Index to table and columns. The old ones are the first columns of the new ones.
_OLD_INDEXES = {
    "ix_jobs_cell_hash": ("jobs", ["cell_hash"]),
    "ix_ranks_agent_id": ("ranks", ["agent_id"]),
}
_NEW_INDEXES = {
    "ix_jobs_cell_hash_sweep_id": ("jobs", ["cell_hash", "sweep_id"]),
    "ix_ranks_agent_id_attempt_id": ("ranks", ["agent_id", "attempt_id"]),
}


def upgrade() -> None:
    _replace_indexes(_OLD_INDEXES, _NEW_INDEXES)
    for table, columns in _added().items():
        for column in columns:
            op.add_column(table, column)


def downgrade() -> None:
    _replace_indexes(_NEW_INDEXES, _OLD_INDEXES)
    for table, columns in _added().items():
        for column in columns:
            op.drop_column(table, column.name)


def _replace_indexes(
    old: dict[str, tuple[str, list[str]]], new: dict[str, tuple[str, list[str]]]
) -> None:
    for name, (table, _) in old.items():
        op.drop_index(name, table)
    for name, (table, columns) in new.items():
        op.create_index(name, table, columns)


def _added() -> dict[str, tuple[sa.Column[Any], ...]]:
    return {
        "samples": (
            sa.Column("swap_bytes_per_s", sa.Double()),
            sa.Column("throttled_ratio", sa.Double()),
            sa.Column("span_ticks", sa.Integer(), nullable=False, server_default="1"),
        ),
        "ranks": (
            sa.Column("control_s", sa.Double()),
            sa.Column("disturbed_by", sa.Text()),
        ),
        "agents": (sa.Column("template_bytes", sa.BigInteger()),),
        "measurements": (
            sa.Column("step_time_low_s", sa.Double()),
            sa.Column("step_time_high_s", sa.Double()),
            sa.Column("outlier_step_count", sa.Integer()),
            sa.Column("control_ratio", sa.Double()),
            sa.Column("flags", sa.JSON(), nullable=False, server_default="[]"),
        ),
    }
