"""Health of the database, and recent losses of data. Reads only.

The exception is `write_error`, which writes a row and rolls back.
"""

from __future__ import annotations

import datetime as dt
import uuid

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from farm.errors import Unreachable
from farm.gang.lifecycle import AttemptState
from farm.messages.trainer_lines import FailureKind
from farm.store.engine import POSTGRESQL, writing
from farm.store.tables import AttemptRow, SpoolPosition


def server_version(session: Session) -> str:
    """Return the database's name and version, such as "PostgreSQL 16.2"."""
    if session.get_bind().dialect.name == POSTGRESQL:
        return f"PostgreSQL {str(session.scalar(sa.text('SHOW server_version'))).split()[0]}"
    return f"SQLite {session.scalar(sa.text('SELECT sqlite_version()'))}"


def database_bytes(session: Session) -> int | None:
    """Return the size of the database."""
    question = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    if session.get_bind().dialect.name == POSTGRESQL:
        question = "SELECT pg_database_size(current_database())"
    found: int | None = session.scalar(sa.text(question))
    return found


def database_time(session: Session) -> dt.datetime | None:
    """Return the time of the database's clock; None for a file, which has none."""
    if session.get_bind().dialect.name != POSTGRESQL:
        return None
    now: dt.datetime | None = session.scalar(sa.text("SELECT clock_timestamp()"))
    return now


def write_error(engine: sa.Engine) -> str | None:
    """Return why a row cannot be written, in one line; None if it can. The row is rolled back."""
    row = sa.insert(SpoolPosition).values(
        agent_id="farm doctor",
        generation=uuid.uuid4().hex,
        confirmed_number=0,
        updated_at=dt.datetime.now(dt.UTC),
    )
    try:
        with writing(engine) as session:
            attempt = session.begin_nested()
            session.execute(row)
            attempt.rollback()
    except (SQLAlchemyError, Unreachable) as error:
        cause = error.__cause__ if isinstance(error, Unreachable) else error
        reason = str(getattr(cause, "orig", None) or cause or error).strip()
        return reason.splitlines()[0][:200] if reason else type(error).__name__
    return None


def failed_attempts(session: Session, kind: FailureKind, *, since: dt.datetime) -> dict[str, int]:
    """Count by reason the attempts that ended by one kind of failure."""
    rows = session.execute(
        sa.select(AttemptRow.reason, sa.func.count())
        .where(AttemptRow.failure_kind == kind.value, AttemptRow.ended_at >= since)
        .group_by(AttemptRow.reason)
    )
    return {reason or "": count for reason, count in rows}


def succeeded_count(session: Session, *, since: dt.datetime) -> int:
    """Count the attempts that were measured."""
    ended = (AttemptRow.failure_kind.is_(None), AttemptRow.ended_at >= since)
    is_measured = AttemptRow.state == AttemptState.SUCCEEDED
    query = sa.select(sa.func.count()).select_from(AttemptRow).where(*ended, is_measured)
    return session.scalar(query) or 0


def failure_counts(session: Session) -> dict[str, int]:
    """Count by kind of failure all attempts that ever failed; attempts are never deleted."""
    rows = session.execute(
        sa.select(AttemptRow.failure_kind, sa.func.count())
        .where(AttemptRow.failure_kind.is_not(None))
        .group_by(AttemptRow.failure_kind)
    )
    return {kind: count for kind, count in rows if kind is not None}
