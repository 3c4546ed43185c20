"""Errors planted into measurements are found, and what is merely unusual is left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farm.recommend.calibrated.held_out import hold_out
from farm.recommend.calibrated.suspicious import Suspicion, SuspicionKind, believed, find_suspicious
from farm.recommend.configuration import Configuration, Observation
from tests.truths.synthetic_steps import Lawful, configuration, grid, law, measure


def suspicions(observations: Sequence[Observation]) -> list[Suspicion]:
    return find_suspicious(observations, hold_out(observations, Lawful(), [None]))


def times(factor: float, *odd: Configuration) -> list[Observation]:
    return measure(grid(), time_s=lambda c: law(c) * (factor if c in odd else 1))


def id_of(observations: Sequence[Observation], requested: Configuration) -> int:
    return next(o.measurement_id for o in observations if o.configuration == requested)


def test_nothing_is_wrong_with_measurements_that_follow_the_law() -> None:
    assert suspicions(times(1)) == []


def test_a_value_far_from_what_all_others_say_is_found() -> None:
    odd = configuration(3, 256, 0.04)
    observations = times(2.0, odd)
    far = [s for s in suspicions(observations) if s.kind is SuspicionKind.FAR_OFF]
    assert [s.measurement_id for s in far] == [id_of(observations, odd)]
    assert "2 times longer" in far[0].message or "times longer" in far[0].message
    assert far[0].weight < 0.5


def test_more_delay_in_less_time_is_found_and_the_odd_one_doubted() -> None:
    odd = configuration(4, 64, 0.04)
    observations = times(0.2, odd)
    broken = [s for s in suspicions(observations) if s.kind is SuspicionKind.LESS_TIME_FOR_MORE]
    assert {s.measurement_id for s in broken} == {id_of(observations, odd)}
    assert any("with 20.0 ms of delay, but" in s.message for s in broken)


def test_equal_times_of_two_strategies_are_found() -> None:
    others = measure(grid(strategy="ps"), seed=1)
    copied = configuration(4, 256, 0.04)
    observations = times(1)
    source = next(o for o in observations if o.configuration == copied)
    others = [
        dataclasses.replace(
            o,
            measurement_id=o.measurement_id + 1000,
            step_time_s=source.step_time_s
            if dataclasses.replace(o.configuration, strategy="mwms_ring") == copied
            else o.step_time_s,
        )
        for o in others
    ]
    found = [s for s in suspicions([*observations, *others]) if s.kind is SuspicionKind.COPIED]
    assert len(found) == 2
    assert "another strategy" in found[0].message


def test_rounded_times_are_not_copies_of_each_other() -> None:
    observations = [
        dataclasses.replace(o, measurement_id=index, step_time_s=round(o.step_time_s, 2) + 0.01)
        for index, o in enumerate([*times(1), *measure(grid(strategy="ps"), seed=1)])
    ]
    assert not [s for s in suspicions(observations) if s.kind is SuspicionKind.COPIED]


def test_a_region_where_the_predictor_fails_is_not_suspicious() -> None:
    def slow(c: Configuration) -> float:
        return law(c) * (3 if c.world_size == 4 else 1)

    assert suspicions(measure(grid(), time_s=slow)) == []


def test_what_is_suspicious_counts_less_and_nothing_is_lost() -> None:
    odd = configuration(3, 256, 0.04)
    observations = times(2.0, odd)
    kept = believed(observations, suspicions(observations))
    assert [o.measurement_id for o in kept] == [o.measurement_id for o in observations]
    assert [o.step_time_s for o in kept] == [o.step_time_s for o in observations]
    assert {o.configuration for o in kept if o.weight < 1} == {odd}
