"""What is kept is made once for all who ask, given while it is good, and never longer."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from farm.errors import InvalidSpec
from farm.processes.cache import Cache, CachedValue

PATIENCE_S = 240.0


class _Maker:
    """Makes values out of the last one, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, before: str | None) -> str:
        self.count += 1
        return f"value {self.count} after {before}"


def _always(made: CachedValue[str]) -> bool:
    return True


def _never(made: CachedValue[str]) -> bool:
    return False


def test_what_is_good_is_made_once_for_each_key() -> None:
    cache, make = Cache(most=8), _Maker()
    assert {cache.get("a", make, is_good=_always) for _ in range(3)} == {"value 1 after None"}
    assert cache.get("b", make, is_good=_always) == "value 2 after None"


def test_what_is_not_good_any_more_is_made_out_of_the_last() -> None:
    cache, make = Cache(most=8), _Maker()
    cache.get("a", make, is_good=_never)
    assert cache.get("a", make, is_good=_never) == "value 2 after value 1 after None"


def test_those_that_were_not_asked_for_lately_are_forgotten() -> None:
    cache, make = Cache(most=2), _Maker()
    for key in ("a", "b", "a", "c"):
        cache.get(key, make, is_good=_always)
    assert cache.get("a", make, is_good=_always) == "value 1 after None"
    assert cache.get("b", make, is_good=_always) == "value 4 after None"


def test_who_waits_for_a_value_gets_that_one_however_long_it_took() -> None:
    """Else each of those who wait behind a slow one would make another, one after the other."""
    cache, make = Cache(most=8), _Maker()
    has_begun, may_end = threading.Event(), threading.Event()
    found: list[str] = []

    def make_slowly(before: str | None) -> str:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return make(before)

    threads = [
        threading.Thread(target=lambda: found.append(cache.get("a", make_slowly, is_good=_always)))
        for _ in range(5)
    ]
    threads[0].start()
    assert has_begun.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == ["value 1 after None"] * 5


def test_who_has_waited_in_vain_makes_it_himself() -> None:
    """Who makes it may hang in the store, and those who wait hold connections of their own."""
    cache, make = Cache(most=8, patience_s=0.01), _Maker()
    has_begun, may_end = threading.Event(), threading.Event()

    def hang(before: str | None) -> str:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return "at last"

    hanging = threading.Thread(target=lambda: cache.get("a", hang, is_good=_always))
    hanging.start()
    assert has_begun.wait(PATIENCE_S)
    assert cache.get("a", make, is_good=_always) == "value 1 after None"
    may_end.set()
    hanging.join(PATIENCE_S)


def test_what_could_not_be_made_is_made_by_the_next() -> None:
    cache, make = Cache(most=8), _Maker()

    def fail(before: str | None) -> str:
        raise RuntimeError("the store is away")

    with pytest.raises(RuntimeError):
        cache.get("a", fail, is_good=_always)
    assert cache.get("a", make, is_good=_always) == "value 1 after None"


def test_what_is_still_so_is_good_however_old_it_is() -> None:
    clock = _Clock()
    cache, made = Cache(most=8, clock=clock), iter(range(10))

    def ask(least: int) -> int:
        return cache.for_a_while(
            "a", lambda: next(made), keep_s=1.0, is_still_so=lambda value: value >= least
        )

    assert ask(0) == 0
    clock.now_s += 1000.0
    assert [ask(0), ask(1), ask(1)] == [0, 1, 1]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_value_is_made_again_once_it_is_old() -> None:
    clock = _Clock()
    cache, made = Cache(most=8, clock=clock), iter(range(10))
    assert [cache.for_a_while("a", lambda: next(made), keep_s=1.0) for _ in range(3)] == [0, 0, 0]
    assert cache.for_a_while("b", lambda: next(made), keep_s=1.0) == 1
    clock.now_s += 1.0
    assert cache.for_a_while("a", lambda: next(made), keep_s=1.0) == 2


def test_what_took_long_is_kept_ten_times_as_long() -> None:
    clock = _Clock()
    cache = Cache(most=8, clock=clock)
    made: list[None] = []

    def slowly() -> int:
        clock.now_s += 2.0
        made.append(None)
        return len(made)

    cache.for_a_while("a", slowly, keep_s=1.0)
    clock.now_s += 19.0
    assert cache.for_a_while("a", slowly, keep_s=1.0) == 1
    clock.now_s += 1.0
    assert cache.for_a_while("a", slowly, keep_s=1.0) == 2


def test_an_error_is_not_kept() -> None:
    cache = Cache(most=8)
    with pytest.raises(InvalidSpec):
        cache.for_a_while("a", _refuse, keep_s=60.0)
    assert cache.for_a_while("a", lambda: 5, keep_s=60.0) == 5


def _refuse() -> int:
    raise InvalidSpec("x", 1, "2")


