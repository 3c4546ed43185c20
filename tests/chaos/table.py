"""The table of a campaign, and its place in a page: between two markers."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.marked_part import MarkedPart
from tests.chaos.farm import AGENT_COUNT, HEARTBEAT_S, LEASE_S
from tests.chaos.faults import FAULTS
from tests.chaos.faults.contract import Scope
from tests.chaos.outcome import Outcome, Strike

TABLE = MarkedPart("campaign")
_TITLE = (
    "| fault | struck | at work | jobs struck | lost | doubled | stuck | recovered, p50 | p95 |"
    " longest | limit | serves again, p95 |"
)


def table(outcome: Outcome) -> list[str]:
    """Return a line for each fault that struck, and one for all."""
    lines = [_TITLE, "|---" * (_TITLE.count("|") - 1) + "|"]
    for fault in FAULTS:
        strikes = [s for s in outcome.strikes if s.fault is fault]
        if strikes:
            limit = f"{fault.limit_s:g} s" if fault.scope is not Scope.ASIDE else "-"
            since = ", from its end" if fault.counts_from_end else ""
            lines.append(_line(fault.name, strikes, outcome, limit=limit + since))
    lines.append(_line("all", outcome.strikes, outcome, limit="-"))
    return lines


def slow(outcome: Outcome) -> list[Strike]:
    """Return what took longer to recover from than its fault's limit."""
    return [
        strike
        for strike in outcome.strikes
        if strike.recovered_after_s is not None and strike.recovered_after_s > strike.fault.limit_s
    ]


def slow_lines(outcome: Outcome) -> list[str]:
    """Return a line for each of them: how long it took, and what its jobs waited for at the end."""
    return [f"slow: {s.recovered_after_s:.1f} s: {s}; before: {s.before}" for s in slow(outcome)]


def _line(name: str, strikes: Sequence[Strike], outcome: Outcome, *, limit: str) -> str:
    jobs = {job for strike in strikes for job in strike.jobs}
    times_s = [s.recovered_after_s for s in strikes if s.recovered_after_s is not None]
    serving_s = [s.serves_after_s for s in strikes if s.serves_after_s is not None]
    cells = [
        name,
        len(strikes),
        sum(bool(strike.jobs) for strike in strikes),
        len(jobs),
        len(jobs & outcome.lost_jobs),
        len(jobs & outcome.doubled_jobs),
        sum(strike.is_stuck for strike in strikes),
        _seconds(times_s, 0.5),
        _seconds(times_s, 0.95),
        _seconds(times_s, 1.0),
        limit,
        _seconds(serving_s, 0.95),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _seconds(times_s: Sequence[float], share: float) -> str:
    if not times_s:
        return "-"
    if len(times_s) == 1 or share == 1.0:
        return f"{max(times_s):.1f} s"
    cuts = statistics.quantiles(times_s, n=100, method="inclusive")
    return f"{cuts[round(share * 100) - 1]:.1f} s"


def write(page: Path, outcome: Outcome, *, command: str, at: dt.datetime, took_s: float) -> None:
    """Replace what is between the page's markers."""
    machine = "; ".join(f"{what} {which}" for what, which in describe_machine())
    late = slow(outcome)
    lines = [
        f"`{command}` on {at:%Y-%m-%d}: {len(outcome.strikes)} faults, {outcome.job_count} jobs,"
        f" {AGENT_COUNT} agents, a lease of {LEASE_S:g} s and a heartbeat each {HEARTBEAT_S:g} s,"
        f" in {took_s / 60:.0f} min. Promises broken: {len(outcome.broken)}."
        f" Recoveries beyond their limit: {len(late)}.",
        "",
        f"Machine: {machine}",
        "",
        *table(outcome),
    ]
    TABLE.write(page, lines)
