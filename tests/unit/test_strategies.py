"""The contract of every strategy, and the theory behind each."""

from __future__ import annotations

import pytest

from farm.trainers.contracts import Strategy
from farm.trainers.strategies import STRATEGIES
from farm.trainers.strategies.mwms_ring import MwmsRing
from farm.trainers.strategies.single import Single

GRADIENT_BYTES = 1000.0


def world_sizes(strategy: Strategy) -> range:
    last = strategy.facts.max_world_size or 8
    return range(strategy.facts.min_world_size, last + 1)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)
def test_every_rank_has_a_role_process(strategy: Strategy) -> None:
    for world_size in world_sizes(strategy):
        roles = strategy.roles(world_size, 0)
        assert len(roles) == world_size
        assert all(roles)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)
def test_only_a_strategy_of_one_rank_sends_nothing(strategy: Strategy) -> None:
    for world_size in world_sizes(strategy):
        traffic = strategy.traffic(world_size, GRADIENT_BYTES)
        assert (traffic.bytes > 0) == (traffic.messages > 0) == (world_size > 1)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)
def test_what_is_sent_grows_in_proportion_to_the_gradients(strategy: Strategy) -> None:
    for world_size in world_sizes(strategy):
        once = strategy.traffic(world_size, GRADIENT_BYTES)
        twice = strategy.traffic(world_size, 2 * GRADIENT_BYTES)
        assert twice.messages == once.messages
        assert twice.bytes == 2 * once.bytes


@pytest.mark.parametrize(
    ("world_size", "messages", "sent_bytes"), [(2, 2, 1000.0), (4, 6, 1500.0), (10, 18, 1800.0)]
)
def test_a_ring_sends_what_patarasuk_and_yuan_say(
    world_size: int, messages: int, sent_bytes: float
) -> None:
    traffic = MwmsRing().traffic(world_size, GRADIENT_BYTES)
    assert traffic.messages == messages
    assert traffic.bytes == pytest.approx(sent_bytes)


def test_a_ring_needs_two_and_a_single_machine_has_no_network() -> None:
    assert MwmsRing.facts.min_world_size == 2
    assert MwmsRing.facts.uses_network
    assert Single.facts.max_world_size == 1
    assert not Single.facts.uses_network
