"""Disturbed measurements count less, never win over undisturbed ones, and are named first."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy.orm import Session

from farm.measuring.noise import NoiseKind, NoiseLimits, disturbance_of, disturbed_by
from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.contracts import Objective, Question, Recommendation
from farm.recommend.observations import load
from farm.recommend.service import recommend
from tests.factories import add_measurement
from tests.facts import lacking

BUSY = {
    "kind": "foreign_load",
    "message": "agent a1, rank 0: 81 % of its cores was used by other programs (limit 30 %)",
    "value": 0.81,
}
SLOW_CONTROL = {
    "kind": "control_run",
    "message": "agent a1, rank 0: its control run took 20 % longer than the median of its last 5 "
    "(limit 10 %)",
    "value": 0.2,
}


def measured(session: Session, key: str, *flags: dict[str, Any], **changes: Any) -> int:
    is_gang = changes.get("world_size", 1) > 1
    strategy = "mwms_ring" if is_gang else "single"
    fields = {"steps_per_epoch": 45, "flags": list(flags), "strategy": strategy}
    return add_measurement(session, key, **{**fields, **changes})


def ask(session: Session) -> Recommendation:
    return recommend(session, question=Question(global_batch_size=32), objective=Objective())


def weight(kind: str, value: float) -> float:
    return disturbance_of([{"kind": kind, "message": "", "value": value}]).weight


def test_the_weight_falls_with_the_disturbance_and_is_small_beyond_the_limit_that_voids() -> None:
    limit = NoiseLimits().foreign_load_ratio
    assert limit.void is not None
    assert weight("foreign_load", limit.flag) == 1.0
    assert weight("foreign_load", limit.void) == pytest.approx(0.1)
    assert weight("foreign_load", 0.9) == pytest.approx(0.1 * limit.void / 0.9)
    values = sorted(random.Random(0).uniform(limit.flag, 1.0) for _ in range(50))
    weights = [weight("foreign_load", value) for value in values]
    assert weights == sorted(weights, reverse=True)
    assert all(w <= 0.1 for v, w in zip(values, weights, strict=True) if v > limit.void)


@pytest.mark.parametrize("kind", list(NoiseKind))
def test_no_kind_of_disturbance_leaves_a_measurement_its_full_weight(kind: NoiseKind) -> None:
    assert 0 < weight(kind.value, 1e9) < 1
    assert 0 < disturbance_of([{"kind": kind.value, "message": "without a number"}]).weight < 1


def test_the_worst_of_several_disturbances_decides_and_imports_have_none() -> None:
    both = disturbance_of([SLOW_CONTROL, BUSY])
    assert both.weight == disturbance_of([BUSY]).weight
    assert disturbed_by([both, disturbance_of([BUSY])]) == (
        "other programs (2), a slow control run (1)"
    )
    assert disturbance_of([{"kind": "impossible", "message": "accuracy of 2"}]).weight == 1


def test_an_undisturbed_measurement_of_a_configuration_wins_over_any_number_of_others(
    session: Session,
) -> None:
    quiet = measured(session, "quiet", step_time_s=0.1)
    busy = tuple(measured(session, f"busy {n}", BUSY, step_time_s=0.02) for n in range(5))
    option = ask(session).options[0]
    assert option.step_time_s == pytest.approx(0.1)
    assert option.time_per_epoch_s == pytest.approx(0.1 * 1437 / 32)
    assert (option.measurement_ids, option.set_aside_ids) == ((quiet,), busy)
    assert (option.repetition_count, option.disturbed_ids) == (1, ())
    assert any("5 of the 6 measurements" in w for w in ask(session).warnings)
    [known] = load(session, origin="farm").values()
    assert [(o.measurement_id, o.weight) for o in known.observations] == [(quiet, 1.0)]


def test_without_an_undisturbed_one_the_less_disturbed_counts_more(session: Session) -> None:
    measured(session, "little", SLOW_CONTROL, step_time_s=0.1)
    measured(session, "much 1", BUSY, step_time_s=0.3)
    measured(session, "much 2", BUSY, step_time_s=0.4)
    assert ask(session).options[0].step_time_s == pytest.approx(0.1)
    [known] = load(session, origin="farm").values()
    assert [o.weight for o in known.observations] == pytest.approx(
        [disturbance_of([flag]).weight for flag in (SLOW_CONTROL, BUSY, BUSY)]
    )


def test_the_interval_of_disturbed_repetitions_holds_all_of_them(session: Session) -> None:
    measured(session, "little", SLOW_CONTROL, step_time_s=0.1)
    measured(session, "much 1", BUSY, step_time_s=0.3)
    measured(session, "much 2", BUSY, step_time_s=0.4)
    option = ask(session).options[0]
    found = prediction_interval(
        [1437 / 32 * time_s for time_s in (0.1, 0.3, 0.4)], coverage_ratio=0.9
    )
    assert found is not None
    assert (option.low_s, option.high_s) == pytest.approx((found.low_s, found.high_s))


def test_where_all_is_disturbed_the_headline_says_that_first(session: Session) -> None:
    for repetition in range(3):
        measured(session, f"one {repetition}", BUSY)
        measured(session, f"two {repetition}", BUSY, world_size=2, step_time_s=0.06)
    answer = ask(session)
    first, _, then = answer.headline.partition(": ")
    assert lacking(first, "only disturbed", "3 of 3", "other programs (3)") == []
    assert lacking(then, "world size 2", "mwms_ring") == []
    assert not answer.is_firm
    assert (answer.disturbed_count, answer.rests_on_count) == (6, 6)
    assert lacking(answer.warnings[0], "6 of the 6", "disturbed", "other programs (6)") == []
    best = answer.to_json()["recommended"]
    assert isinstance(best, dict)
    assert best["disturbed_by"] == ["foreign_load"]
    assert len(best["disturbed_ids"]) == 3


def test_a_disturbed_rival_is_a_reason_for_caution(session: Session) -> None:
    for repetition in range(3):
        measured(session, f"one {repetition}", BUSY)
        measured(session, f"two {repetition}", world_size=2, step_time_s=0.06)
    [caution] = ask(session).cautions
    assert lacking(caution, "only measured option", "only disturbed") == []


def test_undisturbed_repetitions_make_a_firm_answer(session: Session) -> None:
    for repetition in range(3):
        measured(session, f"one {repetition}", step_time_s=0.1 + repetition / 1e4)
        measured(session, f"two {repetition}", world_size=2, step_time_s=0.06 + repetition / 1e4)
    answer = ask(session)
    assert answer.is_firm
    assert answer.best_probability is not None
    assert answer.best_probability > 0.99
    assert not any("disturbed" in warning for warning in answer.warnings)
