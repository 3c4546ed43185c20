"""What a campaign looks at ten times a second: the jobs that matter now, and the agents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import Engine, or_, select
from sqlalchemy.exc import DBAPIError

from farm.errors import Unreachable
from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.store.engine import reading
from farm.store.queue.waiting import waiting_jobs
from farm.store.tables import AgentRow, JobEvent, JobRow, RankRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """`gang`: of its attempt. `avoids`: who failed it, so that it waits for others if it can."""

    state: JobState
    attempt: int | None
    agent_count: int
    gang: tuple[str, ...] = ()
    avoids: frozenset[str] = frozenset()

    @property
    def is_over(self) -> bool:
        return self.state in FINAL_JOB_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenAgent:
    heartbeat_at: dt.datetime | None
    attempt: int | None
    unclean: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """`last_event_at`: when a job or an attempt last changed its state."""

    jobs: dict[int, SeenJob] = field(default_factory=dict)
    agents: dict[str, SeenAgent] = field(default_factory=dict)
    last_event_at: dt.datetime | None = None

    @property
    def active(self) -> dict[int, SeenJob]:
        """The jobs that are leased or running."""
        return {i: job for i, job in self.jobs.items() if job.attempt is not None}

    def may_be_leased(
        self, job: SeenJob, *, token: int, since: dt.datetime, among: Collection[str]
    ) -> bool:
        """Whether a whole gang of these was heard since then, and is held by no other attempt.

        `token`: the job's last one. It has to make do with agents that failed it only if there are
        too few others, whether those are at work or not.
        """
        heard = {
            name: agent
            for name, agent in self.agents.items()
            if name in among and agent.heartbeat_at is not None and agent.heartbeat_at >= since
        }
        others = heard.keys() - job.avoids
        able = others if len(others) >= job.agent_count else heard.keys()
        mine = (None, token)
        free = [i for i in able if heard[i].attempt in mine and heard[i].unclean in mine]
        return len(free) >= job.agent_count

    def progress(self, jobs: Collection[int], *, now: dt.datetime) -> str:
        """Say how far those jobs are, and what keeps each agent."""
        words = []
        for job_id in jobs:
            job = self.jobs[job_id]
            held = "none" if job.attempt is None else f"{job.attempt} on {' '.join(job.gang)}"
            avoids = f", avoids {' '.join(sorted(job.avoids))}" if job.avoids else ""
            words.append(f"job {job_id} {job.state.value}, attempt {held}{avoids}")
        for name, agent in sorted(self.agents.items()):
            beat = agent.heartbeat_at
            silent = "for ever" if beat is None else f"{(now - beat).total_seconds():.1f} s"
            held = f"leased to {agent.attempt}, unclean of {agent.unclean}"
            words.append(f"{name} {held}, silent {silent}")
        return "; ".join(words)


def look(engine: Engine, *, watched: Collection[int] = ()) -> Glimpse | None:
    """Look at the jobs that are not over, and those `watched`; None if the store is away."""
    try:
        with reading(engine) as session:
            jobs = session.execute(
                select(JobRow.id, JobRow.state, JobRow.attempt_id, JobRow.agent_count).where(
                    or_(JobRow.state.not_in(FINAL_JOB_STATES), JobRow.id.in_(watched))
                )
            ).all()
            tokens = [token for _, _, token, _ in jobs if token is not None]
            gangs: dict[int, list[str]] = {token: [] for token in tokens}
            members = select(RankRow.attempt_id, RankRow.agent_id).where(
                RankRow.attempt_id.in_(tokens)
            )
            for token, agent_id in session.execute(members.order_by(RankRow.rank)):
                gangs[token].append(agent_id)
            agents = session.execute(
                select(
                    AgentRow.id, AgentRow.heartbeat_at, AgentRow.attempt_id, AgentRow.unclean_token
                )
            ).all()
            # Not the latest one: clocks are set.
            last = select(JobEvent.at).order_by(JobEvent.id.desc()).limit(1)
            last_event_at = session.scalar(last)
            now = dt.datetime.now(dt.UTC)
            waiting = waiting_jobs(session, now=now, is_spread=False)
    except (DBAPIError, Unreachable):
        return None
    avoids = {job.job_id: job.avoid for job in waiting}
    return Glimpse(
        jobs={
            i: SeenJob(
                state=state,
                attempt=token,
                agent_count=count,
                gang=() if token is None else tuple(gangs[token]),
                avoids=avoids.get(i, frozenset()),
            )
            for i, state, token, count in jobs
        },
        agents={
            i: SeenAgent(heartbeat_at=beat, attempt=token, unclean=unclean)
            for i, beat, token, unclean in agents
        },
        last_event_at=last_event_at,
    )
