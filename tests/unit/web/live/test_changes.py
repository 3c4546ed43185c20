"""One look at the store for all who watch, as long as somebody does."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import pytest

from farm.errors import Unreachable
from web.live.changes import ChangeKind, Changes, Subject, TooManyWatchers

ONE, OTHER = Subject(ChangeKind.SWEEP, 1), Subject(ChangeKind.JOB, 1)
PATIENCE_S = 240.0


class Store:
    """What is looked at, and how often it was."""

    def __init__(self) -> None:
        self.stamps: dict[Subject, Hashable] = {ONE: 0, OTHER: 0}
        self.looked_for: list[frozenset[Subject]] = []
        self.failure: Exception | None = None
        self.looked = threading.Condition()

    def look(self, subjects: frozenset[Subject]) -> dict[Subject, Hashable]:
        with self.looked:
            self.looked_for.append(subjects)
            self.looked.notify_all()
            if self.failure is not None:
                raise self.failure
            return {s: self.stamps[s] for s in subjects if s in self.stamps}

    def await_look(self) -> None:
        """Wait for a look that begins from now on, and for the one after it."""
        with self.looked:
            count = len(self.looked_for)
            assert self.looked.wait_for(lambda: len(self.looked_for) > count + 1, PATIENCE_S)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def changes(store: Store) -> Changes:
    return Changes(store.look, every_s=0.01, max_watchers=3)


def test_a_watcher_hears_of_the_first_look_and_then_of_changes_alone(
    store: Store, changes: Changes
) -> None:
    with changes.watching(ONE) as watcher:
        assert watcher.has_changed(within_s=PATIENCE_S)  # since the page was read, for all we know
        store.await_look()
        assert not watcher.has_changed(within_s=0.0)
        store.stamps[ONE] = 1
        assert watcher.has_changed(within_s=PATIENCE_S)
        assert not watcher.has_changed(within_s=0.0)


def test_who_comes_later_hears_at_once(store: Store, changes: Changes) -> None:
    with changes.watching(ONE) as first:
        assert first.has_changed(within_s=PATIENCE_S)
        with changes.watching(ONE) as second:
            assert second.has_changed(within_s=0.0)
            store.await_look()
            assert not second.has_changed(within_s=0.0)


def test_one_look_serves_all_and_wakes_only_whom_it_concerns(
    store: Store, changes: Changes
) -> None:
    with changes.watching(ONE) as one, changes.watching(OTHER) as other:
        assert one.has_changed(within_s=PATIENCE_S)
        assert other.has_changed(within_s=PATIENCE_S)
        store.await_look()
        assert store.looked_for[-1] == {ONE, OTHER}
        store.stamps[OTHER] = 1
        assert other.has_changed(within_s=PATIENCE_S)
        assert not one.has_changed(within_s=0.0)


def test_what_is_removed_has_changed(store: Store, changes: Changes) -> None:
    with changes.watching(ONE) as watcher:
        assert watcher.has_changed(within_s=PATIENCE_S)
        del store.stamps[ONE]
        assert watcher.has_changed(within_s=PATIENCE_S)


def test_there_are_no_more_watchers_than_may_be(changes: Changes) -> None:
    with (
        changes.watching(ONE),
        changes.watching(ONE),
        changes.watching(OTHER),
        pytest.raises(TooManyWatchers),
        changes.watching(ONE),
    ):
        pass
    with changes.watching(ONE):
        pass


def test_no_viewer_takes_all_the_places(store: Store) -> None:
    changes = Changes(store.look, max_watchers=5, max_of_one_viewer=2)
    with changes.watching(ONE, viewer="a"), changes.watching(OTHER, viewer="a"):
        with pytest.raises(TooManyWatchers), changes.watching(ONE, viewer="a"):
            pass
        with (
            changes.watching(ONE, viewer="b"),
            changes.watching(ONE),
            changes.watching(ONE),
            pytest.raises(TooManyWatchers),
            changes.watching(ONE, viewer="c"),
        ):
            pass
        with changes.watching(ONE, viewer="b"), changes.watching(ONE, viewer="b"):
            pass
    with changes.watching(ONE, viewer="a"):
        pass


def test_nobody_looks_when_nobody_watches(store: Store, changes: Changes) -> None:
    assert store.looked_for == []
    for _ in range(3):
        with changes.watching(ONE) as watcher:
            assert watcher.has_changed(within_s=PATIENCE_S)
        looking = [thread for thread in threading.enumerate() if thread.name == "changes"]
        for thread in looking:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("failure", [Unreachable("the store is away"), RuntimeError("a defect")])
def test_a_store_that_is_away_ends_nothing(
    store: Store, changes: Changes, failure: Exception
) -> None:
    with changes.watching(ONE) as watcher:
        assert watcher.has_changed(within_s=PATIENCE_S)
        store.failure = failure
        store.await_look()
        assert not watcher.has_changed(within_s=0.0)
        store.failure = None
        store.stamps[ONE] = 1
        assert watcher.has_changed(within_s=PATIENCE_S)


def test_many_watch_at_once_and_each_hears(store: Store) -> None:
    changes = Changes(store.look, every_s=0.01, max_watchers=40)
    heard = threading.Barrier(41)
    failed: list[str] = []

    def watch() -> None:
        with changes.watching(ONE) as watcher:
            if not watcher.has_changed(within_s=PATIENCE_S):
                failed.append("the first look")
            heard.wait(PATIENCE_S)
            if not watcher.has_changed(within_s=PATIENCE_S):
                failed.append("the change")

    threads = [threading.Thread(target=watch) for _ in range(40)]
    for thread in threads:
        thread.start()
    heard.wait(PATIENCE_S)
    store.stamps[ONE] = 1
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failed == []
    assert not any(thread.is_alive() for thread in threads)
