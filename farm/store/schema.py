"""The schema and its history: bring a store up to date, or say that it is not.

Every command looks whether it is, and Alembic takes a quarter of a second to load. So it is loaded
only to change something; a migration's file name begins with its revision, and they are in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from farm.errors import Unreachable
from farm.store.engine import POSTGRESQL, reading, redacted, writing

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)

_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION = sa.table("alembic_version", sa.column("version_num"))  # Alembic's, of one row
# Any number that no other program takes for an advisory lock in the same database.
_MIGRATION_LOCK = 7_301_846_115


def upgrade(engine: sa.Engine) -> None:
    """Bring the schema up to date, in one transaction; do nothing where it is.

    Two processes may do so at once: the second waits for the first and finds nothing to do.

    Raises:
        Unreachable: the database does not answer, or a newer benchfarm has upgraded it.
    """
    from alembic import command

    with _migrating(engine) as config:
        command.upgrade(config, "head")


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Go back to a revision; `base` removes every table with all that is in it.

    Raises:
        Unreachable: as for `upgrade`.
    """
    from alembic import command

    with _migrating(engine) as config:
        command.downgrade(config, revision)


def check_schema(engine: sa.Engine) -> None:
    """Pass if the schema is the one this version works with.

    Raises:
        Unreachable: it is older or newer, or the database does not answer.
    """
    with reading(engine) as session:
        found = _revision(session.connection())
    expected = revisions()[-1]
    if found == expected:
        return
    _refuse_newer(engine, found)
    raise Unreachable(
        f"database {redacted(engine.url)} has schema {found or 'none'}, "
        f"expected {expected}: run `farm db upgrade`"
    )


def await_schema(
    engine: sa.Engine, *, again_after_s: float = 1.0, waits: Callable[[float], bool]
) -> bool:
    """Check the schema once the database answers; False if `waits` says to stop.

    A database that is away, or is starting, is waited for; one that refuses us is not. `waits` is
    called with the seconds before each further try.

    Raises:
        Unreachable: it refuses the account or the TLS, or has another schema.
    """
    has_told = False
    while True:
        try:
            check_schema(engine)
        except Unreachable as error:
            if not _is_away(error):
                raise
            if not has_told:
                logger.warning("%s; waiting for it", error)
                has_told = True
            if waits(again_after_s):
                return False
        else:
            return True


_REFUSALS = ("FATAL:", "SSL", "no password supplied")
_PASSING = ("starting up", "shutting down", "in recovery mode", "too many clients", "too many conn")


def _is_away(error: Unreachable) -> bool:
    """Whether a database may answer later: it said nothing, or that it is not ready."""
    cause = error.__cause__
    if not isinstance(cause, sa.exc.OperationalError):
        return False
    said = str(cause)
    return any(word in said for word in _PASSING) or not any(word in said for word in _REFUSALS)


def revisions() -> list[str]:
    """Return the revisions that this version knows, the oldest first."""
    files = (_MIGRATIONS / "versions").glob("[0-9]*_*.py")
    return sorted(file.name.partition("_")[0] for file in files)


@contextmanager
def _migrating(engine: sa.Engine) -> Iterator[Config]:
    config = alembic_config()
    with writing(engine) as session:
        connection = session.connection()
        if engine.dialect.name == POSTGRESQL:
            # SQLite's BEGIN IMMEDIATE has taken the write lock already.
            connection.exec_driver_sql("SET LOCAL lock_timeout = '600s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        _refuse_newer(engine, _revision(connection))
        config.attributes["connection"] = connection
        yield config


def alembic_config() -> Config:
    """Return where the migrations are."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    found: str | None = connection.scalar(sa.select(_VERSION.c.version_num))
    return found


def _refuse_newer(engine: sa.Engine, found: str | None) -> None:
    if found is not None and found not in revisions():
        raise Unreachable(
            f"database {redacted(engine.url)} has schema {found}, which this benchfarm does not "
            "know: a newer one has upgraded it, so install that one here too"
        )
