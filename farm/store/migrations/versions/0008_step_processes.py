"""Chunks of step times say which of their agent's ranks made them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "step_processes"
down_revision = "budgets"
branch_labels = None
depends_on = None

_TABLE = "step_chunks"
_KEY = ["attempt_id", "rank", "process", "first_step"]


def upgrade() -> None:
    with op.batch_alter_table(_TABLE) as batch:
        batch.add_column(sa.Column("process", sa.Integer(), nullable=False, server_default="0"))
        batch.drop_constraint(f"pk_{_TABLE}", type_="primary")
        batch.create_primary_key(f"pk_{_TABLE}", _KEY)


def downgrade() -> None:
    op.execute(f"DELETE FROM {_TABLE} WHERE process > 0")  # noqa: S608 (a name of our own)
    with op.batch_alter_table(_TABLE) as batch:
        batch.drop_constraint(f"pk_{_TABLE}", type_="primary")
        batch.drop_column("process")
        batch.create_primary_key(f"pk_{_TABLE}", [name for name in _KEY if name != "process"])
