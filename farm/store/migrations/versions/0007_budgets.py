"""Budgets of sweeps: how much machine time they may take, and since when it is used up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "budgets"
down_revision = "agent_count"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("budget_machine_s", sa.Double()))
    op.add_column("sweeps", sa.Column("budget_used_up_at", sa.DateTime(timezone=True)))


def downgrade() -> None:
    op.drop_column("sweeps", "budget_used_up_at")
    op.drop_column("sweeps", "budget_machine_s")
