"""Jobs say how many agents they need under that name: ranks are the processes of these agents."""

from __future__ import annotations

from alembic import op

revision = "agent_count"
down_revision = "imported_samples"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.alter_column("jobs", "rank_count", new_column_name="agent_count")


def downgrade() -> None:
    op.alter_column("jobs", "agent_count", new_column_name="rank_count")
