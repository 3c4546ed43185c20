"""Bugs to plant in the real code, to see that the model finds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import farm.collector.ingest
import farm.gang.admission
import farm.scheduler.advancing
import farm.store.agents.heartbeats
import farm.store.reports.reports
import tests.protocol.ledger
import tests.protocol.ledger_server
import worker_agent.supervisor.supervisor
from farm.gang.admission import LeasedAttempt
from farm.gang.barriers import Limits
from farm.gang.rendezvous import Decision, decide
from farm.gang.snapshots import AttemptView
from farm.messages.agents import AgentState, BeatEcho, Heartbeat
from farm.messages.commands import Confirm
from farm.messages.reports import ReportBatch
from worker_agent.spool.delivery import Delivery
from worker_agent.supervisor.fencing import Admission
from worker_agent.supervisor.supervisor import Supervisor


@contextmanager
def agents_take_any_token() -> Iterator[None]:
    """An agent forgets to compare a token with those that it has seen."""

    def admit(
        token: int, *, highest_token: int, seen_tokens: frozenset[int], state: AgentState
    ) -> Admission:
        return Admission.START if state is AgentState.IDLE else Admission.UNAVAILABLE

    with patch.object(worker_agent.supervisor.supervisor, "admit", admit):
        yield


@contextmanager
def collector_takes_any_token() -> Iterator[None]:
    """The collector forgets to compare a report's token with its job's."""

    def refusal_of_report(
        attempt: LeasedAttempt | None, *, agent_id: str, token: int, rank: int
    ) -> str | None:
        return f"there is no attempt {token}" if attempt is None else None

    with (
        patch.object(farm.store.reports.reports, "refusal_of_report", refusal_of_report),
        patch.object(tests.protocol.ledger, "refusal_of_report", refusal_of_report),
    ):
        yield


@contextmanager
def spool_forgets_on_publish() -> Iterator[None]:
    """A report is forgotten once it is on its way, and not once it is known to have arrived."""
    next_batch = Delivery.next_batch

    def forgetful(self: Delivery, *, now: float, server_is_silent: bool) -> ReportBatch | None:
        batch = next_batch(self, now=now, server_is_silent=server_is_silent)
        if batch is not None:
            last = Confirm(generation=batch.generation, number=batch.reports[-1].number)
            self.confirm(last, now=now)
        return batch

    with patch.object(Delivery, "next_batch", forgetful):
        yield


@contextmanager
def stale_beats_are_fresh() -> Iterator[None]:
    """The server forgets to ask how long a heartbeat has lain in the broker."""

    def beat_age_s(echo: BeatEcho | None, *, now_s: float) -> float | None:
        return None if echo is None else 0.0

    with _everywhere("beat_age_s", beat_age_s):
        yield


@contextmanager
def beats_without_echo_are_fresh() -> Iterator[None]:
    """The server takes a heartbeat for fresh that proves nothing."""
    age_s = farm.gang.admission.beat_age_s

    def beat_age_s(echo: BeatEcho | None, *, now_s: float) -> float | None:
        return 0.0 if echo is None else age_s(echo, now_s=now_s)

    with _everywhere("beat_age_s", beat_age_s):
        yield


@contextmanager
def server_takes_who_serves_for_clean() -> Iterator[None]:
    """The server forgets to ask whether an agent serves what it should be clean of."""

    def is_clean(beat: Heartbeat, *, unclean_token: int) -> bool:
        return beat.highest_token >= unclean_token

    with _everywhere("is_clean", is_clean):
        yield


@contextmanager
def agent_says_too_early_that_it_is_clean() -> Iterator[None]:
    """An agent says that it serves nothing while what it served is being cleaned up."""

    def serving_token(agent: Supervisor) -> int | None:
        return None if agent.rank is None or agent.rank.is_ending else agent.rank.token

    with patch.object(Supervisor, "serving_token", property(serving_token)):
        yield


@contextmanager
def _everywhere(name: str, planted: object) -> Iterator[None]:
    """Plant it where heartbeats are judged: in the real server and in the ledger."""
    with ExitStack() as stack:
        for module in (farm.collector.ingest, farm.store.agents.heartbeats, tests.protocol.ledger):
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, planted))
        yield


@contextmanager
def lease_is_never_freed() -> Iterator[None]:
    """The scheduler does not notice that an agent's lease ran out."""

    def patient(attempt: AttemptView, limits: Limits) -> Decision:
        ranks = tuple(dataclasses.replace(rank, lease_s=1.0) for rank in attempt.ranks)
        return decide(dataclasses.replace(attempt, ranks=ranks), limits)

    with (
        patch.object(farm.scheduler.advancing, "decide", patient),
        patch.object(tests.protocol.ledger_server, "decide", patient),
    ):
        yield
