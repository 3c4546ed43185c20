"""Fencing tokens: the ids of attempts, which only ever grow, also for the agents' eyes."""

from __future__ import annotations

import logging

from sqlalchemy import column, func, select, table
from sqlalchemy.orm import Session

from farm.store.engine import POSTGRESQL
from farm.store.tables import Attempt

logger = logging.getLogger(__name__)

_SEQUENCE = f"{Attempt.__tablename__}_id_seq"  # PostgreSQL's, which draws the tokens there
# Beyond this a token is an agent's damaged file, and following it would use up all numbers.
_LAST_TOKEN = 2**62


def follow_tokens(session: Session, highest_token: int) -> None:
    """Make sure that the next token is higher than one that an agent has seen.

    A store that was created anew, or restored from a backup, would hand out tokens that its
    agents have seen before and therefore refuse, and every job would fail until it caught up.
    """
    if highest_token >= _LAST_TOKEN:
        return
    if session.get_bind().dialect.name == POSTGRESQL:
        latest = session.scalar(select(column("last_value")).select_from(table(_SEQUENCE))) or 0
        # Never set back: a number drawn meanwhile by a lease under way would come twice.
        if latest < highest_token:
            session.execute(select(func.setval(_SEQUENCE, highest_token)))
    else:
        counters = table("sqlite_sequence", column("name"), column("seq"))
        row = counters.c.name == Attempt.__tablename__
        known = session.scalar(select(counters.c.seq).where(row))
        latest = known or 0
        if known is None and highest_token > 0:
            values = {"name": Attempt.__tablename__, "seq": highest_token}
            session.execute(counters.insert().values(values))
        elif latest < highest_token:
            session.execute(counters.update().where(row).values(seq=highest_token))
    if latest < highest_token:
        logger.warning("tokens go on from %d: an agent has seen it", highest_token)
