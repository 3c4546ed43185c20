"""Checks the server: its processes, its database and its TLS certificates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.diagnosis.finding import Finding, doubt, list_names, well, wrong
from farm.messages.agents import CLOCK_TOLERANCE_S
from farm.text.display import byte_count, duration
from farm.text.plurals import counted

# The scheduler does a round each second; one that takes longer than this hangs. So does a
# collector that takes nothing for so long of what waits for it.
IDLE_LIMIT_S = 30.0
_START = (
    "start it: `systemctl start farm-{0}` or `farm run {0}`; if it seems to run, look at its log, "
    "since it renews no health record"
)
_STEP_SHOWN_S = 3600.0
_MANY_BEATS = 50
# One of five agents beats each second, and where they are many their queues wait for so long.
_BEATS_OF_AN_AGENT = 0.2
_MANY_REPORTS = 200
SLOW_S = 0.5  # of a small question
# deploy/install.sh renews them within their last year: with a run now and then, none is found.
SOON = dt.timedelta(days=45)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process of the server, from its record in `farm.broker.health_records`."""

    name: str
    benchfarm_version: str
    silent_s: float  # since it renewed its record
    worked_s: float | None  # since it did its work; None: never yet
    up_s: float
    trouble: str | None
    clock_offset_s: float | None  # its clock minus the broker's
    clock_step_s: float | None = None  # by how much its clock was set last, negative for back
    clock_step_ago_s: float | None = None


def judge_scheduler(found: Sequence[ProcessState], *, version: str) -> list[Finding]:
    """Judge the schedulers. `version`: of the benchfarm that asks."""
    if not found:
        return [
            wrong(
                "no scheduler runs: nothing starts, and gangs that are lost are not given up",
                _START.format("scheduler"),
            )
        ]
    return _running(found, "scheduler", version=version) + [
        wrong(
            f"{one.name} has finished no round for {duration(since_s)}",
            "look at its log; a transaction that another program holds open may block it",
        )
        for one in found
        if one.trouble is None and (since_s := _idle_s(one)) > IDLE_LIMIT_S
    ]


def judge_collector(
    found: Sequence[ProcessState],
    *,
    beat_count: int,
    report_count: int,
    of_agents: Mapping[str, int],
    agent_count: int = 0,
    version: str,
) -> list[Finding]:
    """Judge the collectors by their records and by what waits for them in the broker.

    `of_agents`: how many of these messages wait in queues of an agent's own. `agent_count`: how
    many agents have such queues.
    """
    batches = counted(report_count, "batch", "batches")
    queues = f"{counted(beat_count, 'heartbeat')} and {batches} of reports"
    many_beats = max(_MANY_BEATS, _BEATS_OF_AN_AGENT * agent_count)
    is_large = beat_count > many_beats or report_count > _MANY_REPORTS
    largest = _largest(of_agents, beat_count + report_count) if is_large else []
    if not found:
        return [
            wrong(
                f"no collector runs: {queues} wait for it, and agents lose their ranks",
                _START.format("collector"),
            ),
            *largest,
        ]
    judged = _running(found, "collector", version=version)
    if beat_count + report_count:
        judged += [
            wrong(
                f"{one.name} has stored nothing for {duration(_idle_s(one))}, although {queues} "
                "wait",
                "look at its log and restart it; if every heartbeat is stale, compare its clock "
                "with the other collectors'",
            )
            for one in idle_collectors(found)
        ]
    if is_large:
        judged.append(
            doubt(
                f"it is behind: {queues} wait for it",
                "look whether that becomes less; if not, start a second collector, or look why the "
                "database is slow",
            )
        )
    return judged + largest


def _largest(of_agents: Mapping[str, int], total: int) -> list[Finding]:
    """Name the agent that most of a backlog is from, if there is one."""
    return [
        doubt(
            f"most of what waits is from {agent_id}: {counted(count, 'message')}",
            "an agent that returns after an outage has some for a while; if it has always so many, "
            f"look what runs there, or `farm agent remove {agent_id}`",
        )
        for agent_id, count in of_agents.items()
        if 2 * count > total
    ]


