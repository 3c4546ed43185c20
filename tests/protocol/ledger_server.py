"""The server on a ledger: the rounds of `farm.scheduler.advancing` without a database."""

from __future__ import annotations

import datetime as dt

from farm.gang.barriers import Limits, commands_for
from farm.gang.lifecycle import ACTIVE_JOB_STATES, AttemptState, JobState, move
from farm.gang.rendezvous import AttemptEnd, PassBarrier, Resend, decide
from farm.gang.retries import after_attempt, pause_s
from farm.gang.snapshots import AttemptView, LiveAgent, WaitingJob
from farm.messages.agents import Heartbeat
from farm.messages.commands import BeatConfirmed, Confirm, StopAttempt
from farm.messages.envelope import unseal
from farm.messages.reports import ReportBatch
from farm.messages.trainer_lines import FailureKind
from farm.placement.scheduling import Placement, place
from farm.scheduler.outgoing import Outgoing
from tests.factories import seconds
from tests.promises.protocol_values import (
    AgentValue,
    AttemptValue,
    JobValue,
    MeasurementValue,
    RankValue,
    Spooled,
    StoreValue,
)
from tests.promises.store_snapshot import spooled
from tests.protocol.ledger import PHASES, AgentEntry, AttemptEntry, JobEntry, Ledger, RankEntry
from tests.protocol.server import RULES, Answer, Round, spec_of

_LIMITS: Limits = RULES.limits
_STOP_EVERY = seconds(2)


