"""How far each agent's spool is stored, with a lock that orders its batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import bindparam, select, tuple_, update
from sqlalchemy.orm import Session

from farm.messages.reports import ReportBatch
from farm.store.engine import POSTGRESQL
from farm.store.tables import SpoolPosition

SpoolKey = tuple[str, str]  # agent id and generation

# Every message passes through these two, so they are built once, and they work on columns: building
# them each time, and loading and flushing objects, was a third of the cost of a small message.
_CONFIRMED = (
    select(SpoolPosition.agent_id, SpoolPosition.generation, SpoolPosition.confirmed_number)
    .where(
        tuple_(SpoolPosition.agent_id, SpoolPosition.generation).in_(
            bindparam("spools", expanding=True)
        )
    )
    .order_by(SpoolPosition.agent_id, SpoolPosition.generation)
    .with_for_update()
)
_CONFIRM = (
    update(SpoolPosition)
    .where(
        SpoolPosition.agent_id == bindparam("agent"), SpoolPosition.generation == bindparam("spool")
    )
    .values(confirmed_number=bindparam("number"), updated_at=bindparam("now"))
)
_CONFIRM_ARRAYS = f"""
    UPDATE {SpoolPosition.__tablename__} AS p
    SET confirmed_number = r.number, updated_at = %s
    FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS r (agent_id, generation, number)
    WHERE p.agent_id = r.agent_id AND p.generation = r.generation
"""  # noqa: S608 (a name of our own)


def lock_positions(
    session: Session, batches: Sequence[ReportBatch], *, now: dt.datetime
) -> dict[SpoolKey, int]:
    """Lock the spools' positions, always in the same order, and return how far each is stored.

    One that is not known here begins with the first batch of it.
    """
    first: dict[SpoolKey, int] = {}
    for batch in batches:
        first.setdefault((batch.agent_id, batch.generation), batch.reports[0].number)
    rows = session.execute(_CONFIRMED, {"spools": list(first)})
    confirmed = {(agent_id, generation): number for agent_id, generation, number in rows}
    # In order as well, since two collectors may meet here.
    for (agent_id, generation), number in sorted(first.items()):
        if (agent_id, generation) not in confirmed:
            confirmed[agent_id, generation] = number - 1
            position = SpoolPosition(
                agent_id=agent_id,
                generation=generation,
                confirmed_number=number - 1,
                updated_at=now,
            )
            session.add(position)
    # The second of the two fails on the key, and its messages come again.
    session.flush()
    return confirmed


def write_positions(
    session: Session,
    confirmed: Mapping[SpoolKey, int],
    spools: Iterable[SpoolKey],
    *,
    now: dt.datetime,
) -> None:
    """Note how far these spools are stored."""
    rows = [(agent, spool, confirmed[agent, spool]) for agent, spool in sorted(set(spools))]
    connection = session.connection()
    if connection.dialect.name == POSTGRESQL:
        agents, generations, numbers = map(list, zip(*rows, strict=True))
        connection.exec_driver_sql(_CONFIRM_ARRAYS, (now, agents, generations, numbers))
    else:
        named = [
            {"agent": agent, "spool": spool, "number": number, "now": now}
            for agent, spool, number in rows
        ]
        connection.execute(_CONFIRM, named)
