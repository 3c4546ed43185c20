"""What one message from an agent does: check, store, and say what to answer. No broker here."""

from __future__ import annotations

import datetime as dt
import logging

from sqlalchemy import Engine

from farm.core.admission import beat_age_s
from farm.core.agents import Heartbeat
from farm.core.commands import BeatConfirmed, Confirm
from farm.core.messages import unseal
from farm.core.reports import ReportBatch
from farm.core.storable import storable
from farm.store.engine import writing
from farm.store.heartbeats import BeatEffect, record_heartbeat
from farm.store.reports import Stored, store_batch

logger = logging.getLogger(__name__)


def take_reports(
    engine: Engine, envelope: object, *, now: dt.datetime
) -> tuple[str, Confirm, Stored]:
    """Store a batch; return its sender, what to confirm to it now, and what it did.

    Raises:
        InvalidSpec: the message is not a batch of this version; nothing was stored.
    """
    batch = unseal(ReportBatch, envelope)
    assert isinstance(batch, ReportBatch)
    with writing(engine) as session:
        stored = store_batch(session, batch, now=now)
    for (token, rank), count in stored.late.items():
        ids = {"job_id": stored.job_ids.get(token), "attempt_id": token, "rank": rank}
        extra = {"agent_id": batch.agent_id, **ids, "late_count": count}
        logger.warning("reports came late", extra=extra)
    confirm = Confirm(generation=batch.generation, number=stored.confirmed)
    return batch.agent_id, confirm, stored


def take_heartbeat(
    engine: Engine, envelope: object, *, now: dt.datetime, lease: dt.timedelta
) -> tuple[str, BeatConfirmed, BeatEffect]:
    """Store a heartbeat; return its sender, the confirmation, and what it did.

    Even a beat that proves nothing is confirmed: the confirmation is what lets the next one of
    that boot prove its freshness. But one that has lain in the broker for half a lease is not
    stored: after an outage so many wait that the newest would be as old before their turn came.

    Raises:
        InvalidSpec: the message is not a heartbeat of this version.
    """
    beat = unseal(Heartbeat, storable(envelope))
    assert isinstance(beat, Heartbeat)
    age_s = beat_age_s(beat.echo, now_s=now.timestamp())
    if age_s is not None and age_s > lease.total_seconds() / 2:
        effect = BeatEffect(is_stale=True)
    else:
        with writing(engine) as session:
            effect = record_heartbeat(session, beat, now=now, lease=lease)
    confirmed = BeatConfirmed(
        boot_id=beat.boot_id, counter=beat.counter, server_time_s=now.timestamp()
    )
    return beat.agent_id, confirmed, effect
