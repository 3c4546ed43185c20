"""Database connections: one engine for each process, one transaction for each `with` block.

SQLite and PostgreSQL behave alike here: a reading block sees one snapshot and cannot write, a
writing block commits at its end or not at all, and every wait ends after some seconds.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from farm.errors import InvalidSpec, Unreachable
from farm.processes.private_files import make_private_file, make_private_folder
from farm.store.base import Table

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
# Databases limit the parameters of one statement.
IDS_A_QUERY = 1000
# Of failed statements: errors are logged, and secrets of messages and tokens are among them.
_HIDE_PARAMETERS = True
_LOCK_TIMEOUT_S = 10.0
_BREATH_S = 0.1
_CONNECT_TIMEOUT_S = 5
# Kept open, if so many were ever needed at once: the web server asks with some twenty threads, and
# to open a connection for a request and close it again costs more than most requests do.
_KEPT_CONNECTIONS, _MORE_CONNECTIONS = 16, 8
# For a process that repeats what failed. To ask whether the database is still there is one more
# exchange for each transaction.
TRUSTED_S = 2.0
# A day of samples is thinned by sorting or hashing some 100,000 rows, which goes through files
# within the 4 MB that PostgreSQL gives by default.
_SORT_MEMORY = "32MB"
_RESTS_SINCE_S = "rests_since_s"  # under this name a connection keeps its last use
_IS_FOREIGN = """
    SELECT EXISTS (SELECT 1 FROM sqlite_master)
    AND NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'attempts')
"""
# Errors that people can mend: no room, a broken disk, damaged data, no permission.
_SQLITE_FOR_PEOPLE = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
)
_POSTGRESQL_FOR_PEOPLE = ("53", "58030", "XX001", "XX002", "42501")  # 53: a whole class
# Only of a writing block: a reading block that writes is a bug.
_READ_ONLY = (sqlite3.SQLITE_READONLY, "25006")
_EXPECTED = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"


def make_engine(url: str, *, name: str = "FARM_DATABASE_URL", trusted_s: float = 0.0) -> sa.Engine:
    """Return an engine for the store; nothing is connected yet.

    The caller owns it and disposes of it. For SQLite the file's folder is created. `name` names the
    URL in errors. `trusted_s`: a connection to PostgreSQL that was used within this time is used
    again without a check. After a restart of the database the next transaction then fails, so give
    this only if failed transactions are repeated.

    Raises:
        InvalidSpec: not the URL of an SQLite file or of a PostgreSQL database.
        Unreachable: the file's folder cannot be created.
    """
    parsed = _parse(url, name)
    backend = parsed.get_backend_name()
    if backend == SQLITE and parsed.database and parsed.database != ":memory:":
        return _sqlite(parsed)
    if backend == POSTGRESQL and parsed.drivername in (POSTGRESQL, "postgresql+psycopg"):
        return _postgresql(parsed.set(drivername="postgresql+psycopg"), trusted_s=trusted_s)
    raise InvalidSpec(name, redacted(url), _EXPECTED)


def insert_into(session: Session, table: type[Table]) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that can take ON CONFLICT, in the dialect of the session's database."""
    is_postgresql = session.get_bind().dialect.name == POSTGRESQL
    return postgresql.insert(table) if is_postgresql else sqlite.insert(table)


@contextmanager
def reading(engine: sa.Engine) -> Iterator[Session]:
    """Open a session that sees one snapshot of the store and cannot change it.

    What was loaded stays readable after the block.

    Raises:
        Unreachable: the database does not answer.
    """
    with (
        _transaction(engine, is_reading=True) as connection,
        Session(connection, expire_on_commit=False) as session,
    ):
        yield session


@contextmanager
def writing(engine: sa.Engine) -> Iterator[Session]:
    """Open a session whose changes are committed at the end of the block, or undone on an error.

    SQLite has one writer at a time, so keep the block short. Loaded rows stay readable after it.

    Raises:
        Unreachable: the database does not answer, or is locked by another for seconds.
    """
    with (
        _transaction(engine, is_reading=False) as connection,
        Session(connection, expire_on_commit=False) as session,
    ):
        yield session
        session.commit()


@contextmanager
def short_writing(engine: sa.Engine) -> Iterator[Session]:
    """Open a session as `writing` does, for one of many transactions of a long work.

    Processes that wait for the write lock of SQLite try again every tenth of a second at worst, and
    would always lose against a writer that takes it again at once. So this pauses after the block.
    """
    with writing(engine) as session:
        yield session
    if engine.dialect.name == SQLITE:
        time.sleep(_BREATH_S)


def redacted(url: str | sa.URL) -> str:
    """Return the URL without passwords, for pages and logs."""
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        shown = str(url)
    else:
        secret = [key for key in parsed.query if "password" in key]
        shown = parsed.difference_update_query(secret).render_as_string(hide_password=True)
    # A password with an "@" or "/" that is not percent-encoded confuses every parser of URLs.
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", shown)


