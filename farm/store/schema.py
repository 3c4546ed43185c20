"""The schema and its history: bring a store up to date, or say that it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from farm.errors import Unreachable
from farm.store.engine import POSTGRESQL, reading, redacted, writing

# Any number that no other program takes for an advisory lock in the same database.
_MIGRATION_LOCK = 7_301_846_115


def upgrade(engine: sa.Engine) -> None:
    """Bring the schema up to date, in one transaction; do nothing where it is.

    Two processes may do so at once: the second waits for the first and finds nothing to do.

    Raises:
        Unreachable: the database does not answer, or a newer benchfarm has upgraded it.
    """
    with _migrating(engine) as config:
        command.upgrade(config, "head")


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Go back to a revision; `base` removes every table with all that is in it.

    Raises:
        Unreachable: as for `upgrade`.
    """
    with _migrating(engine) as config:
        command.downgrade(config, revision)


def check_schema(engine: sa.Engine) -> None:
    """Pass if the schema is the one this version works with.

    Raises:
        Unreachable: it is older or newer, or the database does not answer.
    """
    scripts = ScriptDirectory.from_config(_config())
    with reading(engine) as session:
        found = _revision(session.connection())
    if found == scripts.get_current_head():
        return
    _refuse_newer(engine, scripts, found)
    raise Unreachable(
        f"database {redacted(engine.url)} has schema {found or 'none'}, "
        f"expected {scripts.get_current_head()}: run `farm db upgrade`"
    )


@contextmanager
def _migrating(engine: sa.Engine) -> Iterator[Config]:
    config = _config()
    with writing(engine) as session:
        connection = session.connection()
        if engine.dialect.name == POSTGRESQL:
            # SQLite's BEGIN IMMEDIATE has taken the write lock already.
            connection.exec_driver_sql("SET LOCAL lock_timeout = '600s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        _refuse_newer(engine, ScriptDirectory.from_config(config), _revision(connection))
        config.attributes["connection"] = connection
        yield config


def _config() -> Config:
    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _refuse_newer(engine: sa.Engine, scripts: ScriptDirectory, found: str | None) -> None:
    if found is not None and found not in {step.revision for step in scripts.walk_revisions()}:
        raise Unreachable(
            f"database {redacted(engine.url)} has schema {found}, which this benchfarm does not "
            "know: a newer one has upgraded it, so install that one here too"
        )
