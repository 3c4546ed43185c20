"""What tells how far a sweep is, in an index, so that no job's row has to be read for it."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_PROGRESS = ["sweep_id", "state", "finished_at", "attempt_count", "cancel_requested", "id"]


def upgrade() -> None:
    op.create_index("ix_jobs_progress", "jobs", _PROGRESS)
    op.create_index("ix_jobs_finished_at", "jobs", ["finished_at"])
    op.drop_index("ix_jobs_sweep_id", "jobs")  # the first of these begins with it


def downgrade() -> None:
    op.create_index("ix_jobs_sweep_id", "jobs", ["sweep_id"])
    op.drop_index("ix_jobs_finished_at", "jobs")
    op.drop_index("ix_jobs_progress", "jobs")
