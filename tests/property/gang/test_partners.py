"""Who meets whom: everybody everybody, and nobody waits in a circle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.gang.transfers import partners

COUNTS = st.integers(min_value=1, max_value=40)


@given(COUNTS)
def test_every_rank_meets_every_other_one_once(count: int) -> None:
    for rank in range(count):
        met = partners(rank, count)
        assert sorted(met) == [other for other in range(count) if other != rank]


@given(COUNTS)
def test_whoever_waits_for_a_partner_gets_it_in_the_end(count: int) -> None:
    waiting = {rank: list(partners(rank, count)) for rank in range(count)}
    rounds = 0
    while any(waiting.values()):
        # A pair meets when each is the other's next.
        pairs = {
            (rank, queue[0])
            for rank, queue in waiting.items()
            if queue and waiting[queue[0]] and waiting[queue[0]][0] == rank
        }
        assert pairs, waiting
        for rank, _ in pairs:
            waiting[rank].pop(0)
        rounds += 1
    assert rounds <= count - 1 + count % 2 or count == 1
