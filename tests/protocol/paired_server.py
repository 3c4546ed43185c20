"""Two servers that have to say the same to everything: the real one and the ledger."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from tests.promises.protocol_values import Spooled, StoreValue
from tests.protocol.server import Answer, Round, Server

T = TypeVar("T")


class PairedServer:
    """Asks both, and answers as the first."""

    def __init__(self, first: Server, second: Server) -> None:
        self._first = first
        self._second = second

    def submit(self, *, agent_count: int, now: dt.datetime) -> int:
        return self._both(lambda server: server.submit(agent_count=agent_count, now=now))

    def cancel(self, job_id: int, *, now: dt.datetime) -> None:
        self._both(lambda server: server.cancel(job_id, now=now))

    def ask_again(self, job_id: int, *, now: dt.datetime) -> None:
        self._both(lambda server: server.ask_again(job_id, now=now))

    def drain(self, agent_id: str, *, is_drained: bool) -> None:
        self._both(lambda server: server.drain(agent_id, is_drained=is_drained))

    def heartbeat(self, envelope: object, *, now: dt.datetime) -> Answer:
        return self._both(lambda server: server.heartbeat(envelope, now=now))

    def reports(self, envelope: object, *, now: dt.datetime) -> Answer:
        return self._both(lambda server: server.reports(envelope, now=now))

    def round(self, *, now: dt.datetime, is_overtaken: bool) -> Round:
        return self._both(lambda server: server.round(now=now, is_overtaken=is_overtaken))

    def value(self, *, now: dt.datetime) -> StoreValue:
        return self._both(lambda server: _unnumbered(server.value(now=now)))

    def stored(self) -> list[Spooled]:
        first, second = self._first.stored(), self._second.stored()
        assert Counter(first) == Counter(second)
        return first

    def _both(self, ask: Callable[[Server], T]) -> T:
        first, second = ask(self._first), ask(self._second)
        assert first == second, f"the two servers differ:\n{first}\n{second}"
        return first


def _unnumbered(store: StoreValue) -> StoreValue:
    """Leave out what databases number as they like."""
    measurements = [dataclasses.replace(m, id=m.job_id) for m in store.measurements]
    return dataclasses.replace(
        store, measurements=tuple(sorted(measurements, key=lambda m: m.job_id))
    )
