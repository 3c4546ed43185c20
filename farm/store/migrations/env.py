"""Alembic's environment: runs each command on the caller's connection, in its transaction."""

from __future__ import annotations

from alembic import context

import farm.store.result_tables
import farm.store.tables  # noqa: F401 # imported to fill the metadata
from farm.store.base import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
