import dataclasses
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farm.recommend.configuration import Configuration
from farm.recommend.plans.belief import believe
from farm.recommend.plans.planner import Candidate, plan
from tests.truths.synthetic_crossovers import observation, two_strategies

CELLS = two_strategies()[::2]
SUBSETS = st.lists(st.sampled_from(CELLS), max_size=8, unique=True)
COSTS = st.lists(st.floats(0.01, 100), min_size=len(CELLS), max_size=len(CELLS))


def candidates(costs: list[float]) -> list[Candidate]:
    return [Candidate(configuration=c, cost=x) for c, x in zip(CELLS, costs, strict=True)]


@settings(max_examples=25)
@given(SUBSETS, SUBSETS, COSTS, st.floats(0, 50), st.integers(0, 9))
def test_a_plan_keeps_to_its_budget_and_says_what_it_repeats(
    known: list[Configuration],
    failed: list[Configuration],
    costs: list[float],
    budget: float,
    seed: int,
) -> None:
    failures = [c for c in failed if c not in known]
    observations = [observation(c, measurement_id=i) for i, c in enumerate(known)]
    chosen = plan(
        observations, candidates(costs), failures=failures, count=3, budget=budget, seed=seed
    )
    proposed = [p.configuration for p in chosen.proposals]
    assert not set(proposed) & {*failures}
    for proposal in chosen.proposals:
        is_repeated = proposal.configuration in known
        assert proposal.reason.startswith("again, to tell rivals apart: ") is is_repeated
    assert len(set(proposed)) == len(proposed) <= 3
    assert chosen.cost <= budget
    again = plan(
        observations, candidates(costs), failures=failures, count=3, budget=budget, seed=seed
    )
    assert again == chosen


@settings(max_examples=25)
@given(SUBSETS, COSTS, st.integers(0, 9))
def test_a_first_proposal_is_expected_to_save_regret(
    known: list[Configuration], costs: list[float], seed: int
) -> None:
    observations = [observation(c, measurement_id=i) for i, c in enumerate(known)]
    chosen = plan(observations, candidates(costs), count=1, seed=seed)
    assume(chosen.proposals)
    (first,) = chosen.proposals
    assert first.regret_before_ratio == chosen.regret_before_ratio
    assert 0 <= first.regret_after_ratio < first.regret_before_ratio


@settings(max_examples=20)
@given(SUBSETS, st.floats(1e-4, 1e4))
def test_units_do_not_matter_to_a_belief(known: list[Configuration], factor: float) -> None:
    assume(known)
    observations = [observation(c, measurement_id=i) for i, c in enumerate(known)]
    scaled = [dataclasses.replace(o, step_time_s=o.step_time_s * factor) for o in observations]
    one, other = believe(observations, CELLS), believe(scaled, CELLS)
    assert np.allclose(one.mean + np.log(factor), other.mean, atol=1e-6)
    assert np.allclose(one.covariance, other.covariance, atol=1e-6)


@settings(max_examples=20)
@given(SUBSETS)
def test_a_belief_is_sure_of_what_was_measured_and_never_surer_of_the_rest(
    known: list[Configuration],
) -> None:
    assume(known)
    observations = [observation(c, measurement_id=i) for i, c in enumerate(known)]
    belief = believe(observations, CELLS)
    deviations = np.sqrt(np.diag(belief.covariance))
    measured = [CELLS.index(c) for c in known]
    assert np.linalg.eigvalsh(belief.covariance).min() > -1e-9
    assert deviations[measured].max() <= 2 * belief.noise_log
    assert np.allclose(
        belief.mean[measured], [np.log(o.step_time_s) for o in observations], atol=0.1
    )


@settings(max_examples=20)
@given(
    st.sampled_from([c for c in CELLS if c.world_size > 1]),
    st.sampled_from(
        [
            {"packet_loss_ratio": 0.01},
            {"one_way_delay_s": 0.2, "jitter_s": 0.01},
            {"bandwidth_bytes_per_s": 1e6},
            {"strategy": "another"},
        ]
    ),
)
def test_another_network_is_not_known_from_one_that_was_measured(
    measured: Configuration, change: dict[str, Any]
) -> None:
    other = dataclasses.replace(measured, **change)
    belief = believe([observation(measured)], [measured, other])
    deviations = np.sqrt(np.diag(belief.covariance))
    assert deviations[1] > 3 * deviations[0]
