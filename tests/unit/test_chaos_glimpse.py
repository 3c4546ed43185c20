"""What a campaign of faults counts as an agent that a waiting job could have."""

from __future__ import annotations

import datetime as dt

from tests.chaos.glimpse import Glimpse, SeenAgent

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
LONG_AGO = NOW - dt.timedelta(minutes=1)


def agent(
    *, beat: dt.datetime | None = NOW, attempt: int | None = None, unclean: int | None = None
) -> SeenAgent:
    return SeenAgent(heartbeat_at=beat, attempt=attempt, unclean=unclean)


def test_only_agents_that_are_heard_and_held_by_no_other_attempt_are_within_reach() -> None:
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
    assert seen.within_reach(7, since=NOW) == 2
    assert seen.within_reach(9, since=NOW) == 1
    assert seen.within_reach(7, since=LONG_AGO) == 3
