"""Checks the database: schema, writing, clock and speed."""

from __future__ import annotations

from dataclasses import dataclass

from farm.diagnosis.finding import Finding, doubt, well, wrong
from farm.messages.agents import CLOCK_TOLERANCE_S
from farm.text.display import byte_count, duration

SLOW_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """What a database that has our schema says; `write_error`: why nothing can be written.

    `clock_offset_s`: its clock minus ours, None for a file, which has none. `answer_s`: what a
    small question took. `missing_days`: how many days to come have no partition.
    """

    shown_url: str
    version: str
    schema: str
    answer_s: float
    byte_count: int | None
    write_error: str | None
    clock_offset_s: float | None
    missing_days: int = 0


def judge_database(state: DatabaseState) -> list[Finding]:
    """Judge a database that answers."""
    held = "" if state.byte_count is None else f", {byte_count(state.byte_count)}"
    found = [well(f"{state.version} at {state.shown_url}, schema {state.schema}{held}")]
    if state.write_error is not None:
        found.append(
            wrong(
                f"it cannot be written to: {state.write_error}",
                "see whether its disk is full, another program holds it, or its account lacks the "
                "right; nothing starts and no report is taken until then",
            )
        )
    if state.answer_s > SLOW_S:
        found.append(
            doubt(
                f"a small question takes it {duration(state.answer_s)}",
                "look at its machine's load and disk",
            )
        )
    offset_s = state.clock_offset_s
    if offset_s is not None and abs(offset_s) > CLOCK_TOLERANCE_S:
        side = "ahead of" if offset_s > 0 else "behind"
        found.append(
            doubt(
                f"its clock is {duration(abs(offset_s))} {side} this machine's",
                "let both follow the same time server; else their logs cannot be compared",
            )
        )
    if state.missing_days:
        found.append(
            doubt(
                f"{state.missing_days} of the days to come have no partition for samples",
                "run `farm db upgrade`, or let the scheduler run, which makes them",
            )
        )
    return found
