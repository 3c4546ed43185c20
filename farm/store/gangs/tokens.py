"""Fencing tokens: ids of attempts that only ever grow."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sqlalchemy import column, func, select, table
from sqlalchemy.orm import Session

from farm.store.engine import POSTGRESQL
from farm.store.tables import AttemptRow

logger = logging.getLogger(__name__)

_SEQUENCE = f"{AttemptRow.__tablename__}_id_seq"  # PostgreSQL's, which draws the tokens there
_COUNTERS = table("sqlite_sequence", column("name"), column("seq"))  # SQLite's
_OWN_COUNTER = _COUNTERS.c.name == AttemptRow.__tablename__
# Beyond this a token is an agent's damaged file, and following it would use up all numbers.
_LAST_TOKEN = 2**62
# What an agent says may be a lie. So far a single beat moves the tokens: after a loss beyond that
# they need some beats, and no stolen agent can use them up.
_FARTHEST = 2**20


def follow_tokens(session: Session, seen_tokens: Iterable[int]) -> None:
    """Make sure that the next token is higher than those that agents have seen.

    A new store in the place of a lost one, or one restored from a backup, would hand out tokens
    that its agents have seen before and therefore refuse: every job would fail until it caught up.
    """
    highest = max((token for token in seen_tokens if token < _LAST_TOKEN), default=0)
    if not highest:
        return
    latest = latest_token(session)
    if highest > latest:
        raise_latest_token(session, min(highest, latest + _FARTHEST))
        logger.warning("tokens go on from %d: an agent has seen %d", latest_token(session), highest)


def latest_token(session: Session) -> int:
    """Return the last token drawn, even if its attempt is gone; on PostgreSQL at least 1."""
    if session.get_bind().dialect.name == POSTGRESQL:
        return session.scalar(select(column("last_value")).select_from(table(_SEQUENCE))) or 0
    return session.scalar(select(_COUNTERS.c.seq).where(_OWN_COUNTER)) or 0


def raise_latest_token(session: Session, token: int) -> bool:
    """Let the next token be higher than `token`; False where it is already."""
    # Never set back: a number drawn meanwhile by a lease under way would come twice.
    if latest_token(session) >= token:
        return False
    if session.get_bind().dialect.name == POSTGRESQL:
        session.execute(select(func.setval(_SEQUENCE, token)))
    elif session.scalar(select(_COUNTERS.c.seq).where(_OWN_COUNTER)) is None:
        values = {"name": AttemptRow.__tablename__, "seq": token}
        session.execute(_COUNTERS.insert().values(values))
    else:
        session.execute(_COUNTERS.update().where(_OWN_COUNTER).values(seq=token))
    return True
