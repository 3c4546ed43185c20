"""Partitions of `samples`: one for each UTC day, made ahead of the day. PostgreSQL only.

Samples of a day without a partition go to the default partition. They are moved when the day gets
its own, so a day should have one before its first sample. A partition is built separately and then
attached, which locks neither `samples` nor another day's partition. Collectors go on storing,
except samples for the default partition. A batch of those waits and then fails, since its rows now
belong elsewhere; its agent sends it again.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session

from farm.store.engine import POSTGRESQL, reading, writing
from farm.store.result_tables import SampleRow

logger = logging.getLogger(__name__)

_SAMPLES = SampleRow.__tablename__
_DEFAULT = f"{_SAMPLES}_default"
_AHEAD_DAYS = 7
# Any number that no other program takes for an advisory lock in the same database.
_PARTITION_LOCK = 7_301_846_116
# The collector waits behind us to store samples while we wait for a lock, so give up early.
_LOCK_WAIT = "2s"
_TOOK_TOO_LONG = "57014"  # PostgreSQL's query_canceled: the limit of a move
# Beside it lock_not_available and deadlock_detected.
_POSTPONING_STATES = frozenset({"55P03", _TOOK_TOO_LONG, "40P01"})


def make_partitions(
    engine: sa.Engine,
    *,
    today: dt.date,
    others: Collection[dt.date] = (),
    longest_move_s: float | None = 5.0,
) -> list[dt.date]:
    """Make the partitions of today and the week to come, and of days that lie in the default one.

    `others` are days to make besides, for samples that are going to be copied here.

    Several processes may do so at once. Samples of a day in the default partition are moved, and
    collectors wait for that: a day that takes longer than `longest_move_s` (None: no limit) is
    left for another time, as everything is whose locks are not to be had within seconds.

    Returns the days whose partition was made now; `missing_days` says which are missing still.

    Raises:
        Unreachable: the database does not answer.
    """
    made = []
    for day in missing_days(engine, today=today, others=others):
        try:
            with writing(engine) as session:
                if _make(session, day, longest_move_s=longest_move_s):
                    made.append(day)
        except exc.OperationalError as error:
            if not is_lock_conflict(error):
                raise
            logger.warning("partition of %s postponed: %s", day, str(error.orig).splitlines()[0])
            # Locks that are not to be had are missing for the next day too; a move that takes too
            # long concerns its own day, and must not keep today from getting its partition.
            if getattr(error.orig, "sqlstate", None) != _TOOK_TOO_LONG:
                break
    if made:
        logger.info("partitions made: %s", ", ".join(map(str, made)))
    return made


def missing_days(
    engine: sa.Engine, *, today: dt.date, others: Collection[dt.date] = ()
) -> list[dt.date]:
    """Return the days that should have a partition of their own and do not, the first one first."""
    if engine.dialect.name != POSTGRESQL:
        return []
    with reading(engine) as session:
        wanted = {today + dt.timedelta(days=n) for n in range(_AHEAD_DAYS + 1)}
        wanted.update(others, _days_in_default(session))
        return sorted(wanted - set(partition_days(session)))


def partition_days(session: Session) -> list[dt.date]:
    """Return the days that have a partition of their own; none on SQLite."""
    if session.get_bind().dialect.name != POSTGRESQL:
        return []
    names = session.scalars(
        sa.text(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = CAST(:samples AS regclass)"
        ),
        {"samples": _SAMPLES},
    )
    found = (re.fullmatch(rf"{_SAMPLES}_(\d{{4}})_(\d\d)_(\d\d)", name) for name in names)
    return sorted(dt.date(*map(int, match.groups())) for match in found if match)


def drop_partition(session: Session, day: dt.date) -> None:
    """Drop a day with all its samples. The caller owns the transaction, and keeps it short.

    Raises:
        sqlalchemy.exc.OperationalError: the locks were not to be had within seconds.
    """
    _claim(session)
    session.execute(sa.text(f"DROP TABLE IF EXISTS {_name(day)}"))


def is_lock_conflict(error: exc.OperationalError) -> bool:
    """Whether the error is a lock conflict with others: try again later."""
    return getattr(error.orig, "sqlstate", None) in _POSTPONING_STATES


def _make(session: Session, day: dt.date, *, longest_move_s: float | None) -> bool:
    """Make one partition; False if another process was quicker."""
    _claim(session)
    if day in partition_days(session):
        return False
    if longest_move_s is not None:
        session.execute(sa.text(f"SET LOCAL statement_timeout = {int(longest_move_s * 1000)}"))
    name, columns = _name(day), ", ".join(c.name for c in SampleRow.__table__.columns)
    # Taken first: a sample that came between the move and the end would stop the attaching.
    session.execute(sa.text(f"LOCK TABLE {_DEFAULT} IN ACCESS EXCLUSIVE MODE"))
    session.execute(sa.text(f"CREATE TABLE {name} (LIKE {_SAMPLES} INCLUDING ALL)"))
    session.execute(
        sa.text(
            f"WITH moved AS (DELETE FROM {_DEFAULT} WHERE day = :day RETURNING {columns}) "  # noqa: S608 (names of our own)
            f"INSERT INTO {name} ({columns}) SELECT {columns} FROM moved"
        ),
        {"day": day},
    )
    session.execute(
        sa.text(
            f"ALTER TABLE {_SAMPLES} ATTACH PARTITION {name} "
            f"FOR VALUES FROM ('{day}') TO ('{day + dt.timedelta(days=1)}')"
        )
    )
    return True


def _claim(session: Session) -> None:
    """Keep other processes from changing partitions until the end of the transaction."""
    session.execute(sa.text(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'"))
    session.execute(sa.text(f"SELECT pg_advisory_xact_lock({_PARTITION_LOCK})"))


def _days_in_default(session: Session) -> list[dt.date]:
    """Return the days found there, by their index: each question reads one entry."""
    days: list[dt.date] = []
    following = sa.text(f"SELECT min(day) FROM {_DEFAULT} WHERE day > :after")  # noqa: S608 (names of our own)
    after: dt.date | None = dt.date.min
    while (after := session.scalar(following, {"after": after})) is not None:
        days.append(after)
    return days


def _name(day: dt.date) -> str:
    return f"{_SAMPLES}_{day:%Y_%m_%d}"
