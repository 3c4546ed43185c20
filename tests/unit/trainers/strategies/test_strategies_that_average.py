"""What the collective and the averaging strategies send, and which axes each of them has."""

from __future__ import annotations

import pytest

from farm.configuration.catalogue import GangShape
from farm.trainers.contracts import Strategy
from farm.trainers.strategies.central_storage import CentralStorage
from farm.trainers.strategies.gossip import Gossip
from farm.trainers.strategies.local_sgd import LocalSgd
from farm.trainers.strategies.mirrored import Mirrored
from farm.trainers.strategies.mwms_auto import MwmsAuto
from farm.trainers.strategies.mwms_ring import MwmsRing
from farm.trainers.strategies.torch.local_sgd import TorchDiloco, TorchLocalSgd

GRADIENT_BYTES = 1000.0


@pytest.mark.parametrize("world_size", [2, 3, 10])
def test_automatic_collectives_send_what_a_ring_does(world_size: int) -> None:
    gang = GangShape(world_size=world_size)
    assert MwmsAuto().traffic(gang, GRADIENT_BYTES) == MwmsRing().traffic(gang, GRADIENT_BYTES)


@pytest.mark.parametrize(
    "strategy", [LocalSgd(), TorchLocalSgd(), TorchDiloco()], ids=lambda s: s.facts.name
)
@pytest.mark.parametrize(
    ("world_size", "every", "messages", "sent_bytes"),
    [(2, 1, 2.0, 1000.0), (4, 1, 6.0, 1500.0), (4, 8, 0.75, 187.5)],
)
def test_local_sgd_sends_a_ring_all_reduce_every_so_many_steps(
    strategy: Strategy, world_size: int, every: int, messages: float, sent_bytes: float
) -> None:
    gang = GangShape(world_size=world_size, steps_between_averages=every)
    traffic = strategy.traffic(gang, GRADIENT_BYTES)
    assert traffic.messages == pytest.approx(messages)
    assert traffic.bytes == pytest.approx(sent_bytes)


@pytest.mark.parametrize(
    ("world_size", "sent_bytes"), [(2, 1000.0), (3, 2000.0 / 3), (8, 1000.0), (9, 8000.0 / 9)]
)
def test_gossip_sends_the_weights_once_whatever_the_world_size_and_one_of_an_odd_number_nothing(
    world_size: int, sent_bytes: float
) -> None:
    traffic = Gossip().traffic(GangShape(world_size=world_size), GRADIENT_BYTES)
    assert traffic.messages == 2
    assert traffic.bytes == pytest.approx(sent_bytes)


@pytest.mark.parametrize("strategy", [Mirrored(), CentralStorage()], ids=lambda s: s.facts.name)
def test_several_replicas_of_one_machine_have_no_network(
    strategy: Mirrored | CentralStorage,
) -> None:
    assert "replicas_per_rank" in strategy.facts.axes
    assert not strategy.facts.uses_network
    assert strategy.traffic(GangShape(world_size=1), GRADIENT_BYTES).bytes == 0.0


def test_only_strategies_whose_ranks_share_their_weights_are_synchronous() -> None:
    assert "steps_between_averages" in LocalSgd.facts.axes
    assert not LocalSgd.facts.is_synchronous
    assert not Gossip.facts.is_synchronous
    assert MwmsAuto.facts.is_synchronous
    assert Mirrored.facts.is_synchronous
