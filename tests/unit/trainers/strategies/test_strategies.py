"""The contract of every strategy, and the theory behind each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farm import registry
from farm.configuration.axes import AXES
from farm.configuration.catalogue import GangShape
from farm.trainers.contracts import Strategy
from farm.trainers.strategies import STRATEGIES
from farm.trainers.strategies.mwms_ring import MwmsRing
from farm.trainers.strategies.single import Single
from farm.trainers.strategies.torch.fsdp import TorchFsdp
from farm.trainers.strategies.torch.pipeline import TorchPipeline

GRADIENT_BYTES = 1000.0

each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: s.facts.name)


def shapes(strategy: Strategy) -> Iterator[GangShape]:
    """Every shape of a small gang that the strategy may be asked for."""
    facts = strategy.facts
    for world_size in range(facts.min_world_size, (facts.max_world_size or 8) + 1):
        for server_count in (1, 2, 3) if facts.uses_servers else (0,):
            for steps in (1, 8) if "steps_between_averages" in facts.axes else (1,):
                yield GangShape(
                    world_size=world_size,
                    server_count=server_count,
                    steps_between_averages=steps,
                    handed_on_bytes=100.0 * (world_size - 1),
                )


@each_strategy
def test_a_strategy_sends_something_exactly_where_there_is_somebody_to_send_it_to(
    strategy: Strategy,
) -> None:
    for gang in shapes(strategy):
        traffic = strategy.traffic(gang, GRADIENT_BYTES)
        has_others = gang.world_size > 1 or gang.server_count > 0
        assert (traffic.bytes > 0) == (traffic.messages > 0) == has_others


@pytest.mark.parametrize(
    "strategy", [s for s in STRATEGIES if not s.facts.splits_layers], ids=lambda s: s.facts.name
)
def test_what_is_sent_grows_in_proportion_to_the_gradients(strategy: Strategy) -> None:
    for gang in shapes(strategy):
        once = strategy.traffic(gang, GRADIENT_BYTES)
        twice = strategy.traffic(gang, 2 * GRADIENT_BYTES)
        assert twice.messages == once.messages
        assert twice.bytes == pytest.approx(2 * once.bytes)


@pytest.mark.parametrize(
    "strategy",
    [s for s in STRATEGIES if "steps_between_averages" in s.facts.axes],
    ids=lambda s: s.facts.name,
)
def test_averaging_less_often_sends_less_in_proportion(strategy: Strategy) -> None:
    every_step, every_eighth = (
        strategy.traffic(GangShape(world_size=3, steps_between_averages=steps), GRADIENT_BYTES)
        for steps in (1, 8)
    )
    assert every_eighth.bytes == pytest.approx(every_step.bytes / 8)
    assert every_eighth.messages == pytest.approx(every_step.messages / 8)


@each_strategy
def test_whoever_uses_servers_can_be_one(strategy: Strategy) -> None:
    assert hasattr(strategy, "serve") == strategy.facts.uses_servers


@each_strategy
def test_facts_do_not_contradict_each_other(strategy: Strategy) -> None:
    facts = strategy.facts
    assert facts.min_world_size >= 1
    assert facts.max_world_size is None or facts.max_world_size >= facts.min_world_size
    assert facts.summary
    # Replicas within a rank and averages between ranks are two ways that nothing combines.
    assert not {"replicas_per_rank", "steps_between_averages"} <= set(facts.axes)


@each_strategy
def test_a_strategy_names_the_axes_that_its_ranks_make_possible(strategy: Strategy) -> None:
    facts, axes = strategy.facts, set(strategy.facts.axes)
    assert axes <= {axis.name for axis in AXES if axis.is_named}
    assert ("ranks_per_agent" in axes) == facts.uses_network
    # A rank that goes at its own pace has nothing to split.
    splits = facts.uses_network and facts.is_synchronous and not facts.splits_layers
    assert ("batch_split" in axes) == splits
    assert ("pipeline_cut" in axes) == ("pipeline_microbatches" in axes) == facts.splits_layers
    assert ("server_placement" in axes) == facts.uses_servers
    assert "compile" in axes or not facts.compiles_by_xla


def test_every_axis_that_has_to_be_named_is_of_a_strategy_or_a_launcher() -> None:
    known = registry.catalogue()
    every = [*known.strategies.values(), *known.launchers.values()]
    named = {name for facts in every for name in facts.axes}
    assert named == {axis.name for axis in AXES if axis.is_named}


@pytest.mark.parametrize(
    ("world_size", "messages", "sent_bytes"), [(2, 2, 1000.0), (4, 6, 1500.0), (10, 18, 1800.0)]
)
def test_a_ring_sends_what_patarasuk_and_yuan_say(
    world_size: int, messages: int, sent_bytes: float
) -> None:
    traffic = MwmsRing().traffic(GangShape(world_size=world_size), GRADIENT_BYTES)
    assert traffic.messages == messages
    assert traffic.bytes == pytest.approx(sent_bytes)


@pytest.mark.parametrize(
    ("world_size", "parts", "unit_count", "messages", "sent_bytes"),
    [(2, 1, 1, 3, 1500.0), (4, 1, 1, 9, 2250.0), (2, 1, 5, 15, 1500.0), (2, 3, 1, 7, 3500.0)],
)
def test_shards_are_gathered_in_each_pass_and_gradients_scattered_once_a_step(
    world_size: int, parts: int, unit_count: int, messages: int, sent_bytes: float
) -> None:
    gang = GangShape(
        world_size=world_size, gradient_accumulation_steps=parts, unit_count=unit_count
    )
    traffic = TorchFsdp().traffic(gang, GRADIENT_BYTES)
    assert traffic.messages == messages
    assert traffic.bytes == pytest.approx(sent_bytes)


@pytest.mark.parametrize(
    ("world_size", "tables", "messages", "sent_bytes"),
    # Of two ranks each sends a microbatch's activations or gradients four times, of four the two in
    # the middle both; one rank tells the others the loss, and two sum the gradients of a table.
    [(2, 0, 9 / 2, 608 / 2), (4, 0, 27 / 4, 624 / 4), (2, 1, 13 / 2, 808 / 2)],
)
def test_stages_send_each_other_activations_and_their_gradients(
    world_size: int, tables: int, messages: float, sent_bytes: float
) -> None:
    gang = GangShape(
        world_size=world_size,
        pipeline_microbatches=4,
        handed_on_bytes=300.0,
        table_messages=4.0 * tables,
        table_bytes=200.0 * tables,
    )
    traffic = TorchPipeline().traffic(gang, GRADIENT_BYTES)
    assert traffic.messages == messages
    assert traffic.bytes == sent_bytes


def test_a_ring_needs_two_and_a_single_machine_has_no_network() -> None:
    assert MwmsRing.facts.min_world_size == 2
    assert MwmsRing.facts.uses_network
    assert Single.facts.max_world_size == 1
    assert not Single.facts.uses_network
