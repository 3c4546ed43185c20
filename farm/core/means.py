"""Means of what may not have been measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None
