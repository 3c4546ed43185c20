"""Carries out a schedule against a farm that is kept at work, and times how it recovers."""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from sqlalchemy.exc import DBAPIError

from farm.errors import Unreachable
from farm.gang.lifecycle import ACTIVE_JOB_STATES, JobState
from tests.chaos.checker import violations
from tests.chaos.evidence import gather, left_files, read_network, undelivered
from tests.chaos.farm import LEASE_S, ChaosFarm
from tests.chaos.faults.contract import Fault, Scope
from tests.chaos.glimpse import Glimpse, look
from tests.chaos.outcome import Outcome, Strike
from tests.chaos.schedule import Planned

AT_ONCE = 3
# What is stuck is so for ever; on a machine with too much to do the rest takes a minute.
STUCK_S = 10 * LEASE_S + 10
DRAIN_LIMIT_S = 20 * LEASE_S + 20
_START_LIMIT_S = 120.0
_POLL_S = 0.1
_VICTIM_PATIENCE_S = 5.0
# A rendezvous is short, and yet most strikes would meet one, since they come as soon as they can.
_RUNNING_SHARE = 0.7
_WORLD_SIZES = (1, 2, 2, 2, 3)


class Interrupted(Exception):
    """The campaign was told to stop."""


class Campaign:
    """Used in one thread."""

    def __init__(
        self,
        farm: ChaosFarm,
        outcome: Outcome,
        *,
        say: Callable[[str], None],
        stuck_s: float = STUCK_S,
        drain_limit_s: float = DRAIN_LIMIT_S,
        stopping: threading.Event | None = None,
    ) -> None:
        """`stuck_s`: after its end a fault must be over; `drain_limit_s`: after a schedule, all.

        `outcome` is written as it goes.
        """
        self._farm = farm
        self._say = say
        self._stuck_s = stuck_s
        self._drain_limit_s = drain_limit_s
        self._open: list[Strike] = []
        self._last_strike_s = 0.0
        self._waits_since_s: float | None = None
        self._sizes = random.Random(0)
        self._stopping = stopping or threading.Event()
        self.outcome = outcome
        self._network_before = read_network()

    def warm_up(self) -> None:
        """Wait until every agent may be leased."""
        deadline = time.monotonic() + _START_LIMIT_S
        since = dt.datetime.min.replace(tzinfo=dt.UTC)
        while not self._everybody_is_free(since):
            assert time.monotonic() < deadline, "the farm has not begun"
            self._pause(_POLL_S)

    def run(self, schedule: Sequence[Planned]) -> list[str]:
        """Let the faults strike, wait until all is over, and return what is broken."""
        try:
            self._strike_all(list(schedule))
        finally:
            for strike in self._open:
                if strike.healed_s is None:  # we were stopped, and what is frozen cannot be ended
                    strike.heal()
        return self._finish()

    def _strike_all(self, ahead: list[Planned]) -> None:
        while ahead or self._open:
            is_blind = any(s.fault.blinds and s.healed_s is None for s in self._open)
            seen = None if is_blind else look(self._farm.engine, watched=self._watched())
            self._heal_due()
            if seen is not None:
                self._follow(seen)
                # After the last one too: that a farm goes on is seen by its work.
                self._feed(seen)
                if ahead:
                    ahead = self._strike_next(ahead, seen)
            self._pause(_POLL_S)

    def _pause(self, for_s: float) -> None:
        if self._stopping.wait(for_s):
            raise Interrupted

    def _watched(self) -> set[int]:
        return {job for strike in self._open for job in strike.jobs}

    def _feed(self, seen: Glimpse) -> None:
        """Keep some jobs there, and some agents free for those that are tried again."""
        demand = sum(job.agent_count for job in seen.jobs.values() if not job.is_over)
        most = self._farm.demanded_agents
        while demand < most:
            size = min(most, self._sizes.choice(_WORLD_SIZES))
            try:
                self._farm.submit(world_size=size)
            except (DBAPIError, Unreachable):
                return
            self.outcome.job_count += 1
            demand += size

    def _strike_next(self, ahead: list[Planned], seen: Glimpse) -> list[Planned]:
        """Strike if it is time, there is room and there is a victim; return what is left."""
        planned, now = ahead[0], time.monotonic()
        if now - self._last_strike_s < planned.wait_s or not self._has_room(planned.fault):
            return ahead
        rng = random.Random(planned.seed)
        victim = self._victim(planned.fault, seen, rng)
        if victim is None:
            return self._give_up(ahead) if self._waits_s() > self._stuck_s else ahead
        agent, jobs = victim
        self._waits_since_s = None
        heal = planned.fault.strike(self._farm, agent, rng)
        strike = Strike(planned=planned, agent=agent, jobs=jobs, struck_s=now, heal=heal)
        self._last_strike_s = now
        self._open.append(strike)
        self.outcome.strikes.append(strike)
        self._say(str(strike))
        return ahead[1:]

    def _has_room(self, fault: Fault) -> bool:
        scopes = [strike.fault.scope for strike in self._open]
        if fault.scope is Scope.FARM:
            return not scopes
        if Scope.FARM in scopes:
            return False
        most = AT_ONCE if fault.scope is Scope.AGENT else 1
        return scopes.count(fault.scope) < most

    def _victim(
        self, fault: Fault, seen: Glimpse, rng: random.Random
    ) -> tuple[str, dict[int, int]] | None:
        """Choose whom to strike, somebody at work if there is anybody soon; most often a run.

        A gang with an agent that another fault holds is left alone: it may wait for that one.
        """
        waits_for_run = rng.random() < _RUNNING_SHARE
        is_impatient = self._is_impatient()
        wanted = ACTIVE_JOB_STATES if is_impatient or not waits_for_run else {JobState.RUNNING}
        if not is_impatient and not any(job.state in wanted for job in seen.jobs.values()):
            return None
        active = {i: job.attempt for i, job in seen.active.items() if job.attempt is not None}
        if fault.scope is not Scope.AGENT:
            return ("-", active) if active or is_impatient else None
        struck = {s.agent for s in self._open}
        busy = self._watched()
        free = [
            (agent, {i: token})
            for i, token in sorted(active.items())
            if i not in busy and seen.jobs[i].state in wanted
            if struck.isdisjoint(seen.jobs[i].gang)
            for agent in seen.jobs[i].gang
            if agent in self._farm.agents
        ]
        rng.shuffle(free)
        if is_impatient:
            idle = [a for a in self._farm.agents if a not in struck]
            free += [(agent, {}) for agent in rng.sample(idle, len(idle))]
        for agent, jobs in free:
            if self._farm.is_running(agent) and fault.can_strike(self._farm, agent):
                return agent, jobs
        return None

    def _give_up(self, ahead: list[Planned]) -> list[Planned]:
        """Leave out what is left of a schedule whose next fault finds nobody to strike."""
        text = f"stuck: nobody is there to be struck by {ahead[0]}"
        self.outcome.broken.append(text)
        self._say(text)
        return []

    def _is_impatient(self) -> bool:
        return self._waits_s() > _VICTIM_PATIENCE_S

    def _waits_s(self) -> float:
        """Return for how long the next fault has been looking for somebody to strike."""
        now = time.monotonic()
        if self._waits_since_s is None:
            self._waits_since_s = now
        return now - self._waits_since_s

    def _heal_due(self) -> None:
        for strike in self._open:
            lasted_s = time.monotonic() - strike.struck_s
            if strike.healed_s is None and lasted_s >= strike.planned.lasts_s:
                broken = strike.fault.broken(self._farm)
                if broken is not None:
                    self.outcome.broken.append(f"{broken}: {strike}")
                    self._say(self.outcome.broken[-1])
                strike.heal()
                strike.healed_s = time.monotonic()
                strike.healed_at = dt.datetime.now(dt.UTC)

    def _follow(self, seen: Glimpse) -> None:
        """See which strikes have been recovered from."""
        now = time.monotonic()
        for strike in self._open:
            after_s = now - strike.struck_s
            healed_at = strike.healed_at
            if (
                strike.serves_after_s is None
                and healed_at is not None
                and strike.fault.serves(self._farm, strike.agent, seen, healed_at)
            ):
                strike.serves_after_s = after_s
            progress = seen.progress(strike.jobs, now=dt.datetime.now(dt.UTC))
            if strike.jobs_after_s is None and self._jobs_go_on(strike, seen):
                strike.jobs_after_s = after_s
            elif strike.jobs_after_s is None:
                strike.before = progress
            if strike.is_open and after_s > strike.planned.lasts_s + self._stuck_s:
                strike.is_stuck = True
                text = f"stuck: {strike}; {progress}"
                self.outcome.broken.append(text)
                self._say(text)
                strike.jobs_after_s = strike.serves_after_s = after_s
        self._open = [s for s in self._open if s.is_open or s.healed_s is None]

    def _jobs_go_on(self, strike: Strike, seen: Glimpse) -> bool:
        if strike.fault.scope is Scope.ASIDE:
            return True
        return all(self._goes_on(strike, job, token, seen) for job, token in strike.jobs.items())

    def _goes_on(self, strike: Strike, job_id: int, token: int, seen: Glimpse) -> bool:
        """Whether a job is over, is tried anew, or its attempt has outlived the fault.

        One that waits since other attempts hold the agents it needs has been given back in time:
        those that failed it are not what it needs while there are enough others.
        """
        job = seen.jobs[job_id]
        if job.is_over or job.attempt not in (None, token):
            return True
        if job.attempt is None:
            since = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=LEASE_S)
            return not seen.may_be_leased(job, token=token, since=since, among=self._farm.agents)
        if strike.healed_at is None:
            return False
        beats = [seen.agents[agent].heartbeat_at for agent in job.gang]
        return all(beat is not None and beat > strike.healed_at for beat in beats)

    def _everybody_is_free(self, since: dt.datetime) -> bool:
        seen = look(self._farm.engine)
        if seen is None:
            return False
        agents = [seen.agents.get(name) for name in self._farm.agents]
        return not any(not job.is_over for job in seen.jobs.values()) and all(
            a is not None
            and a.attempt is None
            and a.unclean is None
            and a.heartbeat_at is not None
            and a.heartbeat_at > since
            for a in agents
        )

    def _finish(self) -> list[str]:
        """Wait until there is nothing left to do, and look at what is there then."""
        since = dt.datetime.now(dt.UTC)
        deadline = time.monotonic() + self._drain_limit_s
        while time.monotonic() < deadline:
            is_done = self._everybody_is_free(since) and not undelivered(self._farm)
            if is_done and not any(left_files(self._farm)):
                break
            self._pause(2 * _POLL_S)
        evidence = gather(self._farm)
        found = [*violations(evidence, network_before=self._network_before)]
        found += [f"stuck: {text}" for text in undelivered(self._farm)]
        found = [text for text in found if text not in self.outcome.broken]
        self.outcome.broken += found
        for text in found:
            self._say(f"broken: {text}")
        measured_counts = Counter(measurement.job_id for measurement in evidence.store.measurements)
        for job in evidence.store.jobs:
            if job.state is not JobState.SUCCEEDED or not measured_counts[job.id]:
                self.outcome.lost_jobs.add(job.id)
            if measured_counts[job.id] > 1:
                self.outcome.doubled_jobs.add(job.id)
        return self.outcome.broken
