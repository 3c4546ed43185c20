"""The bundles of users' training scripts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "script_bundles"
down_revision = "first_schema"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "script_bundles",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("byte_count", sa.Integer(), nullable=False),
        sa.Column("piece_count", sa.Integer(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_script_bundles")),
    )
    op.create_table(
        "script_bundle_pieces",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "number", name=op.f("pk_script_bundle_pieces")),
        sa.ForeignKeyConstraint(
            ["sha256"],
            ["script_bundles.sha256"],
            name=op.f("fk_script_bundle_pieces_sha256"),
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    op.drop_table("script_bundle_pieces")
    op.drop_table("script_bundles")
