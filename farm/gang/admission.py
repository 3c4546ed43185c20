"""Decides which reports and heartbeats are accepted. All others are set aside with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState
from farm.messages.agents import BeatEcho, Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedAttempt:
    """`is_current`: the job's present attempt is this one. `agents`: rank to agent id."""

    state: AttemptState
    is_current: bool
    agents: Mapping[int, str]


def refusal_of_report(
    attempt: LeasedAttempt | None, *, agent_id: str, token: int, rank: int
) -> str | None:
    """Return why a report does not count, or None if it does.

    A report counts only if its fencing token is the job's current one and its sender is the agent
    leased for that rank: an agent that lost its lease may finish its work, but changes nothing.
    """
    if attempt is None:
        return f"there is no attempt {token}"
    if not attempt.is_current or attempt.state not in ACTIVE_ATTEMPT_STATES:
        return f"attempt {token} is over: it is {attempt.state.value}"
    if rank not in attempt.agents:
        return f"attempt {token} has no rank {rank}"
    if attempt.agents[rank] != agent_id:
        return f"rank {rank} of attempt {token} is leased to {attempt.agents[rank]}"
    return None


def beat_age_s(echo: BeatEcho | None, *, now_s: float) -> float | None:
    """Return the age of a heartbeat by the server's clock alone; None if it proves nothing.

    The agent echoes the server's time of the last confirmation, and the time since its arrival by
    its own monotonic clock. So a wrong clock of an agent does no harm, and old beats of a dead
    agent are recognised, however long they waited in the broker.
    """
    return None if echo is None else now_s - (echo.server_time_s + echo.elapsed_s)


def renews_lease(beat: Heartbeat, *, token: int, same_boot: bool, has_reported: bool) -> bool:
    """Whether a fresh heartbeat keeps the lease of attempt `token` alive.

    - The agent has not seen the token: yes, since `start_rank` is still on its way. No if the rank
      `has_reported`: then the agent has lost its disk, and the rank with it.
    - It has seen the token: yes if it runs since then (`same_boot`). After a restart the rank is
      gone, and the lease runs out unless the spool still delivers the rank's end.
    - It has seen a higher token: no, since the server has forgotten something.
    """
    if beat.highest_token < token:
        return not has_reported
    return beat.highest_token == token and same_boot


def is_clean(beat: Heartbeat, *, unclean_token: int) -> bool:
    """Whether the agent may be leased again after `unclean_token` ended without its report.

    It must have seen that token, or a late `start_rank` could still start the old attempt.
    """
    return beat.serving_token is None and beat.highest_token >= unclean_token
