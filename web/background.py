"""Computes slow answers in one background thread, while pages poll for them.

One at a time, since they need a processor each. What was made is kept by its key, which has to
name all that the answer follows from. An error is reported once and not kept: the next request
finds out whether its cause, such as a database that was away, has passed.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from farm.errors import FarmError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_MOST_KEPT = 32
_MOST_DUE = 8
_PATIENCE_S = 0.1  # of a request, which has twice that


@dataclass(frozen=True, slots=True)
class BackgroundValue(Generic[_T]):
    value: _T


class Background:
    """What is made and what is to be made, of one process. Threads share it."""

    def __init__(self, *, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._kept: OrderedDict[Hashable, BackgroundValue[object] | Exception] = OrderedDict()
        self._due: OrderedDict[Hashable, Callable[[], object]] = OrderedDict()
        self._is_working = False

    def ask(
        self, key: Hashable, make: Callable[[], _T], *, patience_s: float | None = None
    ) -> BackgroundValue[_T] | None:
        """Return what was made for the key; None: not yet, ask again.

        Where too much is to be made already, nothing is added: asking again does. `patience_s`: how
        long to wait for it here, unless as always.

        Raises what `make` has raised.
        """
        timeout_s = self._patience_s if patience_s is None else patience_s
        with self._changed:
            if key not in self._kept and self._is_due(key, make):
                self._changed.wait_for(lambda: key in self._kept, timeout=timeout_s)
            outcome = self._kept.get(key)
            if outcome is None:
                return None
            if isinstance(outcome, Exception):
                del self._kept[key]
            else:
                self._kept.move_to_end(key)
        if isinstance(outcome, Exception):
            raise outcome.with_traceback(None)
        return cast("BackgroundValue[_T]", outcome)

    def _is_due(self, key: Hashable, make: Callable[[], object]) -> bool:
        """Put it on the list, unless that is full; tell whether it is there."""
        if key not in self._due and len(self._due) < _MOST_DUE:
            self._due[key] = make
        if not self._is_working:
            self._is_working = True
            threading.Thread(target=self._work, name="background", daemon=True).start()
        return key in self._due

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._is_working = False
                    return
                # It stays there while it is made, so that nobody adds it again.
                key, make = next(iter(self._due.items()))
            outcome = _outcome(make)
            with self._changed:
                del self._due[key]
                self._kept[key] = outcome
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
                self._changed.notify_all()


def _outcome(make: Callable[[], object]) -> BackgroundValue[object] | Exception:
    try:
        return BackgroundValue(make())
    except FarmError as error:
        return error
    except Exception as error:
        logger.exception("an answer could not be made")
        return error
