"""Tokens of the web server, each with a name and a scope."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# SQLite numbers rows only for INTEGER keys; PostgreSQL gets 64 bits.
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    scopes = ("read", "submit", "admin")
    scope = sa.Enum(
        *scopes, name="api_token_scope", native_enum=False, create_constraint=True, length=16
    )
    op.create_table(
        "api_tokens",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("scope", scope, nullable=False),
        sa.Column("secret_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT),
        sa.Column("revoked_at", _INSTANT),
        sa.Column("last_used_at", _INSTANT),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("api_tokens")
