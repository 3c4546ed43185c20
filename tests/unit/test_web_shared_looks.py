"""A look is shared with who asks within its life, and never older than that."""

from __future__ import annotations

import threading

import pytest

from web.shared_looks import Look, SharedLooks

PATIENCE_S = 10.0


class Maker:
    """Makes looks, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, begun_s: float) -> Look:
        self.count += 1
        return Look(f"look {self.count}", (), begun_s)


def test_who_asks_at_once_shares_a_look() -> None:
    looks, make = SharedLooks(life_s=60.0), Maker()
    assert {looks.of("a page", make).body for _ in range(3)} == {"look 1"}
    assert looks.of("another page", make).body == "look 2"


def test_a_look_does_not_outlive_its_life() -> None:
    looks, make = SharedLooks(life_s=0.0), Maker()
    assert [looks.of("a page", make).body for _ in range(2)] == ["look 1", "look 2"]


def test_who_waits_for_a_look_gets_that_one_however_long_it_took() -> None:
    """Else each of those who wait behind a slow one would make another, one after the other."""
    looks, make = SharedLooks(life_s=60.0), Maker()
    has_begun, may_end = threading.Event(), threading.Event()
    found: list[str] = []

    def make_slowly(begun_s: float) -> Look:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return make(begun_s)

    threads = [
        threading.Thread(target=lambda: found.append(looks.of("a page", make_slowly).body))
        for _ in range(5)
    ]
    threads[0].start()
    assert has_begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == ["look 1"] * 5


def test_a_look_that_could_not_be_made_is_made_by_the_next() -> None:
    looks, make = SharedLooks(life_s=60.0), Maker()

    def fail(begun_s: float) -> Look:
        raise RuntimeError("the store is away")

    with pytest.raises(RuntimeError):
        looks.of("a page", fail)
    assert looks.of("a page", make).body == "look 1"


def test_a_look_that_failed_leaves_no_older_one() -> None:
    looks, make = SharedLooks(life_s=0.0), Maker()
    looks.of("a page", make)

    def fail(begun_s: float) -> Look:
        raise RuntimeError("the store is away")

    with pytest.raises(RuntimeError):
        looks.of("a page", fail)
    assert looks.of("a page", make).body == "look 2"
