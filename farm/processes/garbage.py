"""Makes Python's garbage collector run less often in processes that live long."""

from __future__ import annotations

import gc

_OBJECTS_BETWEEN_LOOKS = 10_000  # at what is new
_LOOKS_BETWEEN_LONGER_ONES = 100  # at what is older, too


def collect_rarely() -> None:
    """Collect cycles rarely; objects that exist now are never scanned again.

    Thousands of objects come with a batch of reports or a look at the store, and nearly all die
    with it: reference counts free them at once. To look through all of them every 700 was a quarter
    of what a batch costs, and through ten thousand jobs that wait a tenth of a second of a round.

    But what SQLAlchemy leaves is in cycles. A look every 100,000 objects found 40,000 to 80,000 of
    them, and a decision or a portion that it came upon stood still for 0.1 to 0.23 s until they
    were freed; one every 10,000 takes 0.02 s, and a longer one, of which there are as few, 0.09 s.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, _LOOKS_BETWEEN_LONGER_ONES, 10)
