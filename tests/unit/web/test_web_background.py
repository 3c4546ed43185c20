"""Answers made in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from farm.errors import InvalidSpec, Unreachable
from web.backend import Background

DEADLINE_S = 30.0


def test_what_is_quick_is_there_at_once_and_made_once() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 7

    background = Background(patience_s=DEADLINE_S)
    for _ in range(2):
        answer = background.ask("key", make)
        assert answer is not None
        assert answer.value == 7
    assert made == [1]


def test_nobody_waits_for_what_is_slow_and_others_are_made_after_it() -> None:
    gate = threading.Event()
    background = Background(patience_s=0.0)
    assert background.ask("slow", gate.wait) is None
    assert background.ask("slow", gate.wait) is None
    assert background.ask("next", lambda: "made") is None
    gate.set()
    for key in ("slow", "next"):
        assert background.ask(key, lambda: "again", patience_s=DEADLINE_S) is not None
    answer = background.ask("next", lambda: "again")
    assert answer is not None
    assert answer.value == "made"


def test_a_mistake_is_told_to_everybody_who_asks() -> None:
    def fail() -> None:
        raise InvalidSpec("beta", 1, "0")

    background = Background(patience_s=DEADLINE_S)
    for _ in range(2):
        with pytest.raises(InvalidSpec, match="beta"):
            background.ask("key", fail)


def test_an_error_is_not_kept_since_it_may_pass() -> None:
    outcomes: Iterator[Unreachable | str] = iter([Unreachable("the database is away"), "made"])

    def make() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    background = Background(patience_s=DEADLINE_S)
    with pytest.raises(Unreachable):
        background.ask("key", make)
    answer = background.ask("key", make)
    assert answer is not None
    assert answer.value == "made"


def _wait_and_note(gate: threading.Event, made: list[int], number: int) -> None:
    gate.wait()
    made.append(number)


def test_too_much_to_do_is_not_added_to() -> None:
    gate = threading.Event()
    made: list[int] = []
    background = Background(patience_s=0.0)
    for number in range(50):
        work = partial(_wait_and_note, gate, made, number)
        assert background.ask(number, work) is None
    gate.set()
    while background.ask("last", lambda: 1, patience_s=DEADLINE_S) is None:
        continue
    assert made == list(range(8))