def test_others_are_given_the_last_one_while_one_makes_the_next() -> None:
    clock = _Clock()
    cache = Cache(most=8, clock=clock)
    assert cache.for_a_while("a", lambda: "old", keep_s=1.0) == "old"
    clock.now_s += 2.0
    begun, may_end, found = threading.Event(), threading.Event(), []

    def slowly() -> str:
        begun.set()
        assert may_end.wait(10)
        return "new"

    worker = threading.Thread(
        target=lambda: found.append(cache.for_a_while("a", slowly, keep_s=1.0))
    )
    worker.start()
    assert begun.wait(10)
    assert cache.for_a_while("a", lambda: "twice", keep_s=1.0) == "old"
    may_end.set()
    worker.join(10)
    assert found == ["new"]
    assert cache.for_a_while("a", lambda: "twice", keep_s=1.0) == "new"


def test_what_takes_long_is_made_again_by_a_thread_while_nobody_waits() -> None:
    clock = _Clock()
    cache = Cache(most=8, clock=clock)
    may_end, has_ended = threading.Event(), threading.Event()

    def slowly() -> str:
        clock.now_s += 1.0
        return "old"

    def again() -> str:
        assert may_end.wait(10)
        has_ended.set()
        return "new"

    def ask() -> str:
        return cache.for_a_while("a", slowly, keep_s=1.0, renew=again)

    assert ask() == "old"
    clock.now_s += 11.0
    assert [ask() for _ in range(3)] == ["old"] * 3
    [thread] = [one for one in threading.enumerate() if one.name == "cache"]
    may_end.set()
    thread.join(10)
    assert has_ended.is_set()
    assert ask() == "new"


def test_who_asks_for_what_is_long_out_of_date_waits_for_it() -> None:
    clock = _Clock()
    cache, made = Cache(most=8, clock=clock), iter(range(10))

    def slowly() -> int:
        clock.now_s += 1.0
        return next(made)

    assert cache.for_a_while("a", slowly, keep_s=1.0, renew=_refuse) == 0
    clock.now_s += 100.0
    assert cache.for_a_while("a", slowly, keep_s=1.0, renew=_refuse) == 1


def _joined() -> None:
    for thread in threading.enumerate():
        if thread.name == "cache":
            thread.join(PATIENCE_S)


def test_who_does_not_wait_gets_nothing_first_and_then_the_last_value() -> None:
    clock = _Clock()
    cache, made = Cache(most=8, clock=clock), iter(range(10))

    def ask(least: int) -> int | None:
        return cache.at_once(
            "a", lambda: next(made), is_good=lambda one: one.value >= least, rest_s=15.0
        )

    assert ask(0) is None
    _joined()
    assert ask(0) == 0
    assert ask(1) == 0
    _joined()
    assert ask(1) == 0, "it rests"
    clock.now_s += 15.0
    assert ask(1) == 0
    _joined()
    assert ask(1) == 1


def test_what_nobody_waits_for_is_made_one_at_a_time() -> None:
    cache = Cache(most=8)
    has_begun, may_end = threading.Event(), threading.Event()

    def slowly() -> str:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return "slow"

    def ask(key: str, make: Callable[[], object]) -> object:
        return cache.at_once(key, make, is_good=lambda _: True, rest_s=0.0)

    assert ask("a", slowly) is None
    assert has_begun.wait(PATIENCE_S)
    for _ in range(3):
        assert ask("a", _refuse) is None
        assert ask("b", _refuse) is None
    may_end.set()
    _joined()
    assert ask("a", _refuse) == "slow"
    assert ask("b", lambda: "next") is None
    _joined()
    assert ask("b", _refuse) == "next"


def test_a_value_that_is_being_made_drives_out_none_that_is_there() -> None:
    cache = Cache(most=2)
    has_begun, may_end = threading.Event(), threading.Event()

    def slowly() -> str:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        return "c"

    def ask(key: str, make: Callable[[], object]) -> object:
        return cache.at_once(key, make, is_good=lambda _: True, rest_s=0.0)

    for key in ("a", "b"):
        ask(key, lambda key=key: key)  # type: ignore[misc]
        _joined()
    assert ask("c", slowly) is None
    assert has_begun.wait(PATIENCE_S)
    assert [ask(key, _refuse) for key in ("a", "b")] == ["a", "b"]
    may_end.set()
    _joined()
    assert ask("c", _refuse) == "c"


def test_of_callers_at_the_same_time_one_starts_a_thread() -> None:
    """One more would make its value beside the first once it had waited for its turn in vain."""
    cache = Cache(most=8, patience_s=0.0)
    keys = range(8)
    for key in keys:
        cache.get(key, lambda _: 0, is_good=lambda _: False)
    meet, may_end = threading.Barrier(len(keys)), threading.Event()
    begun: list[int] = []

    def is_good(_: CachedValue[int]) -> bool:
        meet.wait(PATIENCE_S)
        return False

    def ask(key: int) -> None:
        def slowly() -> int:
            begun.append(key)
            assert may_end.wait(PATIENCE_S)
            return 1

        cache.at_once(key, slowly, is_good=is_good, rest_s=0.0)

    callers = [threading.Thread(target=ask, args=(key,)) for key in keys]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE_S)
    may_end.set()
    _joined()
    assert len(begun) == 1