@contextmanager
def _transaction(engine: sa.Engine, *, is_reading: bool) -> Iterator[sa.Connection]:
    """Begin at once, so that an unreachable database is noticed here."""
    has_begun = False
    try:
        with engine.connect() as connection:
            if is_reading:
                connection.execution_options(farm_reading=True)
                if engine.dialect.name == POSTGRESQL:
                    connection.execution_options(
                        isolation_level="REPEATABLE READ", postgresql_readonly=True
                    )
            with connection.begin():
                has_begun = True
                yield connection
    except exc.DBAPIError as error:
        is_for_people = error.connection_invalidated or _is_for_people(error, is_reading=is_reading)
        if has_begun and not is_for_people:
            raise
        raise unreachable(engine, error.orig or error) from error
    except exc.TimeoutError as error:
        raise unreachable(engine, error) from error


def _is_for_people(error: exc.DBAPIError, *, is_reading: bool) -> bool:
    """Whether people must repair something first, such as a full disk; nothing was written."""
    code: int | str
    if isinstance(error.orig, sqlite3.Error):
        # Extended codes have the primary one in their last byte; errors of Python's have none.
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        is_known = code in _SQLITE_FOR_PEOPLE
    else:
        code = str(getattr(error.orig, "sqlstate", None) or "")
        is_known = code.startswith(_POSTGRESQL_FOR_PEOPLE)
    return is_known or (code in _READ_ONLY and not is_reading)


def unreachable(engine: sa.Engine, error: BaseException) -> Unreachable:
    """Return an error that says which database did not answer, why, and what to do."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    what = "the file, the disk and what else uses it" if engine.name == SQLITE else "that it runs"
    return Unreachable(
        f"database {redacted(engine.url)} cannot be used: {lines[0].strip()}; "
        f"check {what}, and its URL: FARM_DATABASE_URL unless an option gave it"
    )


def _parse(url: str, name: str) -> sa.URL:
    try:
        # The short scheme is what hosting providers hand out.
        return sa.make_url(re.sub(r"^postgres://", "postgresql://", url))
    except (exc.ArgumentError, ValueError):
        raise InvalidSpec(name, redacted(url), _EXPECTED) from None


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(
        url,
        connect_args={"timeout": _LOCK_TIMEOUT_S},
        pool_timeout=10,
        hide_parameters=_HIDE_PARAMETERS,
    )
    database = url.database or ""
    if database and database != ":memory:" and not database.startswith("file:"):
        try:
            make_private_folder(Path(database).parent)
        except OSError as error:
            raise unreachable(engine, error) from error

        @event.listens_for(engine, "do_connect")
        def create(*_: object) -> None:
            """Make the file before SQLite does; its logs beside it get the same mode."""
            with contextlib.suppress(OSError):  # SQLite says it
                make_private_file(Path(database))

    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, record: object) -> None:
    connection.isolation_level = None  # transactions begin where we say so, not at the first write
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a new file to WAL. SQLite does not wait for that lock by itself, so we do.

    A database of another program, which this one refuses later, stays as it is.
    """
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            (is_foreign,) = connection.execute(_IS_FOREIGN).fetchone()
            if not is_foreign:
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    """Take the write lock first: a reader that becomes a writer fails if there is another one."""
    is_reading = connection.get_execution_options().get("farm_reading", False)
    connection.exec_driver_sql(f"PRAGMA query_only = {int(is_reading)}")
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


def _postgresql(url: sa.URL, *, trusted_s: float) -> sa.Engine:
    engine = sa.create_engine(
        url,
        pool_use_lifo=True,
        pool_size=_KEPT_CONNECTIONS,
        max_overflow=_MORE_CONNECTIONS,
        pool_timeout=10,
        hide_parameters=_HIDE_PARAMETERS,
        connect_args={
            "connect_timeout": _CONNECT_TIMEOUT_S,
            # A server that vanished without a word is noticed within half a minute.
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
            "options": (
                f"-c lock_timeout={int(_LOCK_TIMEOUT_S * 1000)} -c timezone=UTC "
                f"-c work_mem={_SORT_MEMORY}"
            ),
        },
    )
    event.listen(engine, "checkin", _note_rest)
    check = functools.partial(_check_rested, engine.dialect, trusted_s)
    event.listen(engine, "checkout", check)
    return engine


def _note_rest(_: object, record: ConnectionPoolEntry) -> None:
    record.info[_RESTS_SINCE_S] = time.monotonic()


def _check_rested(
    dialect: sa.Dialect,
    trusted_s: float,
    connection: Any,
    record: ConnectionPoolEntry,
    _: object,
) -> None:
    """Replace a connection that was closed meanwhile, and all that are as old."""
    since_s = record.info.get(_RESTS_SINCE_S)
    if since_s is None or time.monotonic() - since_s < trusted_s:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise exc.InvalidatePoolError from error
