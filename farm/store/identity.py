"""The identity of a farm: its id, its store and its broker."""

from __future__ import annotations

import datetime as dt
import secrets
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc, update
from sqlalchemy.orm import Session

from farm.errors import OtherFarm
from farm.store.engine import POSTGRESQL, insert_into, reading, redacted, writing
from farm.store.tables import FarmIdentity

_ONLY = 1
TAKEOVER = "run `farm db takeover` with the farm's services stopped"
# A broker that none of a farm's processes has seen for so long no longer serves it.
BROKER_KEPT = dt.timedelta(seconds=15)
_SEEN_EVERY = dt.timedelta(seconds=4)


class BrokerChanged(OtherFarm):
    """A store was used with another broker some seconds ago."""


def stored_identity(session: Session) -> FarmIdentity | None:
    """Return the identity; None where no farm has run on this store yet."""
    return session.get(FarmIdentity, _ONLY)


def look_at_identity(engine: sa.Engine) -> FarmIdentity | None:
    """Return the identity as `own_identity` does, None where there is none; write nothing.

    Raises:
        OtherFarm: the store is a copy of another one that may still be used.
        Unreachable: the database does not answer.
    """
    with reading(engine) as session:
        found = stored_identity(session)
    if found is not None and found.place is not None:
        _check_place(engine, found, place_of(engine))
    return found


def own_identity(engine: sa.Engine) -> FarmIdentity:
    """Return the identity of the store, which is made here if it has none.

    Raises:
        OtherFarm: the store is a copy of another one that may still be used.
        Unreachable: the database does not answer.
    """
    place = place_of(engine)
    with reading(engine) as session:
        found = stored_identity(session)
    if found is None or found.place is None:
        with writing(engine) as session:
            row = {"id": _ONLY, "farm_id": secrets.token_hex(16), "incarnation": 1}
            made = insert_into(session, FarmIdentity).values(row)
            session.execute(made.on_conflict_do_nothing())
            session.execute(
                update(FarmIdentity).where(FarmIdentity.place.is_(None)).values(place=place)
            )
            found = session.get_one(FarmIdentity, _ONLY, populate_existing=True)
    _check_place(engine, found, place)
    return found


def _check_place(engine: sa.Engine, found: FarmIdentity, place: str) -> None:
    if not is_same_place(found.place or "", place):
        raise OtherFarm(
            f"database {redacted(engine.url)} is a copy of the store of farm {found.farm_id[:8]}: "
            f"use the original or, if this one replaces it, {TAKEOVER}"
        )


def note_broker(
    engine: sa.Engine,
    own: FarmIdentity,
    broker_id: str,
    *,
    former_id: str | None,
    now: dt.datetime,
) -> None:
    """Record that a broker serves this store now.

    `own`: the store's identity, just read. `former_id`: the broker that this process has noted
    before, and may replace.

    Raises:
        BrokerChanged: another process uses this store with another broker.
    """
    is_same = own.broker_id == broker_id
    if is_same and _is_within(own, now, _SEEN_EVERY):
        return
    if not is_same and own.broker_id != former_id and _is_within(own, now, BROKER_KEPT):
        raise BrokerChanged(
            f"database {redacted(engine.url)} is in use with another broker: give every process of "
            f"the farm the same FARM_BROKER_URL; if that one has gone, this one is taken "
            f"{BROKER_KEPT.seconds} s after it was used last"
        )
    with writing(engine) as session:
        session.execute(update(FarmIdentity).values(broker_id=broker_id, broker_seen_at=now))


def release_broker(engine: sa.Engine, broker_id: str) -> None:
    """Let the next process use another broker at once."""
    held = FarmIdentity.broker_id == broker_id
    with writing(engine) as session:
        session.execute(update(FarmIdentity).where(held).values(broker_seen_at=None))


def take_over(session: Session, *, above: int = 0) -> None:
    """Make this store the farm's valid one, wherever it is. `above`: the broker's incarnation."""
    newer = sa.case((FarmIdentity.incarnation > above, FarmIdentity.incarnation), else_=above) + 1
    values = {"incarnation": newer, "place": None, "broker_id": None, "broker_seen_at": None}
    session.execute(update(FarmIdentity).values(values))


def settle_here(engine: sa.Engine) -> None:
    """Accept the present place and another broker for a store that is not shared."""
    with writing(engine) as session:
        session.execute(update(FarmIdentity).values(place=None, broker_seen_at=None))


def place_of(engine: sa.Engine) -> str:
    """Return a name for a database's place, which changes when it is copied, not renamed.

    Of PostgreSQL the server's system identifier and the database's number; of SQLite the file's
    number and its path.
    """
    if engine.dialect.name == POSTGRESQL:
        return _postgresql_place(engine)
    file = Path(str(engine.url.database)).resolve()
    return f"{file.stat().st_ino}:{file}"


def is_same_place(place: str, other: str) -> bool:
    """Whether two names are of one place: of a file, either its number or its path is the same."""
    number, _, path = place.partition(":")
    other_number, _, other_path = other.partition(":")
    return number == other_number or (path != "" and path == other_path)


def _postgresql_place(engine: sa.Engine) -> str:
    database = "(SELECT oid FROM pg_database WHERE datname = current_database())"
    try:
        with reading(engine) as session:
            found = session.scalar(
                sa.text(f"SELECT system_identifier || '/' || {database} FROM pg_control_system()")  # noqa: S608 (no input)
            )
    except exc.ProgrammingError:
        # Some hosts keep the system identifier to themselves.
        with reading(engine) as session:
            found = session.scalar(sa.text(f"SELECT 'database/' || {database}"))
    return str(found)


def _is_within(row: FarmIdentity, now: dt.datetime, period: dt.timedelta) -> bool:
    # Also a clock that was set back since must not count as recent for hours.
    return row.broker_seen_at is not None and abs(now - row.broker_seen_at) <= period
