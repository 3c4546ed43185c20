"""Which server keeps which weight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.trainers.strategies import STRATEGIES
from farm.trainers.tensorflow.sessions.scheme import Scheme, spread

sizes_lists = st.lists(st.integers(min_value=1, max_value=10**9), max_size=50)


def test_the_largest_weights_are_spread_first() -> None:
    assert spread([10, 40, 30, 20], 2) == (0, 0, 1, 1)


def test_servers_without_a_weight_are_left_over() -> None:
    assert spread([5], 3) == (0,)


@given(sizes_lists, st.integers(min_value=1, max_value=9))
def test_no_server_has_more_than_its_share_and_one_weight(
    sizes: list[int], server_count: int
) -> None:
    homes = spread(sizes, server_count)
    assert len(homes) == len(sizes)
    loads = [sum(s for s, h in zip(sizes, homes, strict=True) if h == k) for k in set(homes)]
    assert all(0 <= home < server_count for home in homes)
    assert max(loads, default=0) <= sum(sizes) / server_count + max(sizes, default=0)


def test_a_scheme_says_of_itself_what_its_strategy_says() -> None:
    facts = {s.facts.name: s.facts for s in STRATEGIES}
    for scheme in Scheme:
        assert facts[scheme.value].is_synchronous == scheme.is_synchronous
        assert facts[scheme.value].uses_servers == scheme.has_servers
