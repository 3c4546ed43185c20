"""What the charts of an answer show."""

from __future__ import annotations

import dataclasses

import pytest

from farm.recommend.contracts import Option, Recommendation
from farm.recommend.setup import USUAL_SETUP
from web.pages.advice import MOST_WAYS, cost_of, figures_of, time_of, way_names

OPTION = Option(
    strategy="mwms_ring",
    world_size=2,
    server_count=0,
    instance_type="m5.large",
    framework=None,
    setup=USUAL_SETUP,
    network=None,
    fingerprint="a kind of hardware",
    time_per_epoch_s=10.0,
    step_time_s=0.1,
    step_time_spread_s=None,
    spread_s=None,
    low_s=8.0,
    high_s=15.0,
    low80_s=9.0,
    high80_s=12.0,
    time_s=50.0,
    cost_usd=0.5,
    accuracy=None,
    repetition_count=1,
    basis="measured",
    measurement_ids=(1,),
    step_low_s=0.08,
    step_high_s=0.15,
    step_low80_s=0.09,
    step_high80_s=0.12,
    epoch_count=5,
    time_high_s=75.0,
    cost_high_usd=0.75,
)


def _option(**changes: object) -> Option:
    return dataclasses.replace(OPTION, **changes)  # type: ignore[arg-type]


def _answer(*options: Option, front: int = 1) -> Recommendation:
    return Recommendation(
        model="m",
        dataset="d",
        recommended=options[0] if options else None,
        reason=None,
        options=options,
        pareto=options[:front],
    )


def test_the_interval_of_a_training_is_that_of_its_epochs() -> None:
    time = time_of(OPTION, by_step=False)
    assert time is not None
    assert (time.value, time.low, time.high) == (50.0, 40.0, 75.0)
    cost = cost_of(OPTION)
    assert cost is not None
    assert (cost.value, cost.low, cost.high) == pytest.approx((0.5, 0.4, 0.75))


def test_where_lengths_are_not_known_steps_are_compared() -> None:
    untimed = _option(time_per_epoch_s=None, low_s=None, high_s=None, time_s=None, cost_usd=None)
    assert time_of(untimed, by_step=False) is None
    step = time_of(untimed, by_step=True)
    assert step is not None
    assert (step.value, step.low, step.high) == pytest.approx((0.1, 0.08, 0.15))
    [figure] = figures_of(_answer(untimed))
    assert figure.title == "Time of one step against the world size"


def test_an_option_without_an_interval_has_none_in_the_chart() -> None:
    bare = _option(low_s=None, high_s=None, step_low_s=None, step_high_s=None)
    time = time_of(bare, by_step=False)
    assert time is not None
    assert (time.low, time.high) == (None, None)


def test_ways_are_named_by_what_tells_them_apart() -> None:
    alike = [OPTION, _option(world_size=4)]
    assert list(way_names(alike).values()) == ["mwms_ring"]
    other = [OPTION, _option(instance_type="m5.xlarge"), _option(server_count=2)]
    assert list(way_names(other).values()) == [
        "mwms_ring, m5.large",
        "mwms_ring, m5.xlarge",
        "mwms_ring, m5.large, 2 servers",
    ]


def test_a_way_is_one_line_in_the_order_of_its_world_sizes() -> None:
    options = [_option(world_size=n, time_s=100.0 / n) for n in (4, 2, 8)]
    figure = figures_of(_answer(*options))[0]
    [series] = figure.series
    assert [mark.x for mark in series.marks] == [2, 4, 8]
    assert all(mark.is_solid for mark in series.marks)
    assert "world size 4" in series.marks[1].note


def test_costs_are_drawn_only_where_they_are_known() -> None:
    titles = [f.title for f in figures_of(_answer(_option(cost_usd=None), front=0))]
    assert titles == ["Time of the training against the world size"]
    both = _answer(OPTION, _option(world_size=4, time_s=30.0, cost_usd=0.6))
    assert [f.title for f in figures_of(both)] == [
        "Time of the training against the world size",
        "Cost against the world size",
        "Time against cost",
    ]


def test_the_front_is_joined_and_the_others_are_not() -> None:
    answer = _answer(OPTION, _option(world_size=4, time_s=60.0, cost_usd=0.9))
    front, others = figures_of(answer)[2].series
    assert (front.name, front.is_joined, len(front.marks)) == ("Pareto front", True, 1)
    assert (others.is_joined, len(others.marks)) == (False, 1)


def test_more_ways_than_can_be_told_apart_are_left_out_and_said() -> None:
    options = [_option(instance_type=f"type {n:02}") for n in range(MOST_WAYS + 3)]
    figure = figures_of(_answer(*options))[0]
    assert len(figure.series) == MOST_WAYS
    assert f"the {MOST_WAYS} best of {MOST_WAYS + 3} kinds" in figure.summary
    assert figure.series[0].name == "mwms_ring, type 00"


def test_nothing_is_drawn_of_nothing() -> None:
    assert figures_of(_answer()) == []
