"""What a campaign of faults counts as an agent that a waiting job could have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from farm.gang.lifecycle import JobState
from tests.chaos.glimpse import Glimpse, SeenAgent, SeenJob

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
LONG_AGO = NOW - dt.timedelta(minutes=1)


def agent(
    *, beat: dt.datetime | None = NOW, attempt: int | None = None, unclean: int | None = None
) -> SeenAgent:
    return SeenAgent(heartbeat_at=beat, attempt=attempt, unclean=unclean)


def test_only_agents_that_are_heard_and_held_by_no_other_attempt_may_be_leased() -> None:
    seen = Glimpse(
        agents={
            "idle": agent(),
            "still of the attempt": agent(unclean=7),
            "of another attempt": agent(attempt=8),
            "being cleaned after another": agent(unclean=8),
            "silent": agent(beat=LONG_AGO),
            "never heard": agent(beat=None),
        }
    )
    assert may_be_leased(seen, 7, count=2)
    assert not may_be_leased(seen, 7, count=3)
    assert not may_be_leased(seen, 9, count=2)
    assert may_be_leased(seen, 7, count=3, since=LONG_AGO)
    assert not may_be_leased(seen, 7, count=2, among=["idle", "silent"])


def may_be_leased(
    seen: Glimpse,
    token: int,
    *,
    count: int,
    since: dt.datetime = NOW,
    avoids: str = "",
    among: Collection[str] = (),
) -> bool:
    job = SeenJob(
        state=JobState.WAITING, attempt=None, agent_count=count, avoids=frozenset(avoids.split())
    )
    return seen.may_be_leased(job, token=token, since=since, among=among or seen.agents)


def test_a_job_waits_for_others_than_failed_it_only_while_there_are_enough() -> None:
    one_works = Glimpse(agents={"a": agent(), "b": agent(), "c": agent(attempt=8)})
    assert may_be_leased(one_works, 7, count=2)
    assert not may_be_leased(one_works, 7, count=2, avoids="a")
    assert may_be_leased(one_works, 7, count=1, avoids="a")
    assert may_be_leased(one_works, 7, count=2, avoids="a b")
    one_is_silent = Glimpse(agents={**one_works.agents, "c": agent(attempt=8, beat=LONG_AGO)})
    assert may_be_leased(one_is_silent, 7, count=2, avoids="a")


def test_a_glimpse_tells_how_far_a_job_is_and_what_keeps_each_agent() -> None:
    waiting = SeenJob(state=JobState.WAITING, attempt=None, agent_count=2, avoids=frozenset("a"))
    running = SeenJob(state=JobState.RUNNING, attempt=8, agent_count=1, gang=("b",))
    seen = Glimpse(
        jobs={1: waiting, 2: running, 3: running},
        agents={
            "b": agent(attempt=8, beat=NOW - dt.timedelta(seconds=2)),
            "a": agent(unclean=7, beat=None),
        },
    )
    assert seen.progress([1, 2], now=NOW).split("; ") == [
        "job 1 waiting, attempt none, avoids a",
        "job 2 running, attempt 8 on b",
        "a leased to None, unclean of 7, silent for ever",
        "b leased to 8, unclean of None, silent 2.0 s",
    ]
