"""Random stories of a farm that something happens to all the time, for hypothesis to draw.

After each step the promises of `tests.promises.invariants` are held against the store and the
agents; at the end nothing fails any more, and every job has to come to its end.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from farm.gang.lifecycle import AttemptState, JobState
from tests.promises import invariants
from tests.promises.legal_changes import changes_are_legal
from tests.protocol.agent import HEARTBEAT_S, SimulatedAgent
from tests.protocol.broker import GIVEN_OUT_KEPT
from tests.protocol.farm import MOMENT_S, ROUND_EVERY_S, ProtocolFarm
from tests.protocol.ledger_server import LedgerServer
from tests.protocol.server import LEASE_S, RULES, Server
from tests.protocol.strikes import STRIKES, restart

MOST_JOBS = 4
# Agents repeat ever more rarely what nobody answers, and retries pause.
RECOVERY_LIMIT_S = 300.0

_AGENTS = st.integers(0, 2)
_PLACES = st.integers(0, 5)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for the length of a block, in memory where it can be: agents sync disks."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


class ProtocolStory(RuleBasedStateMachine):
    """The steps are small, and any may follow any other."""

    @staticmethod
    def new_server() -> Server:
        """Return a server that has nothing to remember."""
        return LedgerServer()

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        home = self._stack.enter_context(temporary_folder())
        self.farm = ProtocolFarm(self.new_server(), home)
        self._stack.enter_context(self.farm.running())
        self._before = self.farm.store()
        self._must_recover = False

    def teardown(self) -> None:
        try:
            # What a story has broken already need not come to a good end.
            if self._must_recover and sys.exc_info()[0] is None:
                self._recover()
        finally:
            self._stack.close()

    @initialize(agent_counts=st.lists(st.integers(1, 2), min_size=1, max_size=3))
    def begin(self, agent_counts: list[int]) -> None:
        self._must_recover = True
        for _ in range(2):
            self.farm.go_on()
        for agent_count in agent_counts:
            self.farm.submit(agent_count=agent_count)

    @rule(count=st.integers(1, 4))
    def go_on(self, count: int) -> None:
        for _ in range(count):
            self.farm.go_on()

    @rule(seconds=st.sampled_from([1, 3, 6, 20]))
    def go_on_for_long(self, seconds: int) -> None:
        """Where nothing but time goes by, so that limits run out."""
        for _ in range(seconds):
            self.farm.go_on(after_s=1.0)

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 13.0]))
    def stand_still(self, seconds: float) -> None:
        """As the whole machine does that a virtual farm runs on."""
        self.farm.clock.now_s += seconds

    @precondition(lambda self: len(self.farm.job_ids) < MOST_JOBS)
    @rule(agent_count=st.integers(1, 2))
    def submit(self, agent_count: int) -> None:
        self.farm.submit(agent_count=agent_count)

    @rule(is_heard=st.booleans(), is_overtaken=st.booleans())
    def schedule(self, is_heard: bool, is_overtaken: bool) -> None:
        """One scheduler, or two that look at once; `is_heard`: the first lives to send."""
        self.farm.round(is_heard=is_heard, is_overtaken=is_overtaken)

    @rule(agent=_AGENTS, place=_PLACES, is_kept=st.booleans())
    def deliver(self, agent: int, place: int, is_kept: bool) -> None:
        self.farm.agents[agent].deliver(place, is_kept=is_kept)

    @rule(agent=_AGENTS, place=st.integers(0, GIVEN_OUT_KEPT - 1))
    def deliver_again(self, agent: int, place: int) -> None:
        """A command that was carried out long ago, as a repeated one may come late."""
        chosen = self.farm.agents[agent]
        self.farm.broker.repeat_command(chosen.agent_id, place)
        chosen.deliver(0)

    @rule(place=_PLACES, is_heard=st.booleans(), is_kept=st.booleans())
    def collect_reports(self, place: int, is_heard: bool, is_kept: bool) -> None:
        self.farm.collect_reports(place, is_heard=is_heard, is_kept=is_kept)

    @rule(place=_PLACES, is_heard=st.booleans(), is_kept=st.booleans())
    def collect_heartbeat(self, place: int, is_heard: bool, is_kept: bool) -> None:
        self.farm.collect_heartbeat(place, is_heard=is_heard, is_kept=is_kept)

    @rule(agent=_AGENTS, is_working=st.booleans())
    def turn(self, agent: int, is_working: bool) -> None:
        """One agent goes on, with the next thing on its machine or without."""
        if is_working:
            self.farm.agents[agent].work()
        else:
            self.farm.agents[agent].turn()

    @rule(agent=_AGENTS, what=st.sampled_from(sorted(STRIKES)))
    def strike(self, agent: int, what: str) -> None:
        STRIKES[what](self.farm.agents[agent])

    @rule(
        agent=_AGENTS,
        is_reborn=st.booleans(),
        is_leased=st.booleans(),
        fate=st.sampled_from(["agent dies", "agent is stopped", "agent goes on"]),
        seconds=st.sampled_from([3.0, 9.0, 13.0]),
    )
    def speak_unheard(
        self, agent: int, is_reborn: bool, is_leased: bool, fate: str, seconds: float
    ) -> None:
        """An agent's heartbeats lie in the broker, and are taken when all has changed.

        `is_reborn`: they are a new life's first. `is_leased`: there is work for it meanwhile, of
        which it does not hear.
        """
        farm = self.farm
        chosen = farm.agents[agent] if is_leased else self._leased(agent)
        if is_reborn:
            restart(chosen)
        for _ in range(2):
            farm.clock.now_s += HEARTBEAT_S
            chosen.turn()
        if is_leased:
            if len(farm.job_ids) < MOST_JOBS:
                farm.submit(agent_count=1)
            farm.round(is_heard=False)
        STRIKES[fate](chosen)
        farm.clock.now_s += seconds
        while farm.collect_heartbeat(0):
            pass

    @rule(agent=_AGENTS, count=st.integers(1, 8), is_loosened=st.booleans())
    def end_slowly(self, agent: int, count: int, is_loosened: bool) -> None:
        """A rank that nobody wants any more takes its time to be cleared away."""
        farm = self.farm
        chosen = self._leased(agent)
        chosen.is_machine_stuck = True
        jobs = {a.id: a.job_id for a in self._before.attempts}
        if chosen.serving in jobs:
            farm.server.cancel(jobs[chosen.serving], now=farm.now)
        for _ in range(count):
            farm.go_on()
        chosen.is_machine_stuck = not is_loosened

    def _leased(self, number: int) -> SimulatedAgent:
        """Return one of the agents that were leased just now, or any if none was."""
        names = {a.id for a in self._before.agents if a.attempt_id is not None}
        leased = [a for a in self.farm.agents if a.agent_id in names] or self.farm.agents
        return leased[number % len(leased)]

    @rule(queue=st.integers(0, 4), place=_PLACES, is_whole=st.booleans())
    def lose(self, queue: int, place: int, is_whole: bool) -> None:
        """Lose a message, or all of its queue: the reports', the heartbeats' or an agent's."""
        messages = self.farm.broker.queues([a.agent_id for a in self.farm.agents])[queue]
        if is_whole:
            messages.clear()
        elif messages:
            del messages[place % len(messages)]

    @rule(is_away=st.booleans(), is_empty=st.booleans())
    def broker_goes(self, is_away: bool, is_empty: bool) -> None:
        """The broker dies or is there again, with its file or without."""
        self.farm.broker.is_away = is_away
        if is_empty:
            self.farm.broker.empty()

    @precondition(lambda self: self.farm.job_ids)
    @rule(job=st.integers(0, MOST_JOBS - 1), is_again=st.booleans())
    def steer(self, job: int, is_again: bool) -> None:
        """Cancel a job, or ask again for one that failed or was cancelled."""
        job_id = self.farm.job_ids[job % len(self.farm.job_ids)]
        state = next(j.state for j in self.farm.store().jobs if j.id == job_id)
        if not is_again:
            self.farm.server.cancel(job_id, now=self.farm.now)
        elif state in (JobState.FAILED, JobState.CANCELLED):
            self.farm.ask_again(job_id)

    @rule(agent=_AGENTS, is_drained=st.booleans())
    def drain(self, agent: int, is_drained: bool) -> None:
        self.farm.server.drain(self.farm.agents[agent].agent_id, is_drained=is_drained)

    @invariant()
    def promises_are_kept(self) -> None:
        farm = self.farm
        store = farm.store()
        # The lease of a rank may run out while its peers are asked what they have seen.
        unseen_s = farm.clock.now_s - farm.round_s + RULES.limits.cause_wait_s
        found = [
            *invariants.store_violations(store, lease_s=LEASE_S, late_s=unseen_s),
            *changes_are_legal(self._before, store, asked_again=farm.asked_again),
            *invariants.services_are_fenced(farm.services()),
            *invariants.leased_agents_are_free(store.agents, serving=farm.serving()),
            *invariants.who_serves_is_held(store.agents, serving=farm.serving()),
            *invariants.leases_follow_life(
                store.agents, silent_s=farm.silent_s(store), lease_s=LEASE_S
            ),
        ]
        assert not found, "\n".join(found)
        self._before = store
        farm.asked_again.clear()

    def _recover(self) -> None:
        """Let nothing fail any more, and see every job end and every report arrive.

        Then the farm is as good as new: what needs all of its agents succeeds at the first try.
        """
        farm = self.farm
        farm.mend()
        self._finish()
        farm.submit(agent_count=len(farm.agents))
        self._finish()
        tried = [a for a in self._before.attempts if a.job_id == farm.job_ids[-1]]
        assert [a.state for a in tried] == [AttemptState.SUCCEEDED], tried
        lost = invariants.nothing_is_lost(
            farm.written(),
            waiting=farm.waiting(),
            stored=farm.server.stored(),
            lost=farm.lost(),
        )
        assert not lost, "\n".join(lost)

    def _finish(self) -> None:
        farm = self.farm
        begun_s = farm.clock.now_s
        self.promises_are_kept()
        while not self._is_done():
            if not farm.go_on():
                farm.clock.now_s += ROUND_EVERY_S - MOMENT_S
            self.promises_are_kept()
            waited_s = farm.clock.now_s - begun_s
            if waited_s > RECOVERY_LIMIT_S:
                left = invariants.all_is_done(self._before)
                left += [f"{a.agent_id} waits for the server" for a in farm.agents if a.waiting()]
                raise AssertionError(f"not done within {waited_s:g} s: " + "; ".join(left))

    def _is_done(self) -> bool:
        if any(not agent.is_silent for agent in self.farm.agents):
            return False
        return not invariants.all_is_done(self._before)
