from typing import Any

from farm.configuration.catalogue import StrategyFacts
from farm.recommend.answering.candidates import candidates
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Evidence, Question
from farm.recommend.setup import Setup
from tests.unit.recommend.answering.test_recommend_measured import evidence


def competing(*known: Evidence, **fields: Any) -> list[Configuration]:
    question = Question(**{"global_batch_size": 64, "one_way_delay_s": 0.02, **fields})
    return list(candidates(known, question).configurations)


def widths(*known: Evidence, **fields: Any) -> list[int]:
    return [c.world_size for c in competing(*known, **fields)]


ONE, TWO, FOUR = evidence(1), evidence(2, world_size=2), evidence(3, world_size=4)


def test_world_sizes_known_at_any_batch_size_and_delay_compete() -> None:
    elsewhere = evidence(4, world_size=8, global_batch_size=512, one_way_delay_s=0.1)
    assert widths(ONE, TWO, elsewhere) == [1, 2, 8]


def test_named_world_sizes_compete_even_if_they_were_never_measured() -> None:
    assert widths(ONE, TWO, world_sizes=(3, 5)) == [1, 3, 5]


def test_one_machine_competes_even_if_none_was_measured() -> None:
    [one, _] = competing(TWO)
    assert (one.world_size, one.network, one.one_way_delay_s) == (1, None, 0.0)


def test_one_machine_has_no_servers_and_no_averages_of_a_gang() -> None:
    """Else one machine of each way to set up a gang would compete, which nobody can measure."""
    gangs = [
        evidence(
            2, world_size=2, server_count=1, setup=Setup.read(f"hard, server_placement={where}")
        )
        for where in ("apart", "collocated")
    ]
    ones = [c for c in competing(*gangs) if c.is_one_machine]
    assert [c.setup.text for c in ones] == ["hard"]
    measured = evidence(1, setup=Setup.read("replicas_per_rank=2"))
    assert [c.setup.text for c in competing(measured, *gangs) if c.is_one_machine] == [
        "replicas_per_rank=2"
    ]


def test_machines_with_several_ranks_compete_at_multiples_of_these_alone() -> None:
    four = evidence(4, world_size=8, setup=Setup.read("ranks_per_agent=4"))
    found = competing(ONE, TWO, FOUR, four, world_sizes=(2, 4, 6, 8))
    several = [c for c in found if c.setup.text == "ranks_per_agent=4"]
    assert [(c.world_size, c.machine_count) for c in several] == [(4, 1), (8, 2)]


def test_a_gang_is_asked_about_under_the_questions_conditions() -> None:
    gang = competing(ONE, TWO, one_way_delay_s=0.05, packet_loss_ratio=0.01)[-1]
    assert (gang.one_way_delay_s, gang.packet_loss_ratio) == (0.05, 0.01)
    assert gang.global_batch_size == 64


def test_strategies_learn_world_sizes_from_each_other() -> None:
    other = evidence(5, world_size=2, strategy="other")
    found = competing(ONE, FOUR, other)
    assert [(c.strategy, c.world_size) for c in found[1:]] == [
        ("mwms_ring", 2),
        ("other", 2),
        ("mwms_ring", 4),
        ("other", 4),
    ]
    assert {c.strategy for c in competing(ONE, FOUR, other, strategies=("other",))[1:]} == {"other"}


def test_a_gang_needs_an_example_for_each_replica() -> None:
    assert widths(ONE, TWO, FOUR, global_batch_size=3) == [1, 2]


def test_servers_come_as_they_were_measured_with_that_world_size() -> None:
    known = [evidence(n, world_size=w, server_count=s) for n, w, s in ((1, 2, 1), (2, 4, 2))]
    gangs = [(c.world_size, c.server_count) for c in competing(*known, world_sizes=(2, 4, 3))[1:]]
    assert gangs == [(2, 1), (3, 1), (3, 2), (4, 2)]


def test_a_network_that_was_only_ever_untouched_is_not_asked_to_delay() -> None:
    plain = evidence(5, world_size=2, network="plain", one_way_delay_s=0.0)
    assert {c.network for c in competing(ONE, TWO, plain)[1:]} == {"netem"}
    assert {c.network for c in competing(ONE, TWO, plain, one_way_delay_s=0.0)[1:]} == {"plain"}
    assert {c.network for c in competing(ONE, plain)[1:]} == {"plain"}
    assert competing(ONE, TWO, plain, networks=("plain",)) == competing(ONE)


def test_what_ran_out_of_memory_does_not_compete_with_a_larger_batch() -> None:
    failed = evidence(5, status="out_of_memory", global_batch_size=32, time_per_epoch_s=None)
    assert widths(failed, TWO) == [2]
    assert widths(failed, TWO, global_batch_size=16) == [1, 2]
    question = Question(global_batch_size=64, one_way_delay_s=0.02)
    small = evidence(6, global_batch_size=16)
    found = candidates([small, failed, TWO], question)
    assert [c.world_size for c in found.configurations] == [2]
    assert found.warnings == (
        "single with world_size 1: ran out of memory with global_batch_size 32, "
        "so it cannot do with 64",
    )


def test_what_later_did_with_more_has_not_too_little_memory() -> None:
    failed = evidence(5, status="out_of_memory", global_batch_size=32, time_per_epoch_s=None)
    assert widths(failed, evidence(6, global_batch_size=128), TWO) == [1, 2]


def test_a_strategy_competes_with_the_world_sizes_that_it_can_do() -> None:
    ring = StrategyFacts(name="mwms_ring", summary="", framework="f", min_world_size=2)
    pair = StrategyFacts(name="pair", summary="", framework="f", max_world_size=2)
    question = Question(global_batch_size=64, one_way_delay_s=0.02)
    known = [FOUR, evidence(5, world_size=2, strategy="pair")]
    found = candidates(known, question, strategies={"mwms_ring": ring, "pair": pair})
    assert [(c.strategy, c.world_size) for c in found.configurations] == [
        ("single", 1),
        ("pair", 1),
        ("mwms_ring", 2),
        ("pair", 2),
        ("mwms_ring", 4),
    ]
