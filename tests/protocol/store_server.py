"""The real server: `farm.scheduler` and `farm.collector` on a real store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from farm.collector.ingest import read_batch, read_beat, take_batches, take_beats
from farm.errors import NotFound
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.scheduling import Placement, place
from farm.scheduler import placing
from farm.scheduler.outgoing import Outgoing
from farm.store.agents.agents import set_drained
from farm.store.base import Table
from farm.store.engine import reading, writing
from farm.store.sweeps.jobs import request_cancel_job, retry_job
from tests.factories import add_job
from tests.promises.protocol_values import Spooled, StoreValue
from tests.promises.store_snapshot import store_value, stored_reports
from tests.protocol.server import RULES, Answer, Round, spec_of
from tests.stored.scheduler_round import run_round


class StoreServer:
    """Begins with an empty store, whatever was in it; its schema is up to date."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        names = [table.name for table in reversed(Table.metadata.sorted_tables)]
        with engine.begin() as connection:
            for name in (*names, "sqlite_sequence"):
                connection.exec_driver_sql(f"DELETE FROM {name}")

    def submit(self, *, agent_count: int, now: dt.datetime) -> int:
        with writing(self._engine) as session:
            return add_job(session, spec_of(agent_count), due_at=now)

    def cancel(self, job_id: int, *, now: dt.datetime) -> None:
        with writing(self._engine) as session:
            request_cancel_job(session, job_id, now=now)

    def ask_again(self, job_id: int, *, now: dt.datetime) -> None:
        with writing(self._engine) as session:
            retry_job(session, job_id, now=now)

    def drain(self, agent_id: str, *, is_drained: bool) -> None:
        with suppress(NotFound), writing(self._engine) as session:
            set_drained(session, agent_id, is_drained=is_drained)

    def heartbeat(self, envelope: object, *, now: dt.datetime) -> Answer:
        agent_id, confirmed, effect = take_beats(
            self._engine, [read_beat(envelope)], now=now, lease=RULES.lease
        )[0]
        return Answer(agent_id, confirmed, effect.is_newly_free)

    def reports(self, envelope: object, *, now: dt.datetime) -> Answer:
        agent_id, confirm, stored = take_batches(self._engine, [read_batch(envelope)], now=now)[0]
        return Answer(agent_id, confirm, stored.moves_attempts)

    def round(self, *, now: dt.datetime, is_overtaken: bool) -> Round:
        overtaking: list[Outgoing] = []

        def overtaken(
            jobs: Collection[WaitingJob], agents: Collection[LiveAgent], **others: Any
        ) -> list[Placement]:
            placements = place(jobs, agents, **others)
            if is_overtaken:
                overtaking.extend(self.round(now=now, is_overtaken=False).outgoing)
            return placements

        with patch.object(placing, "place", overtaken):
            return Round(run_round(self._engine, now=now, rules=RULES), overtaking)

    def value(self, *, now: dt.datetime) -> StoreValue:
        with reading(self._engine) as session:
            return store_value(session, now=now)

    def stored(self) -> list[Spooled]:
        with reading(self._engine) as session:
            return stored_reports(session)
