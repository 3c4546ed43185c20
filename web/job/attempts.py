"""Query parameters that select an attempt of a job, and a rank."""

from __future__ import annotations

from farm.configuration.spec import MAX_WORLD_SIZE
from web import parameters

ATTEMPT = parameters.row_id(
    "attempt",
    "The number of an attempt, from 1; the last one by default.",
    expected="an attempt's number, from 1",
)
RANK = parameters.whole("rank", "A rank of it; 0 by default.", low=0, high=MAX_WORLD_SIZE)
