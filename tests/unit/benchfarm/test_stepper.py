"""Whose steps are those of the training, where several objects step."""

from __future__ import annotations

import pytest

from benchfarm.hooks import Stepper


class Optimizer:
    """Only its identity matters."""


def counted(turns: list[Optimizer]) -> list[bool]:
    stepper = Stepper()
    return [stepper.counts(optimizer) for optimizer in turns]


def test_of_two_that_take_turns_the_first_counts() -> None:
    first, second = Optimizer(), Optimizer()

    assert counted([first, second] * 3) == [True, False] * 3


@pytest.mark.parametrize("begins", ["critic", "generator"])
def test_the_one_with_more_steps_a_turn_counts_from_its_second_on(begins: str) -> None:
    critic, generator = Optimizer(), Optimizer()
    turn = [*[critic] * 5, generator]
    turns = (turn if begins == "critic" else turn[::-1]) * 3
    found = counted(turns)

    assert found[-12:] == [optimizer is critic for optimizer in turns[-12:]]


def test_one_that_was_made_anew_counts_from_its_second_step_on() -> None:
    former, new = Optimizer(), Optimizer()

    assert counted([*[former] * 3, *[new] * 3]) == [*[True] * 3, False, True, True]


def test_one_that_is_gone_is_replaced_like_one_that_is_still_there() -> None:
    """Ranks collect garbage at different times, but must end at the same step."""
    stepper = Stepper()
    former = Optimizer()
    assert stepper.counts(former)
    del former
    new = Optimizer()

    assert [stepper.counts(new) for _ in range(3)] == [False, True, True]


def test_one_that_was_there_before_counts_after_a_hundred_steps_in_a_row() -> None:
    first, second = Optimizer(), Optimizer()
    turns = [*[first, second] * 2, first, *[second] * 102]

    assert counted(turns)[5:] == [*[False] * 100, True, True]


def test_blocks_of_steps_that_take_turns_do_not_change_whose_count() -> None:
    policy, value = Optimizer(), Optimizer()
    block = [*[policy] * 40, *[value] * 40]
    turns = block * 3
    found = counted(turns)

    assert found[80:] == [optimizer is value for optimizer in turns[80:]]
