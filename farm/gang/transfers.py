"""Schedule of the bandwidth tests between the ranks of a gang.

All that a rank sends may share one limit, all that it receives another, and acknowledgements use
some of the bandwidth in the other direction. So no rank does two transfers at once: ranks are
paired, and within a pair first one sends and then the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from farm.configuration.spec import NetworkProfile

SEGMENT_BYTES = 1448  # what a packet of 1500 bytes carries
# A token bucket lets a burst pass, and TCP needs some round trips to fill a link. That part is not
# timed: four times what is under way was enough on links of up to 0.2 s and a megabyte.
_UNTIMED_S = 0.2
_UNTIMED_RTTS = 4
# The clock is read in a process that may be late by some milliseconds at both ends of this.
_TIMED_S = 0.5
_MOST_BYTES = 2**28
# With fewer, a packet more or less would count for more than the tolerance; and before the sender
# knows how slowly a slow link answers, it sends some packets twice.
_LEAST_TIMED_SEGMENTS = 24
_LEAST_UNTIMED_SEGMENTS = 8
# What may wait at the limit, beyond what is under way: enough never to leave it idle, and less
# than a link's queue holds (50 ms through tc_netem). What overflows is sent again, and arrives in
# heaps.
_QUEUED_S = 0.045
_LEAST_WINDOW_SEGMENTS = 3
# A transfer that takes more than twice its time is slow enough to be known for it.
_LIMIT_RATIO = 2.0
_LIMIT_S = 1.0
# A bulk stream, beside which round trips are timed: long enough for TCP to fill the queue at the
# limit and for some echoes to pass it.
_LOAD_S = 0.5
_LOAD_RTTS = 8
_LOADED_QUEUE_S = 0.05
_LEAST_LOAD_SEGMENTS = 96
_LONGEST_LOAD_S = 10.0
_RTTS_A_TURN = 16  # to fill the link, to agree upon the transfer and to hear what arrived


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPlan:
    """`window_bytes`: the most bytes in flight, which grows from `first_bytes`.

    `limit_s`: when it ends, however much has arrived.
    """

    byte_count: int
    untimed_bytes: int
    first_bytes: int
    window_bytes: int
    limit_s: float


def plan_transfer(bytes_per_s: float, *, rtt_s: float) -> TransferPlan:
    """Plan a transfer that shows whether a path carries `bytes_per_s`, including headers."""
    untimed = _segments(bytes_per_s * (_UNTIMED_S + _UNTIMED_RTTS * rtt_s))
    untimed = max(untimed, _LEAST_UNTIMED_SEGMENTS)
    timed = max(_segments(bytes_per_s * _TIMED_S), _LEAST_TIMED_SEGMENTS)
    window = _segments(bytes_per_s * (rtt_s + _QUEUED_S))
    byte_count = min((untimed + timed) * SEGMENT_BYTES, _MOST_BYTES)
    return TransferPlan(
        byte_count=byte_count,
        untimed_bytes=min(untimed * SEGMENT_BYTES, byte_count // 2),
        first_bytes=max(1, _segments(bytes_per_s * _QUEUED_S)) * SEGMENT_BYTES,
        window_bytes=max(window, _LEAST_WINDOW_SEGMENTS) * SEGMENT_BYTES,
        limit_s=_LIMIT_RATIO * byte_count / bytes_per_s + _RTTS_A_TURN * rtt_s + _LIMIT_S,
    )


def plan_load(bytes_per_s: float, *, rtt_s: float) -> TransferPlan | None:
    """Plan a stream that fills a link's queue; None if that would take too long."""
    load_s = max(_filling_s(rtt_s), _LEAST_LOAD_SEGMENTS * SEGMENT_BYTES / bytes_per_s)
    if load_s > _LONGEST_LOAD_S:
        return None
    byte_count = min(_segments(bytes_per_s * load_s) * SEGMENT_BYTES, _MOST_BYTES)
    return TransferPlan(
        byte_count=byte_count,
        untimed_bytes=SEGMENT_BYTES,
        first_bytes=byte_count,
        window_bytes=byte_count,
        limit_s=_LIMIT_RATIO * load_s + _RTTS_A_TURN * rtt_s + _LIMIT_S,
    )


def load_settled_s(*, rtt_s: float) -> float:
    """Return the time after which a load's queue is assumed to be full."""
    return _filling_s(rtt_s) / 2


def _filling_s(rtt_s: float) -> float:
    return _LOAD_S + _LOAD_RTTS * (rtt_s + _LOADED_QUEUE_S)


def waiting_share(bytes_per_s: float, *, rtt_s: float) -> float:
    """Return the bytes that may be in flight at most, as a share of the timed bytes."""
    plan = plan_transfer(bytes_per_s, rtt_s=rtt_s)
    return plan.window_bytes / (plan.byte_count - plan.untimed_bytes)


def partners(rank: int, agent_count: int) -> tuple[int, ...]:
    """Return a rank's partners in order; in each pair the lower rank sends first.

    The order is that of a round-robin tournament (circle method): each round pairs all ranks,
    except one that rests if their number is odd. Every rank keeps the order of the rounds, so a
    rank only waits for partners in an earlier round, and no two ranks wait for each other.
    """
    places = agent_count + agent_count % 2
    wheel = places - 1  # all but the last place turn
    found = []
    for turn in range(wheel):
        if rank == wheel:
            partner = turn * places // 2 % wheel
        else:
            partner = (turn - rank) % wheel
            partner = wheel if partner == rank else partner
        if partner < agent_count:
            found.append(partner)
    return tuple(found)


def turn_s(profile: NetworkProfile, *, rtt_s: float) -> float:
    """Return how long one transfer may take, including the messages before and after it."""
    assert profile.bandwidth_bytes_per_s is not None
    return plan_transfer(profile.bandwidth_bytes_per_s, rtt_s=rtt_s).limit_s + 4 * rtt_s


def transfers_s(profile: NetworkProfile, *, agent_count: int) -> float:
    """Return how long all transfers of a gang may take, including its gathering."""
    if profile.bandwidth_bytes_per_s is None or agent_count < 2:
        return 0.0
    rtt_s = 2 * (profile.one_way_delay_s + profile.jitter_s)
    rounds = agent_count - 1 + agent_count % 2
    load = plan_load(profile.bandwidth_bytes_per_s, rtt_s=rtt_s)
    # Each rank loads its way once, at its first meeting, which may be one round later where the
    # number of ranks is odd.
    loads_s = 0.0 if load is None else 2 * (1 + agent_count % 2) * (load.limit_s + 4 * rtt_s)
    return 2 * agent_count * rtt_s + 2 * rounds * turn_s(profile, rtt_s=rtt_s) + loads_s


def _segments(byte_count: float) -> int:
    return math.ceil(byte_count / SEGMENT_BYTES)
