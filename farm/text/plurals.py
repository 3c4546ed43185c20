"""Writes numbers with their nouns, such as "2 jobs"."""

from __future__ import annotations

from collections.abc import Callable


def counted(
    count: int, noun: str, plural: str | None = None, *, write: Callable[[int], str] = str
) -> str:
    """Write "1 agent", "2 agents". `plural`: where it is not `noun` with an s.

    A verb may follow the noun: `counted(n, "job waits", "jobs wait")`. `write`: the number.
    """
    if count == 1:
        return f"{write(count)} {noun}"
    return f"{write(count)} {plural or noun + 's'}"