class LedgerServer:
    def __init__(self) -> None:
        self._ledger = Ledger()

    def submit(self, *, agent_count: int, now: dt.datetime) -> int:
        job = JobEntry(id=len(self._ledger.jobs) + 1, spec=spec_of(agent_count), due_at=now)
        self._ledger.jobs[job.id] = job
        return job.id

    def cancel(self, job_id: int, *, now: dt.datetime) -> None:
        job = self._ledger.jobs[job_id]
        if job.state is JobState.WAITING:
            job.state, job.is_finished = move(job.state, JobState.CANCELLED), True
        elif job.state in ACTIVE_JOB_STATES:
            job.cancel_requested = True

    def ask_again(self, job_id: int, *, now: dt.datetime) -> None:
        job = self._ledger.jobs[job_id]
        job.state = move(job.state, JobState.WAITING)
        job.attempt_count, job.due_at = 0, now
        job.cancel_requested = job.is_finished = False
        self._ledger.measured.pop(job_id, None)

    def drain(self, agent_id: str, *, is_drained: bool) -> None:
        if agent_id in self._ledger.agents:
            self._ledger.agents[agent_id].is_drained = is_drained

    def heartbeat(self, envelope: object, *, now: dt.datetime) -> Answer:
        beat = unseal(Heartbeat, envelope)
        assert isinstance(beat, Heartbeat)
        is_rung = self._ledger.heartbeat(beat, now=now, lease=RULES.lease)
        confirmed = BeatConfirmed(
            boot_id=beat.boot_id, counter=beat.counter, server_time_s=now.timestamp()
        )
        return Answer(beat.agent_id, confirmed, is_rung)

    def reports(self, envelope: object, *, now: dt.datetime) -> Answer:
        batch = unseal(ReportBatch, envelope)
        assert isinstance(batch, ReportBatch)
        number, has_moved = self._ledger.store(
            batch.agent_id, batch.generation, batch.reports, now=now
        )
        return Answer(
            batch.agent_id, Confirm(generation=batch.generation, number=number), has_moved
        )

    def round(self, *, now: dt.datetime, is_overtaken: bool) -> Round:
        outgoing = [*self._advance_all(now=now), *self._stops(now=now)]
        agents = self._live_agents(now=now)
        overtaking: list[Outgoing] = []
        if any(agent.is_idle for agent in agents):
            jobs = self._waiting_jobs(now=now)
            placements = place(jobs, agents, reserve_after_s=RULES.reserve_after_s)
            if is_overtaken:
                overtaking += self.round(now=now, is_overtaken=False).outgoing
            for placement in placements:
                outgoing += self._lease(placement, now=now)
        return Round(outgoing, overtaking)

    def _advance_all(self, *, now: dt.datetime) -> list[Outgoing]:
        ledger = self._ledger
        active = [a for _, a in sorted(ledger.attempts.items()) if a.is_active]
        outgoing: list[Outgoing] = []
        for attempt, view in [(a, ledger.view(a, now=now)) for a in active]:
            decision = decide(view, _LIMITS)
            if isinstance(decision, Resend):
                outgoing += self._command(attempt, view, decision.ranks, now=now)
            elif isinstance(decision, PassBarrier):
                attempt.state, attempt.since = move(attempt.state, decision.state), now
                if attempt.state is AttemptState.RUNNING:
                    attempt.job.state = move(attempt.job.state, JobState.RUNNING)
                everyone = tuple(rank.rank for rank in attempt.ranks)
                outgoing += self._command(attempt, view, everyone, now=now)
            elif isinstance(decision, AttemptEnd):
                self._end(attempt, decision, now=now)
        return outgoing

    def _command(
        self, attempt: AttemptEntry, view: AttemptView, ranks: tuple[int, ...], *, now: dt.datetime
    ) -> list[Outgoing]:
        for rank in ranks:
            attempt.ranks[rank].commanded_at = now
        commands = commands_for(view, attempt.state, ranks, limits=_LIMITS)
        return [Outgoing(attempt.ranks[rank].agent_id, c) for rank, c in commands.items()]

    def _end(self, attempt: AttemptEntry, end: AttemptEnd, *, now: dt.datetime) -> None:
        job = attempt.job
        attempt.state, attempt.since = move(attempt.state, end.state), now
        attempt.failure_kind = end.failure.kind if end.failure else None
        next_state = after_attempt(
            end.state,
            attempt_count=job.attempt_count,
            policy=RULES.policy,
            cancel_requested=job.cancel_requested,
        )
        job.state, job.token = move(job.state, next_state), None
        if next_state is JobState.WAITING:
            job.due_at = now + seconds(pause_s(job.attempt_count, policy=RULES.policy))
        else:
            job.is_finished = True
        if end.state in (AttemptState.SUCCEEDED, AttemptState.FAILED):
            status = end.failure.kind.value if end.failure else "ok"
            self._ledger.measured[job.id] = (attempt.token, status)
        for agent in self._ledger.agents.values():
            if agent.token == attempt.token:
                agent.token = agent.expires_at = agent.lease_boot_id = None
                has_said_so = end.state is AttemptState.SUCCEEDED
                agent.unclean_token = None if has_said_so else attempt.token
                agent.stop_sent_at = None

    def _stops(self, *, now: dt.datetime) -> list[Outgoing]:
        outgoing = []
        for agent in self._agents:
            if agent.unclean_token is None or not agent.heartbeat_at:
                continue
            is_due = agent.stop_sent_at is None or agent.stop_sent_at <= now - _STOP_EVERY
            if agent.heartbeat_at > now - RULES.lease and is_due:
                agent.stop_sent_at = now
                stop = StopAttempt(token=agent.unclean_token, reason="the attempt is over")
                outgoing.append(Outgoing(agent.id, stop))
        return outgoing

    def _live_agents(self, *, now: dt.datetime) -> list[LiveAgent]:
        return [
            LiveAgent(
                agent_id=agent.id,
                machine_id=agent.facts.machine_id,
                cpus=frozenset(agent.facts.cpus),
                memory_bytes=agent.facts.hardware.memory_bytes,
                framework_version=agent.facts.hardware.tensorflow_version,
                is_idle=_takes_ranks(agent),
                is_occupying=agent.token is not None or agent.unclean_token is not None,
            )
            for agent in self._agents
            if agent.token is not None
            or (agent.heartbeat_at is not None and agent.heartbeat_at >= now - RULES.lease)
        ]

    def _waiting_jobs(self, *, now: dt.datetime) -> list[WaitingJob]:
        return [
            WaitingJob(
                job_id=job.id,
                agent_count=job.spec.agent_count,
                avoid=frozenset(self._failed_agents(job)),
                waited_s=(now - job.due_at).total_seconds(),
            )
            for job in self._ledger.jobs.values()
            if job.state is JobState.WAITING and not job.cancel_requested and job.due_at <= now
        ]

    def _failed_agents(self, job: JobEntry) -> set[str]:
        if job.attempt_count == 0:
            return set()
        found = set()
        for attempt in self._ledger.attempts.values():
            if attempt.job is not job or attempt.state is not AttemptState.LOST:
                continue
            for rank in attempt.ranks:
                failure = rank.end.failure if rank.end else None
                if failure is not None and failure.kind is not FailureKind.PEER_LOST:
                    found.add(rank.agent_id)
                if rank.end is None and attempt.failure_kind is FailureKind.STALLED:
                    found.add(rank.agent_id)
        return found

    def _lease(self, placement: Placement, *, now: dt.datetime) -> list[Outgoing]:
        ledger = self._ledger
        job = ledger.jobs[placement.job_id]
        gang = [ledger.agents[agent_id] for agent_id in placement.agent_ids]
        if job.state is not JobState.WAITING or job.cancel_requested:
            return []
        if not all(_takes_ranks(agent) for agent in gang):
            return []
        ledger.last_token += 1
        attempt = AttemptEntry(
            token=ledger.last_token,
            job=job,
            number=1 + sum(a.job is job for a in ledger.attempts.values()),
            since=now,
            ranks=[
                RankEntry(rank=rank, agent_id=agent.id, commanded_at=now)
                for rank, agent in enumerate(gang)
            ],
        )
        ledger.attempts[attempt.token] = attempt
        job.state, job.token = move(job.state, JobState.LEASED), attempt.token
        job.attempt_count += 1
        for agent in gang:
            agent.token, agent.expires_at = attempt.token, now + RULES.lease
            agent.lease_boot_id = agent.boot_id
        everyone = tuple(range(len(gang)))
        return self._command(attempt, ledger.view(attempt, now=now), everyone, now=now)

    @property
    def _agents(self) -> list[AgentEntry]:
        return [agent for _, agent in sorted(self._ledger.agents.items())]

    def value(self, *, now: dt.datetime) -> StoreValue:
        ledger = self._ledger
        return StoreValue(
            jobs=tuple(
                JobValue(
                    id=job.id,
                    state=job.state,
                    attempt_id=job.token,
                    agent_count=job.spec.agent_count,
                    is_finished=job.is_finished,
                )
                for job in ledger.jobs.values()
            ),
            attempts=tuple(
                AttemptValue(id=a.token, job_id=a.job.id, number=a.number, state=a.state)
                for a in ledger.attempts.values()
            ),
            ranks=tuple(
                RankValue(
                    attempt_id=a.token,
                    rank=rank.rank,
                    agent_id=rank.agent_id,
                    phase=rank.phase,
                    reported=tuple(kind for kind in PHASES if kind in rank.reported),
                )
                for a in ledger.attempts.values()
                for rank in a.ranks
            ),
            agents=tuple(
                AgentValue(
                    id=agent.id,
                    attempt_id=agent.token,
                    lease_s=(agent.expires_at - now).total_seconds() if agent.expires_at else None,
                    unclean_token=agent.unclean_token,
                )
                for agent in self._agents
            ),
            measurements=tuple(
                MeasurementValue(id=job_id, job_id=job_id, attempt_id=token, status=status)
                for job_id, (token, status) in sorted(ledger.measured.items())
            ),
        )

    def stored(self) -> list[Spooled]:
        ledger = self._ledger
        found = list(ledger.series)
        for attempt in ledger.attempts.values():
            for rank in attempt.ranks:
                for report in rank.reported.values():
                    found += spooled(rank.agent_id, report)
        for agent_id, report in ledger.late:
            found += spooled(agent_id, report)
        return found


def _takes_ranks(agent: AgentEntry) -> bool:
    return agent.is_free and not agent.is_drained