def idle_collectors(found: Sequence[ProcessState]) -> list[ProcessState]:
    """Return collectors that have stored nothing for long, without a known reason."""
    return [p for p in found if p.trouble is None and _idle_s(p) > IDLE_LIMIT_S]


def judge_server_clocks(found: Sequence[ProcessState]) -> list[Finding]:
    """Compare the clocks of scheduler and collector, and report clocks that were set.

    One gives leases, the other renews and judges them.
    """
    judged = [
        doubt(
            f"the clock of {p.name} was set {'back' if step_s < 0 else 'forward'} by "
            f"{duration(abs(step_s))}, {duration(ago_s)} ago; leases and pauses were corrected",
            "look why; where a time server is always followed (chrony, systemd-timesyncd) there "
            "are no such steps",
        )
        for p in found
        if (step_s := p.clock_step_s) is not None
        and (ago_s := p.clock_step_ago_s) is not None
        and ago_s < _STEP_SHOWN_S
    ]
    offsets = [(p.clock_offset_s, p.name) for p in found if p.clock_offset_s is not None]
    if not offsets:
        return judged
    (low_s, early), (high_s, late) = min(offsets), max(offsets)
    if high_s - low_s <= CLOCK_TOLERANCE_S:
        return judged
    return [
        *judged,
        wrong(
            f"the clocks of {late} and {early} are {duration(high_s - low_s)} apart, so leases end "
            "early or late",
            "let both machines follow the same time server (chrony, systemd-timesyncd)",
        ),
    ]


def _running(found: Sequence[ProcessState], what: str, *, version: str) -> list[Finding]:
    oldest_s = max(one.up_s for one in found)
    count = f"a {what} runs" if len(found) == 1 else f"{counted(len(found), what)} run"
    judged = [well(f"{count}, since {duration(oldest_s)}")]
    judged += [
        wrong(
            f"{one.name} cannot do its work: {one.trouble}",
            "repair that; it continues by itself",
        )
        for one in found
        if one.trouble is not None
    ]
    others = [f"{one.name}: {one.benchfarm_version}" for one in found]
    differing = [text for text in others if not text.endswith(f": {version}")]
    if differing:
        judged.append(
            doubt(
                f"it is of another version than this command, which is {version} "
                f"({list_names(differing)})",
                "restart it after an upgrade",
            )
        )
    return judged


def _idle_s(one: ProcessState) -> float:
    return one.silent_s + (one.up_s if one.worked_s is None else one.worked_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The state of a database with our schema; `write_error`: why nothing can be written.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateState:
    """`whose`, such as "the broker's". `is_authority`: what it certified has to follow it."""

    whose: str
    expires_at: dt.datetime
    is_authority: bool = False


def judge_certificates(
    certificates: Sequence[CertificateState], *, now: dt.datetime
) -> list[Finding]:
    """Name each that has expired, or soon will."""
    if not certificates:
        return [well("no TLS of the farm's own: nothing here needs a certificate")]
    found = [_expiry_finding(one, now=now) for one in certificates if one.expires_at - now < SOON]
    first = min(certificates, key=lambda one: one.expires_at)
    return found or [well(f"the first to expire is {first.whose}, on {first.expires_at:%Y-%m-%d}")]


def _expiry_finding(one: CertificateState, *, now: dt.datetime) -> Finding:
    remedy = (
        "replace it on the server, and then at every agent (docs/security.md)"
        if one.is_authority
        else "renew it; run `deploy/install.sh server` again if that made it"
    )
    day = f"{one.expires_at:%Y-%m-%d}"
    if one.expires_at <= now:
        return wrong(
            f"{one.whose} certificate expired on {day}: peers that verify it refuse to connect",
            remedy,
        )
    return doubt(f"{one.whose} certificate expires on {day}", remedy)
