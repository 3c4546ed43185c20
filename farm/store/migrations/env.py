"""What Alembic runs for every command: on the connection, and in the transaction, of the caller."""

from __future__ import annotations

from alembic import context

from farm.store.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
