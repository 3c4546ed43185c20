"""The server's state in plain Python: what the store should make of each message and each round.

It decides by the same pure functions as the real server, and says in a few lines what the tables,
transactions and queries of `farm.store` amount to. It is some twenty times as fast, and the two are
held to say the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from farm.configuration.spec import JobSpec
from farm.gang.admission import (
    LeasedAttempt,
    beat_age_s,
    is_clean,
    refusal_of_report,
    renews_lease,
)
from farm.gang.lifecycle import (
    ACTIVE_ATTEMPT_STATES,
    AttemptState,
    JobState,
    RankPhase,
)
from farm.gang.snapshots import AttemptView, RankView
from farm.messages.agents import AgentFacts, AgentState, Heartbeat
from farm.messages.commands import RankAddress
from farm.messages.reports import Prepared, RankEnded, Report
from farm.messages.trainer_lines import FailureKind
from tests.promises.protocol_values import Spooled
from tests.promises.store_snapshot import spooled

PHASES = {
    "prepared": RankPhase.PREPARED,
    "peers": RankPhase.MEASURED,
    "shaped": RankPhase.SHAPED,
    "started": RankPhase.STARTED,
    "ended": RankPhase.ENDED,
}
_ORDER = list(RankPhase)


@dataclass(slots=True, kw_only=True)
class JobEntry:
    id: int
    spec: JobSpec
    due_at: dt.datetime
    state: JobState = JobState.WAITING
    token: int | None = None
    attempt_count: int = 0
    cancel_requested: bool = False
    is_finished: bool = False


@dataclass(slots=True, kw_only=True)
class RankEntry:
    rank: int
    agent_id: str
    commanded_at: dt.datetime | None
    phase: RankPhase = RankPhase.LEASED
    ended_at: dt.datetime | None = None
    reported: dict[str, Report] = field(default_factory=dict)
    address: RankAddress | None = None
    framework: str | None = None
    end: RankEnded | None = None

    def take(self, report: Report, *, now: dt.datetime) -> None:
        """Take a report of a barrier or of the end; only the first of each kind counts."""
        if report.kind in self.reported:
            return
        self.reported[report.kind] = report
        if _ORDER.index(PHASES[report.kind]) > _ORDER.index(self.phase):
            self.phase, self.commanded_at = PHASES[report.kind], None
        body = report.decoded()
        if isinstance(body, Prepared):
            self.address, self.framework = body.address, body.framework
        if isinstance(body, RankEnded):
            self.end, self.ended_at = body, now


@dataclass(slots=True, kw_only=True)
class AttemptEntry:
    token: int
    job: JobEntry
    number: int
    since: dt.datetime
    ranks: list[RankEntry]
    state: AttemptState = AttemptState.PREPARING
    failure_kind: FailureKind | None = None

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_ATTEMPT_STATES

    def is_moved_by(self, report: Report) -> bool:
        """Whether the rank that has said this was the last at a barrier, or has failed."""
        body = report.decoded()
        if isinstance(body, RankEnded) and body.failure is not None:
            return True
        reached = _ORDER.index(PHASES[report.kind])
        return all(_ORDER.index(rank.phase) >= reached for rank in self.ranks)


@dataclass(slots=True, kw_only=True)
class AgentEntry:
    id: str
    boot_id: str
    counter: int
    state: AgentState
    facts: AgentFacts
    heartbeat_at: dt.datetime | None = None
    is_drained: bool = False
    token: int | None = None
    expires_at: dt.datetime | None = None
    lease_boot_id: str | None = None
    unclean_token: int | None = None
    stop_sent_at: dt.datetime | None = None

    @property
    def is_free(self) -> bool:
        return (
            self.state is AgentState.IDLE
            and self.token is None
            and self.unclean_token is None
            and self.heartbeat_at is not None
        )


class Ledger:
    """All that the server knows, and what the agents' messages change of it."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobEntry] = {}
        self.attempts: dict[int, AttemptEntry] = {}
        self.agents: dict[str, AgentEntry] = {}
        self.measured: dict[int, tuple[int, str]] = {}  # job: attempt and status
        self.confirmed: dict[tuple[str, str], int] = {}
        self.series: set[Spooled] = set()
        self.late: list[tuple[str, Report]] = []
        self.last_token = 0

    def heartbeat(self, beat: Heartbeat, *, now: dt.datetime, lease: dt.timedelta) -> bool:
        """Take a heartbeat; return whether its agent may be leased now and could not before."""
        age_s = beat_age_s(beat.echo, now_s=now.timestamp())
        is_fresh = age_s is not None and age_s <= lease.total_seconds() / 2
        if age_s is not None and not is_fresh:
            return False  # answered, and not stored: see `farm.collector.ingest`
        agent = self.agents.get(beat.agent_id)
        if agent is None:
            agent = AgentEntry(
                id=beat.agent_id,
                boot_id=beat.boot_id,
                counter=0,
                state=beat.state,
                facts=beat.facts,
            )
            self.agents[agent.id] = agent
            was_free = False
        else:
            was_free = agent.is_free
            is_same_boot = agent.boot_id == beat.boot_id
            if is_same_boot and beat.counter <= agent.counter:
                return False
            if not is_same_boot and not is_fresh and agent.heartbeat_at is not None:
                return False
        agent.boot_id, agent.counter = beat.boot_id, beat.counter
        agent.state, agent.facts = beat.state, beat.facts
        if is_fresh:
            agent.heartbeat_at = now
            self.last_token = max(self.last_token, beat.highest_token)
            self._renew_lease(agent, beat, now=now, lease=lease)
        return agent.is_free and not was_free

    def _renew_lease(
        self, agent: AgentEntry, beat: Heartbeat, *, now: dt.datetime, lease: dt.timedelta
    ) -> None:
        if agent.unclean_token is not None and is_clean(beat, unclean_token=agent.unclean_token):
            agent.unclean_token = agent.stop_sent_at = None
        if agent.token is None:
            return
        awaits_start = beat.highest_token < agent.token
        has_reported = awaits_start and any(
            rank.agent_id == agent.id and rank.phase is not RankPhase.LEASED
            for rank in self.attempts[agent.token].ranks
        )
        if awaits_start and not has_reported:
            agent.lease_boot_id = beat.boot_id
        is_vouched = agent.lease_boot_id == beat.boot_id
        if renews_lease(beat, token=agent.token, same_boot=is_vouched, has_reported=has_reported):
            agent.expires_at = now + lease

    def store(
        self, agent_id: str, generation: str, reports: Sequence[Report], *, now: dt.datetime
    ) -> tuple[int, bool]:
        """Store what is new of a batch; return the number to confirm, and whether gangs moved."""
        spool = (agent_id, generation)
        confirmed = max(self.confirmed.get(spool, 0), reports[0].number - 1)
        has_moved = False
        for report in reports:
            if report.number != confirmed + 1:
                continue
            confirmed = report.number
            if self._refusal(agent_id, report) is not None:
                self.late.append((agent_id, report))
                continue
            rank = self.attempts[report.token].ranks[report.rank]
            if report.kind in PHASES:
                rank.take(report, now=now)
                has_moved = self.attempts[report.token].is_moved_by(report) or has_moved
            else:
                self.series.update(spooled(agent_id, report))
        self.confirmed[spool] = confirmed
        return confirmed, has_moved

    def _refusal(self, agent_id: str, report: Report) -> str | None:
        attempt = self.attempts.get(report.token)
        leased = None
        if attempt is not None:
            leased = LeasedAttempt(
                state=attempt.state,
                is_current=attempt.job.token == attempt.token,
                agents={rank.rank: rank.agent_id for rank in attempt.ranks},
            )
        return refusal_of_report(leased, agent_id=agent_id, token=report.token, rank=report.rank)

    def view(self, attempt: AttemptEntry, *, now: dt.datetime) -> AttemptView:
        """Return what is decided on."""
        return AttemptView(
            token=attempt.token,
            job_id=attempt.job.id,
            spec=attempt.job.spec,
            state=attempt.state,
            state_age_s=(now - attempt.since).total_seconds(),
            ranks=tuple(self._rank_view(attempt, rank, now=now) for rank in attempt.ranks),
            cancel_requested=attempt.job.cancel_requested,
        )

    def _rank_view(self, attempt: AttemptEntry, rank: RankEntry, *, now: dt.datetime) -> RankView:
        agent = self.agents[rank.agent_id]
        expires_at = agent.expires_at if agent.token == attempt.token else None
        return RankView(
            rank=rank.rank,
            agent_id=rank.agent_id,
            phase=rank.phase,
            address=rank.address,
            framework=rank.framework,
            lease_s=(expires_at - now).total_seconds() if expires_at else -1.0,
            command_age_s=(
                (now - rank.commanded_at).total_seconds() if rank.commanded_at else float("inf")
            ),
            succeeded=rank.end is not None and rank.end.result is not None,
            failure=rank.end.failure if rank.end else None,
            ended_age_s=(now - rank.ended_at).total_seconds() if rank.ended_at else None,
        )
