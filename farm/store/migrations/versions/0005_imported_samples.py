"""Samples that came with the sweeps of other farms."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "imported_samples"
down_revision = "tracker_cursors"
branch_labels = None
depends_on = None

_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_FLOATS = (
    *("machine_cpu_ratio", "machine_steal_ratio", "cpu_ratio"),
    *("net_rx_bytes_per_s", "net_tx_bytes_per_s", "disk_read_bytes_per_s"),
    *("disk_write_bytes_per_s", "disk_read_operations_per_s", "disk_write_operations_per_s"),
    *("swap_bytes_per_s", "throttled_ratio"),
)


def upgrade() -> None:
    op.create_table(
        "imported_samples",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("attempt_id", _BIG_ID, nullable=False, autoincrement=False),
        sa.Column("rank", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("tick", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("job_id", _BIG_ID, nullable=False),
        *(sa.Column(name, sa.Double()) for name in _FLOATS),
        sa.Column("memory_used_bytes", sa.BigInteger()),
        sa.Column("resident_bytes", sa.BigInteger()),
        sa.Column("span_ticks", sa.Integer(), server_default="1", nullable=False),
        sa.Column("extra", sa.JSON(none_as_null=True)),
        sa.PrimaryKeyConstraint("origin", "attempt_id", "rank", "tick", name="pk_imported_samples"),
    )


def downgrade() -> None:
    op.drop_table("imported_samples")
