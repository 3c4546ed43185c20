"""A migration after today's last, in a copy of the migrations."""

from __future__ import annotations

import shutil
from pathlib import Path

from farm.store import schema

LATER_REVISION = "colours_of_jobs"
_MIGRATION = """
import os
import sys

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("jobs", sa.Column("colour", sa.Text(), server_default="grey", nullable=False))
    if "STOP_HALFWAY" in os.environ:
        print("halfway", flush=True)
        sys.stdin.read()
    op.create_index("ix_jobs_colour", "jobs", ["colour"])


def downgrade():
    op.drop_index("ix_jobs_colour", "jobs")
    op.drop_column("jobs", "colour")
"""


def add_later_migration(folder: Path) -> Path:
    """Return a folder for `schema.MIGRATIONS`."""
    copied = folder / "migrations"
    shutil.copytree(schema.MIGRATIONS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    revisions = schema.revisions()
    file = copied / "versions" / f"{len(revisions) + 1:04}_{LATER_REVISION}.py"
    file.write_text(_MIGRATION.format(revision=LATER_REVISION, head=revisions[-1]))
    return copied
