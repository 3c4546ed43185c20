"""What holds of every answer, whatever was measured: on measurements drawn at random."""

import dataclasses
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from farm.recommend.answering.answer import answer_from
from farm.recommend.answering.options import options_for
from farm.recommend.contracts import (
    Evidence,
    Objective,
    Option,
    Question,
    Recommendation,
    StepTimeModel,
)
from tests.fakes.step_times import FakeStepTimes
from tests.unit.recommend.answering.test_recommend_measured import evidence

BATCH, DELAY_S, STEPS = 64, 0.02, 20
PRICES = {"small": 0.1, "large": 0.5}


@st.composite
def measurements(draw: st.DrawFn) -> list[Evidence]:
    """One workload's measurements: gangs and one machine, now and then failed."""
    found = []
    for number in range(1, draw(st.integers(1, 10)) + 1):
        step_time_s = draw(st.floats(1e-3, 10))
        is_ok = draw(st.integers(0, 5)) > 0
        found.append(
            evidence(
                number,
                world_size=draw(st.integers(1, 4)),
                global_batch_size=draw(st.sampled_from([32, BATCH])),
                instance_type=draw(st.sampled_from([None, "small", "large"])),
                status="ok" if is_ok else "out_of_memory",
                step_time_s=step_time_s if is_ok else None,
                time_per_epoch_s=step_time_s * STEPS if is_ok else None,
                accuracy=draw(st.none() | st.floats(0, 1)),
                steps_per_epoch=STEPS,
            )
        )
    return found


OBJECTIVES = st.builds(
    Objective,
    alpha=st.floats(0.01, 10),
    beta=st.just(0.0) | st.floats(0.01, 10),
    budget_usd=st.none() | st.floats(0, 0.1),
    deadline_s=st.none() | st.floats(0, 100),
    min_accuracy_ratio=st.none() | st.floats(0, 1),
    max_machine_count=st.none() | st.integers(1, 4),
)


def answer(
    known: list[Evidence],
    objective: Objective,
    *,
    model: StepTimeModel | None = None,
    **fields: Any,
) -> Recommendation:
    question = Question(global_batch_size=BATCH, one_way_delay_s=DELAY_S, **fields)
    found = options_for(
        known,
        question,
        examples_count=None,
        prices_usd_per_hour=PRICES,
        models=lambda _: model or FakeStepTimes(),
    )
    return answer_from(found, question, objective, known)


@settings(max_examples=60)
@given(measurements(), OBJECTIVES)
def test_what_is_recommended_is_within_every_limit(
    known: list[Evidence], objective: Objective
) -> None:
    best = answer(known, objective).recommended
    if best is None:
        return
    assert objective.budget_usd is None or (best.cost_high_usd or 0) <= objective.budget_usd
    assert objective.deadline_s is None or (best.time_s or 0) <= objective.deadline_s
    assert objective.max_machine_count is None or best.machine_count <= objective.max_machine_count
    least = objective.min_accuracy_ratio
    assert least is None or (best.accuracy is not None and best.accuracy >= least)


@settings(max_examples=60)
@given(measurements(), OBJECTIVES)
def test_no_other_option_within_the_limits_is_better(
    known: list[Evidence], objective: Objective
) -> None:
    found = answer(known, objective)
    feasible = [o for o in found.options if o.excluded_because is None]
    assert (found.recommended is None) is (not feasible)
    # A guess is better only where there is nothing else.
    rivals = [o for o in feasible if o.speculative_because is None] or feasible
    scores = [o.score for o in rivals if o.score is not None]
    if found.recommended is not None and found.recommended.score is not None:
        assert found.recommended.score == min(scores)


@settings(max_examples=60)
@given(measurements(), OBJECTIVES)
def test_without_limits_something_is_recommended_unless_all_of_it_failed(
    known: list[Evidence], objective: Objective
) -> None:
    assume(any(e.status == "ok" for e in known))
    failed = {e.configuration.world_size for e in known if e.status != "ok"}
    free = Objective(alpha=objective.alpha, beta=objective.beta)
    found = answer(known, free)
    assert found.recommended is not None or failed
    assert (found.recommended is None) is (found.reason is not None)


@settings(max_examples=60)
@given(measurements())
def test_the_front_is_a_front(known: list[Evidence]) -> None:
    found = answer(known, Objective())
    by_cost = all(o.cost_usd is not None for o in found.options)
    by_accuracy = all(o.accuracy is not None for o in found.options)

    def losses(option: Option) -> tuple[float, ...]:
        cost = [option.cost_usd or 0.0] if by_cost else []
        accuracy = [-(option.accuracy or 0.0)] if by_accuracy else []
        return (option.time_s or 0.0, *cost, *accuracy)

    def beats(one: Option, other: Option) -> bool:
        pairs = list(zip(losses(one), losses(other), strict=True))
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    for option in found.options:
        is_beaten = any(beats(other, option) for other in found.options)
        assert (option in found.pareto) is not is_beaten


@settings(max_examples=60)
@given(measurements(), st.sampled_from([2.0**-10, 0.25, 8.0, 2.0**20]))
def test_scaling_all_times_scales_all_answers(known: list[Evidence], factor: float) -> None:
    def scaled(e: Evidence) -> Evidence:
        if e.step_time_s is None or e.time_per_epoch_s is None:
            return e
        return dataclasses.replace(
            e, step_time_s=e.step_time_s * factor, time_per_epoch_s=e.time_per_epoch_s * factor
        )

    one = answer(known, Objective())
    other = answer([scaled(e) for e in known], Objective(), model=FakeStepTimes(scale=factor))
    assert [_choice(o) for o in one.options] == [_choice(o) for o in other.options]
    for a, b in zip(one.options, other.options, strict=True):
        for x, y in ((a.time_s, b.time_s), (a.low_s, b.low_s), (a.cost_high_usd, b.cost_high_usd)):
            assert (x is None) is (y is None)
            assert x is None or y is None or abs(x * factor - y) <= 1e-9 * y


@settings(max_examples=60)
@given(measurements())
def test_measuring_what_was_recommended_as_predicted_keeps_the_answer(
    known: list[Evidence],
) -> None:
    before = answer(known, Objective()).recommended
    assume(before is not None)
    assert before is not None
    confirmed = evidence(
        100,
        strategy=before.strategy,
        framework=before.framework,
        network=before.network if before.world_size > 1 else "none",
        instance_type=before.instance_type,
        world_size=before.world_size,
        step_time_s=before.step_time_s,
        time_per_epoch_s=before.time_per_epoch_s,
        steps_per_epoch=before.steps_per_epoch,
        accuracy=before.accuracy,
    )
    after = answer([*known, confirmed], Objective()).recommended
    assert after is not None
    assert _choice(after)[:-1] == _choice(before)[:-1]
    step_s = before.step_time_s or 0
    assert abs((after.step_time_s or 0) - step_s) <= 1e-9 * step_s


@settings(max_examples=60)
@given(measurements(), st.integers(1, 4))
def test_more_machines_at_hand_never_make_it_worse(known: list[Evidence], machines: int) -> None:
    few = answer(known, Objective(max_machine_count=machines)).recommended
    more = answer(known, Objective(max_machine_count=machines + 1)).recommended
    if few is not None:
        assert more is not None
        assert (more.score or 0) <= (few.score or 0)


def _choice(option: Option) -> tuple[object, ...]:
    return option.strategy, option.world_size, option.instance_type, option.basis == "measured"
