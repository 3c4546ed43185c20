"""Upgrades the schema of a store, and checks that it is current.

Every command checks the schema, and Alembic takes a quarter of a second to load. So Alembic is
loaded only to change the schema. Revisions are read from the names of the migrations' files: the
number before the first `_` is their order, the rest is the revision.

A store from before the first release has a revision of another history (`FORMER_REVISIONS`).
`farm.store.maintenance.convert` converts those from "0014" on; everything else refuses them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from farm.errors import FarmError, Unreachable
from farm.store.base import Table
from farm.store.engine import POSTGRESQL, reading, redacted, writing

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
# The revisions of stores from before the first release, the oldest first. Those from "0014" on can
# be converted.
CONVERTIBLE_REVISIONS = (
    *("0014", "first_schema", "script_bundles", "first_release", "baselines", "notifications"),
    *("tracker_cursors", "imported_samples", "agent_count", "budgets", "step_processes"),
)
FORMER_REVISIONS = (*(f"{number:04}" for number in range(1, 14)), *CONVERTIBLE_REVISIONS)
_VERSION = sa.table("alembic_version", sa.column("version_num"))  # Alembic's, of one row
_MOST_DIFFERENCES = 5
_REMOVALS = ("remove_table", "remove_column", "remove_index", "remove_constraint")
# Any number that no other program takes for an advisory lock in the same database.
_MIGRATION_LOCK = 7_301_846_115


def upgrade(engine: sa.Engine) -> None:
    """Upgrade the schema in one transaction; do nothing if it is current.

    Two processes may do so at once: the second waits for the first and finds nothing to do.

    Raises:
        Unreachable: the database does not answer, has the schema of another version, or has tables
            of another program.
    """
    from alembic import command

    with migrating(engine) as connection:
        found = revision_of(connection)
        if found is None:
            _refuse_foreign(engine, connection)
        _refuse_unknown(engine, found)
        command.upgrade(alembic_config(connection), "head")


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Go back to a revision; `base` removes every table with all that is in it.

    Raises:
        Unreachable: as for `upgrade`.
    """
    from alembic import command

    with migrating(engine) as connection:
        _refuse_unknown(engine, revision_of(connection))
        command.downgrade(alembic_config(connection), revision)


def check_schema(engine: sa.Engine) -> None:
    """Pass if the schema is the one this version works with.

    Raises:
        Unreachable: it is older or newer, or the database does not answer.
    """
    with reading(engine) as session:
        found = revision_of(session.connection())
    expected = revisions()[-1]
    if found == expected:
        return
    _refuse_unknown(engine, found)
    raise Unreachable(
        f"database {redacted(engine.url)} has schema {found or 'none'}, "
        f"expected {expected}: run `farm db upgrade`"
    )


def check_tables(engine: sa.Engine) -> None:
    """Pass if a store of this version's schema has all of its tables, columns and indexes.

    It may have more, such as an index that its operator has added.

    Raises:
        FarmError: it has not, as after a restore that was broken off.
        Unreachable: the database does not answer.
    """
    import farm.store.result_tables
    import farm.store.tables  # noqa: F401 # imported to fill the metadata

    with reading(engine) as session:
        found = differences_from(session.connection(), Table.metadata, may_have_more=True)
    if found:
        raise FarmError(refusal_of(found, revisions()[-1], f"database {redacted(engine.url)}"))


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
    message = str(cause)
    return any(word in message for word in _PASSING) or not any(
        word in message for word in _REFUSALS
    )


def revisions() -> list[str]:
    """Return the revisions that this version knows, the oldest first."""
    files = (MIGRATIONS / "versions").glob("[0-9]*_*.py")
    return [name.partition("_")[2] for name in sorted(file.stem for file in files)]


def revision_of(connection: sa.Connection) -> str | None:
    """Return the revision recorded in the store; None for a database without our tables."""
    if not sa.inspect(connection).has_table(_VERSION.name):
        return None
    found: str | None = connection.scalar(sa.select(_VERSION.c.version_num))
    return found


@contextmanager
def migrating(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a transaction that may change the schema; a second one waits for its end."""
    with writing(engine) as session:
        connection = session.connection()
        if engine.dialect.name == POSTGRESQL:
            # SQLite's BEGIN IMMEDIATE has taken the write lock already.
            connection.exec_driver_sql("SET LOCAL lock_timeout = '600s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        yield connection


def alembic_config(connection: sa.Connection | None = None) -> Config:
    """Return Alembic's configuration: the migrations' folder and the connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def stamp(connection: sa.Connection, revision: str) -> None:
    """Write another revision into a store, and change nothing else."""
    connection.execute(sa.update(_VERSION).values(version_num=revision))


def refuse_newer(found: str, shown: str) -> None:
    """Raise Unreachable if a revision is neither of this version nor of an older one."""
    if found not in (*revisions(), *FORMER_REVISIONS):
        raise Unreachable(
            f"{shown} has schema {found}, which this benchfarm does not know: a newer one has "
            "upgraded it, so install that one here too"
        )


def differences_from(
    connection: sa.Connection, expected: sa.MetaData, *, may_have_more: bool = False
) -> list[str]:
    """Name what the database's tables lack or have besides; tables of others may be there."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def is_ours(name: str | None, kind: str, parents: object) -> bool:
        return kind != "table" or name in expected.tables

    options = {"include_name": is_ours, "compare_type": True}
    context = MigrationContext.configure(connection, opts=options)
    steps = compare_metadata(context, expected)
    return [_named(s) for s in steps if not (may_have_more and s[0] in _REMOVALS)]


def _named(step: Any) -> str:
    """Name a difference, given as the step that Alembic would take against it."""
    if isinstance(step, list):  # changes of one column
        _, _, table, column, *_ = step[0]
        return f"column {column} of table {table} has another type or takes NULL otherwise"
    action, *subject = step
    verb, _, kind = action.partition("_")
    found = "is missing" if verb == "add" else "is not expected"
    if kind == "table":
        return f"table {subject[0].name} {found}"
    table = subject[1] if kind == "column" else subject[0].table.name
    return f"{kind} {subject[-1].name} of table {table} {found}"


def refusal_of(differences: Sequence[str], revision: str, shown: str) -> str:
    """Say that a store's tables are not those of the revision that it says it has."""
    more = len(differences) - _MOST_DIFFERENCES
    named = [*differences[:_MOST_DIFFERENCES], *([f"{more} more"] if more > 0 else [])]
    return (
        f"{shown} says that it has schema {revision}, but differs from it: {'; '.join(named)}: "
        "change this by hand or restore a backup"
    )


def _refuse_foreign(engine: sa.Engine, connection: sa.Connection) -> None:
    """Raise Unreachable where there are tables, none of which a migration has made."""
    tables = sorted(set(sa.inspect(connection).get_table_names()) - {_VERSION.name})
    if tables:
        raise Unreachable(
            f"database {redacted(engine.url)} has tables of another program, such as "
            f"{tables[0]!r}: expected an empty database, or the store of a farm"
        )


def _refuse_unknown(engine: sa.Engine, found: str | None) -> None:
    if found is None or found in revisions():
        return
    shown = f"database {redacted(engine.url)}"
    refuse_newer(found, shown)
    raise Unreachable(
        f"{shown} has schema {found} of a development version, expected "
        f"{revisions()[-1]}: run `farm db convert` while the farm is stopped"
    )
