import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from farm.recommend.configuration import Configuration
from farm.recommend.evaluating.few_shot import GroundTruth, few_shot
from farm.recommend.evaluating.questions import choices
from farm.recommend.plans.planner import (
    Candidate,
    MeasurementPlan,
    anchors,
    plan,
    precisely_measured,
    start_positions,
)
from farm.recommend.setup import Setup
from tests.truths.synthetic_crossovers import configuration, grid, observation, two_strategies

SOME = [configuration(1), configuration(8), configuration(2, 64), configuration(4, 4096, 0.08)]


def candidates(configurations: Sequence[Configuration], cost: float = 1.0) -> list[Candidate]:
    return [Candidate(configuration=c, cost=cost) for c in configurations]


def planned(measured: Sequence[Configuration] = (), **changes: Any) -> MeasurementPlan:
    observations = [observation(c, measurement_id=i) for i, c in enumerate(measured)]
    return plan(observations, candidates(grid()), **{"count": 4, **changes})


def test_one_machine_is_an_option_at_every_delay() -> None:
    cells = [configuration(1), configuration(2, delay_s=0.02), configuration(4, delay_s=0.02)]
    assert choices([*cells, configuration(2, delay_s=0.08)]) == ((0, 1, 2), (0, 3))


def test_several_ranks_on_one_machine_are_an_option_at_every_delay_once() -> None:
    gangs = [configuration(2, delay_s=delay_s) for delay_s in (0.02, 0.08)]
    several = [
        dataclasses.replace(
            configuration(4), setup=Setup.read("ranks_per_agent=4"), one_way_delay_s=delay_s
        )
        for delay_s in (0.0, 0.02)
    ]
    assert choices([*gangs, *several]) == ((2, 0), (2, 1))


def test_a_question_with_one_option_is_no_choice() -> None:
    assert choices([configuration(2), configuration(2, 64), configuration(1, 4096)]) == ()


def test_strategies_compete_and_batch_sizes_do_not() -> None:
    cells = [configuration(2), configuration(2, strategy="server"), configuration(2, 64)]
    assert choices(cells) == ((0, 1),)


def test_anchors_are_the_smallest_the_largest_and_the_one_near_eight() -> None:
    assert sorted(anchors([2, 3, 4, 6, 10, 16, 32])) == [2, 10, 32]
    assert sorted(anchors([2, 3, 4])) == [2, 4]


def test_a_plan_for_nothing_measured_begins_with_the_anchors_of_every_curve() -> None:
    proposals = planned(count=5).proposals
    assert {p.configuration.world_size for p in proposals[:3]} == {1, 2, 8}
    assert all(p.reason.startswith("to begin with") for p in proposals)


def test_a_curve_that_is_known_in_three_places_needs_no_beginning() -> None:
    cells = grid()
    known = [configuration(n, batch) for n in (1, 2, 3, 4) for batch in (64, 512)]
    assert not start_positions(cells, range(len(cells)), tested=known)
    assert start_positions(cells, range(len(cells)), tested=known[:4])


def test_a_second_strategy_has_a_beginning_of_its_own() -> None:
    cells = [*grid(), *(configuration(n, strategy="server") for n in (2, 4, 8))]
    known = [configuration(n, batch) for n in (1, 2, 3, 4) for batch in (64, 512)]
    found = start_positions(cells, range(len(cells)), tested=known)
    assert {cells[i].strategy for i in found} == {"server"}


def test_failures_are_neither_proposed_nor_chosen() -> None:
    failed = [c for c in grid() if c.world_size == 8]
    everything = planned(SOME[:1], failures=failed, count=100)
    assert everything.proposals
    assert not {p.configuration for p in everything.proposals} & set(failed)
    assert everything.choice_count == planned(SOME[:1]).choice_count


def test_what_was_measured_once_is_proposed_again_where_nothing_new_is_useful() -> None:
    proposals = planned(SOME, count=100).proposals
    again = [p.configuration in SOME for p in proposals]
    assert True in again[10:]
    assert not any(again[:10])
    assert [p.reason.startswith("again, ") for p in proposals] == again


def test_what_was_measured_once_is_precise_where_the_noise_is_known() -> None:
    once, twice = observation(configuration(1)), configuration(2)

    def precise(factor: float) -> bool:
        repeated = [observation(twice), observation(twice, factor=factor)]
        return once.configuration in precisely_measured([once, *repeated])

    assert not precisely_measured([once])
    assert precise(1.01)
    assert not precise(1.1)


