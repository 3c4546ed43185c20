"""The table of refusals, and its place in a page: between two markers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from benchmarks.marked_part import MarkedPart
from tests.attacks.contract import Attack

TABLE = MarkedPart("attacks")
COMMAND = "python -m tests.attacks"


def table(outcomes: Sequence[tuple[Attack, str | None]]) -> list[str]:
    """Return a line for each attack and the words that refused it; None: it went through."""
    lines = ["| from | tried | refused by | line above |", "|---|---|---|---|"]
    for attack, words in outcomes:
        by = "**nothing**" if words is None else words
        lines.append(f"| {attack.position.value} | {attack.tried} | {by} | {attack.line} |")
    return lines


def write(page: Path, outcomes: Sequence[tuple[Attack, str | None]], *, on: dt.date) -> None:
    """Replace what is between the page's markers."""
    refused = sum(words is not None for _, words in outcomes)
    summary = f"`{COMMAND}` on {on}: {len(outcomes)} attacks, {refused} refused."
    TABLE.write(page, [summary, "", *table(outcomes)])
