"""What trainers write while they train."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "log_parts",
        sa.Column(
            "attempt_id", _ID, sa.ForeignKey("attempts.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("rank", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("first_character", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("log_parts")