def test_rivals_that_were_measured_once_are_measured_again() -> None:
    known = [observation(configuration(n), measurement_id=n) for n in (1, 2, 4)]
    known = [
        dataclasses.replace(o, step_time_s=time_s)
        for o, time_s in zip(known, (1.0, 0.99, 0.2), strict=True)
    ]
    cells = candidates([o.configuration for o in known])
    assert plan(known, cells).proposals == ()
    close = [dataclasses.replace(known[2], step_time_s=0.985), *known[:2]]
    proposals = plan(close, cells).proposals
    assert {p.configuration.world_size for p in proposals} == {1, 2, 4}
    assert len(proposals) == 3


def test_what_varies_or_is_not_believed_may_be_measured_again() -> None:
    doubted, varied, sure = configuration(1), configuration(2), configuration(4)
    found = precisely_measured(
        [
            dataclasses.replace(observation(doubted), weight=0.1),
            *(observation(varied, factor=factor) for factor in (0.8, 1.2)),
            *(observation(sure, factor=factor) for factor in (0.99, 1.01)),
        ]
    )
    assert found == {sure}


def test_a_budget_is_kept() -> None:
    cells = [Candidate(configuration=c, cost=float(c.machine_count)) for c in grid()]
    chosen = plan([observation(c) for c in SOME], cells, count=50, budget=7.0)
    assert 0 < chosen.cost <= 7.0
    assert chosen.stopped_because == "nothing that is left fits into the budget"


def test_of_equally_useful_measurements_the_cheaper_one_comes_first() -> None:
    dear = {configuration(8, 64), configuration(8, 64, 0.02)}
    cells = [Candidate(configuration=c, cost=1e6 if c in dear else 1.0) for c in grid()]
    chosen = plan([observation(c) for c in SOME], cells, count=10)
    assert not dear & {p.configuration for p in chosen.proposals}


def test_until_a_regret_it_plans_as_many_as_that_takes() -> None:
    chosen = planned(SOME, count=100, until_regret_ratio=0.02)
    assert chosen.regret_before_ratio > 0.02 >= chosen.regret_after_ratio
    assert all(p.regret_before_ratio > 0.02 for p in chosen.proposals)
    assert not planned(SOME, until_regret_ratio=10.0).proposals


def test_every_proposal_says_why_and_what_it_is_expected_to_save() -> None:
    chosen = planned(SOME)
    regrets = [p.regret_after_ratio for p in chosen.proposals]
    assert regrets == sorted(regrets, reverse=True)
    assert chosen.regret_after_ratio == regrets[-1] < chosen.regret_before_ratio
    assert "questions gain" in chosen.proposals[-1].reason


def test_the_proposals_of_one_plan_are_not_all_alike() -> None:
    """Each counts as measured for the next, so they spread over batch sizes and world sizes."""
    cells = [p.configuration for p in planned(SOME, count=6).proposals]
    assert len(set(cells)) == 6
    assert len({c.global_batch_size for c in cells}) > 1
    assert len({c.world_size for c in cells}) > 1


def test_a_seed_decides_and_nothing_else() -> None:
    plans = [planned(seed=seed) for seed in range(6)]
    assert plans == [planned(seed=seed) for seed in range(6)]
    assert any(plan != plans[0] for plan in plans)


def test_nothing_to_choose_between_is_said() -> None:
    alone = plan([], candidates([configuration(2), configuration(2, 64)]), count=3)
    assert not alone.proposals
    assert alone.stopped_because == "no question has two options that could work: widen the grid"


def test_cost_as_part_of_what_is_minimised_changes_what_is_worth_measuring() -> None:
    """Where each machine costs as much as the time it saves, one machine is known to be best."""
    known = [observation(c) for c in SOME]
    dear = [
        Candidate(configuration=c, cost=1.0, objective_factor=float(c.machine_count) ** 3)
        for c in grid()
    ]
    assert plan(known, dear, count=1).regret_before_ratio < planned(SOME).regret_before_ratio / 3


@pytest.mark.parametrize("noise_log", [0.0, 0.02])
def test_planned_measurements_tell_more_than_random_ones(noise_log: float) -> None:
    truth = GroundTruth.of([observation(c) for c in two_strategies()])
    mean = {
        is_planned: statistics.fmean(
            statistics.fmean(
                few_shot(truth, counts=[10], seed=seed, is_planned=is_planned, noise_log=noise_log)[
                    10
                ]
            )
            for seed in range(4)
        )
        for is_planned in (True, False)
    }
    assert mean[True] < mean[False] / 2


def test_a_campaign_pays_for_failures_and_never_chooses_them() -> None:
    failed = [c for c in grid() if c.world_size == 1]
    truth = GroundTruth.of([observation(c) for c in grid() if c.world_size > 1], failures=failed)
    found = few_shot(truth, counts=[3, 30], seed=0, is_planned=True, noise_log=0.0)
    assert len(found[3]) == len(found[30]) == 9  # batches x delays
    assert statistics.fmean(found[30]) < 1e-9
