"""`farm db`: the store itself, its schema, its retention, its backups and its moves."""

from __future__ import annotations

import datetime as dt

import click

from farm.cli.operating.copy import backup, copy, restore
from farm.cli.operating.prune import prune
from farm.cli.session import require_file, settings, store


@click.group()
def db() -> None:
    """Upgrade, convert or check the store, prune it, back it up, or copy it."""


db.add_command(prune)
db.add_command(copy)
db.add_command(backup)
db.add_command(restore)


@db.command()
def upgrade() -> None:
    """Create the store, or bring it to this program's schema.

    What is in it stays. On PostgreSQL, samples of days without a partition are moved into one of
    their own. Storing reports may have to wait for that.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.partitions import make_partitions
    from farm.store.schema import upgrade as upgrade_schema

    loaded = settings()
    engine = make_engine(loaded.database_url)
    try:
        upgrade_schema(engine)
        make_partitions(engine, today=dt.datetime.now(dt.UTC).date(), longest_move_s=None)
    finally:
        engine.dispose()
    click.echo(f"{redacted(loaded.database_url)} has the schema of this program")


@db.command()
def convert() -> None:
    """Convert a store from before the first release, in place.

    All of it is converted or, after an error, nothing. The store must have the last schema from
    before the release, 0014. Stop scheduler, collector and web server before. A backup file is
    converted alike, if FARM_DATABASE_URL names it; `farm db restore` converts its own copy.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.convert import convert as convert_store

    loaded = settings()
    require_file(loaded.database_url)
    engine = make_engine(loaded.database_url)
    try:
        is_converted = convert_store(engine)
    finally:
        engine.dispose()
    said = "is converted" if is_converted else "needs no conversion"
    click.echo(f"{redacted(loaded.database_url)} {said}")


@db.command()
@click.option("--force", is_flag=True, help="Also while others use the broker.")
def takeover(*, force: bool) -> None:
    """Make this store the one that the farm's broker serves.

    For a store that replaces another: a copy, one restored by other means than `farm db restore`,
    or a new farm on a broker that had another one. The other is refused from then on. Stop
    scheduler and collector before.
    """
    from farm.broker.claim import take_broker_over
    from farm.store.engine import redacted

    loaded = settings()
    with store(loaded) as engine:
        farm_id = take_broker_over(engine, loaded.broker_url, is_forced=force)
    click.echo(f"{redacted(loaded.database_url)} is the store of farm {farm_id[:8]} now")


@db.command()
def check() -> None:
    """Fail unless the store answers and has this program's schema."""
    from farm.store.engine import redacted

    loaded = settings()
    with store(loaded):
        click.echo(f"{redacted(loaded.database_url)} has the schema of this program")
