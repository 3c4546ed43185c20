"""What parameter servers, replicas, averaging, placement and splits of a batch leave behind.

A job says how many agents its gang needs, and what these must be able to do, in columns of its
own: until now the first was its world size, and the second was read out of its specification.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_MEASURED: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("server_placement", sa.String(16)),
    ("replicas_per_rank", sa.Integer()),
    ("steps_between_averages", sa.Integer()),
    ("batch_split", sa.String(16)),
    ("received_bytes_per_step", sa.Double()),
    ("idle_ratio", sa.Double()),
    ("push_s", sa.Double()),
    ("pull_s", sa.Double()),
    ("update_count", sa.Integer()),
    ("staleness_mean", sa.Double()),
    ("staleness_max", sa.Integer()),
)


def upgrade() -> None:
    rank_count = sa.Column("rank_count", sa.Integer(), nullable=False, server_default="1")
    op.add_column("jobs", rank_count)
    requires = sa.Column("requires", sa.JSON(), nullable=False, server_default="[]")
    op.add_column("jobs", requires)
    op.execute("UPDATE jobs SET rank_count = world_size")
    _fill_requires()
    for name, kind in _MEASURED:
        op.add_column("measurements", sa.Column(name, kind, nullable=True))


def downgrade() -> None:
    for name, _ in _MEASURED:
        op.drop_column("measurements", name)
    op.drop_column("jobs", "requires")
    op.drop_column("jobs", "rank_count")


def _fill_requires() -> None:
    """Write what jobs that ask for a network need of their agents: an emulator."""
    jobs = sa.table("jobs", sa.column("id"), sa.column("spec"), sa.column("requires"))
    connection = op.get_bind()
    asked = []
    for job_id, spec in connection.execute(sa.text("SELECT id, spec FROM jobs")):
        told = json.loads(spec) if isinstance(spec, str) else spec
        network = told.get("network") or {}
        if any(value for value in network.values()):
            asked.append({"job": job_id, "needs": [told.get("emulator") or "network"]})
    if asked:
        change = jobs.update().where(jobs.c.id == sa.bindparam("job"))
        connection.execute(change.values(requires=sa.bindparam("needs", type_=sa.JSON())), asked)
