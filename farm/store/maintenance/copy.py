"""Copies a store into another database, and proves that the copy is complete.

The target is filled in one transaction from one snapshot of the source, and both are compared
before it commits. So it holds everything or nothing, whatever happens on the way.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import exc, func, select
from sqlalchemy.orm import Session

import farm.store.result_tables
import farm.store.tables  # noqa: F401 # imported to fill the metadata
from farm.errors import FarmError
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES
from farm.messages.agents import HEARTBEAT_S
from farm.store.base import Table
from farm.store.engine import POSTGRESQL, reading, redacted, writing
from farm.store.gangs.leases import latest_token, raise_latest_token
from farm.store.maintenance.partitions import make_partitions
from farm.store.result_tables import SampleRow
from farm.store.schema import check_schema, upgrade
from farm.store.tables import AgentRow, AttemptRow

_ROWS_AT_ONCE = 5000
_HEARD_WITHIN = dt.timedelta(seconds=3 * HEARTBEAT_S)

# Told how many rows are done of how many: each is copied and then compared.
ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """`checksum` is of the rows' contents in any order, the same on both sides."""

    name: str
    row_count: int
    checksum: str


def copy_store(
    source: sa.Engine,
    target: sa.Engine,
    *,
    now: dt.datetime,
    is_forced: bool,
    progress: ProgressCallback,
    finish: Callable[[Session], None] = lambda session: None,
) -> list[CopiedTable]:
    """Copy every table into an empty store, which gets its schema here if it has none.

    Tokens continue in the target after those of the source, so agents accept them. A running farm
    would go on writing to the source, so that is refused unless `is_forced`. `finish` changes the
    target before it commits.

    Raises:
        FarmError: the source is at work, or the target holds rows or does not take one of them.
        Unreachable: a database does not answer, or the source has another schema.
    """
    check_schema(source)
    with reading(source) as session:
        if not is_forced:
            _refuse_work(session, now=now)
        days = list(session.scalars(select(SampleRow.day).distinct()))
    upgrade(target)
    with reading(target) as session:
        _refuse_rows(session, target)
    make_partitions(target, today=now.date(), others=days)
    tables = Table.metadata.sorted_tables
    with reading(source) as old, writing(target) as new:
        _lock(new, tables)
        _refuse_rows(new, target)
        counts = (select(func.count()).select_from(table) for table in tables)
        total = 2 * sum(old.scalar(count) or 0 for count in counts)
        steps = _Steps(progress, total)
        copied = [_copy_table(old, new, table, steps) for table in tables]
        for table, expected in zip(tables, copied, strict=True):
            _compare(new, table, expected, steps)
        _follow_numbers(old, new, tables)
        finish(new)
    return copied


class _Steps:
    """Counts rows for the progress bar, some thousand at a time."""

    def __init__(self, progress: ProgressCallback, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        progress(0, total)

    def add(self, count: int) -> None:
        self._done += count
        self._progress(self._done, self._total)


class _Checksum:
    """The sum of the rows' hashes, independent of order: databases sort texts differently."""

    def __init__(self) -> None:
        self.row_count = 0
        self._sum = 0

    def add(self, row: Sequence[Any]) -> None:
        text = repr([_plain(value) for value in row]).encode()
        digest = hashlib.blake2b(text, digest_size=16).digest()
        self._sum = (self._sum + int.from_bytes(digest, "big")) % 2**128
        self.row_count += 1

    def of(self, table: sa.Table) -> CopiedTable:
        return CopiedTable(name=table.name, row_count=self.row_count, checksum=f"{self._sum:032x}")


def _plain(value: Any) -> Any:
    """Return a value in a form that is the same for all databases."""
    if isinstance(value, float):
        return value + 0.0  # SQLite knows no negative zero
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True)
    return value


def _refuse_work(session: Session, *, now: dt.datetime) -> None:
    active = select(func.count()).where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES))
    recent = select(func.count()).where(AgentRow.heartbeat_at > now - _HEARD_WITHIN)
    active_count, heard_count = session.scalar(active) or 0, session.scalar(recent) or 0
    if active_count or heard_count:
        raise FarmError(
            f"the farm is at work ({active_count} active attempts, {heard_count} agents heard from "
            "just now), and what it stores from now on would stay behind: let its attempts end, "
            "stop scheduler, collector and web server and wait 15 s, or pass --force"
        )


def _refuse_rows(session: Session, target: sa.Engine) -> None:
    for table in Table.metadata.sorted_tables:
        if session.execute(select(sa.literal(1)).select_from(table).limit(1)).first():
            raise FarmError(
                f"table {table.name} of {redacted(target.url)} has rows: expected an empty store; "
                "give another database, or remove what is in this one"
            )


def _lock(session: Session, tables: Sequence[sa.Table]) -> None:
    """Keep others from writing to the target; SQLite has its one write lock already."""
    if session.get_bind().dialect.name == POSTGRESQL:
        names = ", ".join(table.name for table in tables)
        session.execute(sa.text(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE"))


def _copy_table(old: Session, new: Session, table: sa.Table, steps: _Steps) -> CopiedTable:
    checksum = _Checksum()
    insert = _copy_in if new.get_bind().dialect.name == POSTGRESQL else _insert
    try:
        for rows in _rows(old, table):
            for row in rows:
                checksum.add(row)
            insert(new.connection(), table, rows)
            steps.add(len(rows))
    except (exc.DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        reason = " ".join(str(cause).split())[:300]
        raise FarmError(f"table {table.name}: nothing is copied, since {reason}") from error
    return checksum.of(table)


def _rows(session: Session, table: sa.Table) -> Iterator[Sequence[sa.Row[Any]]]:
    options = {"yield_per": table.info.get("rows_at_once", _ROWS_AT_ONCE)}
    found = session.connection().execute(select(table), execution_options=options)
    yield from found.partitions()


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[sa.Row[Any]]) -> None:
    connection.execute(table.insert(), [row._asdict() for row in rows])


def _copy_in(connection: sa.Connection, table: sa.Table, rows: Sequence[sa.Row[Any]]) -> None:
    """Insert by COPY: a whole copy took two thirds of its time with INSERTs."""
    dialect = connection.dialect
    bind = [c.type.dialect_impl(dialect).bind_processor(dialect) for c in table.columns]
    names = ", ".join(column.name for column in table.columns)
    driver: Any = connection.connection.dbapi_connection  # psycopg's, which has more than others
    with (
        driver.cursor() as cursor,
        cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(
                [
                    process(value) if process else value
                    for process, value in zip(bind, row, strict=True)
                ]
            )


def _compare(session: Session, table: sa.Table, expected: CopiedTable, steps: _Steps) -> None:
    checksum = _Checksum()
    for rows in _rows(session, table):
        for row in rows:
            checksum.add(row)
        steps.add(len(rows))
    if checksum.of(table) != expected:
        raise FarmError(
            f"table {table.name}: nothing is copied, since its {expected.row_count} rows read "
            f"back as {checksum.row_count} with other contents; report this, with both versions"
        )


def _follow_numbers(old: Session, new: Session, tables: Sequence[sa.Table]) -> None:
    """Continue the numbering of the source in the target."""
    raise_latest_token(new, latest_token(old))
    if new.get_bind().dialect.name != POSTGRESQL:
        return  # SQLite takes the number after the largest
    for table in tables:
        is_numbered = "id" in table.c and isinstance(table.c.id.type, sa.Integer)
        if table.name == AttemptRow.__tablename__ or not is_numbered:
            continue
        largest = new.scalar(select(func.max(table.c.id)))
        if largest is not None:
            new.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), largest)))
