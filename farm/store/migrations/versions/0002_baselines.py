"""Adds a table of baselines: names of sweeps with which later sweeps are compared."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "baselines"
down_revision = "first_release"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "baselines",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column(
            "sweep_id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.ForeignKey("sweeps.id", name="fk_baselines_sweep_id"),
            nullable=False,
        ),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("baselines")
