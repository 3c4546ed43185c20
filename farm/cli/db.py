"""`farm db`: the store's schema."""

from __future__ import annotations

import click

from farm.cli.session import settings, store


@click.group()
def db() -> None:
    """Upgrade or check the store's schema."""


@db.command()
def upgrade() -> None:
    """Create the store, or bring it to this program's schema, keeping what is in it."""
    from farm.store.engine import make_engine, redacted
    from farm.store.schema import upgrade as upgrade_schema

    loaded = settings()
    engine = make_engine(loaded.database_url)
    try:
        upgrade_schema(engine)
    finally:
        engine.dispose()
    click.echo(f"{redacted(loaded.database_url)} has the schema of this program")


@db.command()
def check() -> None:
    """Fail unless the store can be reached and has this program's schema."""
    from farm.store.engine import redacted

    loaded = settings()
    with store(loaded):
        click.echo(f"{redacted(loaded.database_url)} has the schema of this program")
