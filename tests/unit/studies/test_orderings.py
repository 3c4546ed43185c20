"""Orderings: what published and own measurements say of the same statement."""

from __future__ import annotations

import pytest

from farm.studies.orderings import (
    Ordering,
    OrderVerdict,
    Placed,
    claims_table,
    judge,
    orderings_table,
)

DELAY = Ordering(
    says="More delay makes a step slower",
    of="step time",
    along="delay",
    is_rising=True,
    because="hosts share cores",
)


def at(delay: float, value: float, *, size: int = 2, half: float | None = None) -> Placed:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Placed(at={"delay": delay, "size": size}, value=value, low=low, high=high)


def test_each_value_is_held_against_its_next_neighbour() -> None:
    values = [at(40, 5.0), at(0, 1.0), at(20, 3.0)]

    assert judge(DELAY, values) == OrderVerdict(agree=2, against=0, tied=0)
    assert judge(DELAY, [at(0, 3.0), at(20, 2.0), at(40, 1.0)]).holds is False


def test_values_that_differ_in_more_are_never_compared() -> None:
    assert judge(DELAY, [at(0, 1.0, size=2), at(20, 3.0, size=3)]) == OrderVerdict(0, 0, 0)


@pytest.mark.parametrize(
    "pair",
    [(at(0, 1.0), at(20, 1.0)), (at(0, 1.0, half=0.2), at(20, 1.3, half=0.2))],
    ids=["equal", "overlapping intervals"],
)
def test_what_is_too_close_tells_nothing(pair: tuple[Placed, Placed]) -> None:
    assert judge(DELAY, pair) == OrderVerdict(agree=0, against=0, tied=1)
    assert judge(DELAY, pair).holds is None


def test_names_are_in_the_order_that_is_given() -> None:
    ordering = Ordering(
        says="A ring is faster than servers",
        of="rate",
        along="strategy",
        is_rising=True,
        order=("servers", "ring"),
        because="",
    )
    values = [Placed(at={"strategy": name}, value=v) for name, v in (("ring", 9), ("servers", 4))]

    assert judge(ordering, values).holds is True


def test_only_where_it_is_said_to_hold() -> None:
    ordering = Ordering(
        says="",
        of="",
        along="delay",
        is_rising=True,
        because="",
        where=lambda place: place["size"] == 3,
    )

    assert judge(ordering, [at(0, 2.0), at(20, 1.0)]) == OrderVerdict(0, 0, 0)


def test_the_table_says_why_sources_differ_only_where_they_do() -> None:
    rising, falling = [at(0, 1.0), at(20, 3.0)], [at(0, 3.0), at(20, 1.0)]

    same = orderings_table([DELAY], published={"step time": rising}, own={"step time": rising})
    other = orderings_table([DELAY], published={"step time": rising}, own={"step time": falling})
    alone = orderings_table([DELAY], published={}, own={"step time": rising})

    assert "| 1 of 1 | 1 of 1 | yes |" in same
    assert DELAY.because not in same
    assert "| 1 of 1 | 0 of 1 | **no** |" in other
    assert f"- 1: {DELAY.because}" in other
    assert "| - | 1 of 1 | - |" in alone


def test_claims_without_published_values_are_held_against_our_own() -> None:
    rising, falling = [at(0, 1.0), at(20, 2.0)], [at(0, 2.0), at(20, 1.0)]
    agree = claims_table([DELAY], own={"step time": rising})
    deny = claims_table([DELAY], own={"step time": falling})

    assert agree.splitlines()[0] == "| what theory says | here | agree |"
    assert agree.splitlines()[2:] == ["| 1. More delay makes a step slower | 1 of 1 | yes |"]
    assert "| 0 of 1 | **no** |" in deny
    assert "- 1: hosts share cores" in deny


def test_a_claim_that_holds_here_and_there_is_explained_too() -> None:
    values = [at(0, 1.0), at(20, 2.0), at(40, 2.5), at(80, 2.0)]
    text = claims_table([DELAY], own={"step time": values}, of="a paper")

    assert "| what a paper says |" in text
    assert "| 2 of 3 | yes |" in text
    assert "- 1: hosts share cores" in text
    assert "| - | not told |" in claims_table([DELAY], own={})


def test_a_reason_that_holds_for_several_orderings_is_written_once_with_their_numbers() -> None:
    rising, falling = [at(0, 1.0), at(20, 3.0)], [at(0, 3.0), at(20, 1.0)]

    text = orderings_table(
        [DELAY, DELAY], published={"step time": rising}, own={"step time": falling}
    )

    assert text.endswith(f"Why not:\n\n- 1 and 2: {DELAY.because}")
