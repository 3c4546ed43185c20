"""How often processes that live for weeks look for reference cycles."""

from __future__ import annotations

import gc

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def collect_rarely() -> None:
    """Look for cycles rarely; what is there by now is never looked through again.

    Thousands of objects come with a batch of reports or a look at the store, and nearly all die
    with it: reference counts free them at once. To look through all of them every 700 was a quarter
    of what a batch costs, and through ten thousand jobs that wait a tenth of a second of a round.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
