"""Checks that scheduler and collector run and do their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.diagnosis.finding import Finding, doubt, named, well, wrong
from farm.messages.agents import CLOCK_TOLERANCE_S
from farm.text.display import duration
from farm.text.nouns import counted

# The scheduler does a round each second; one that takes longer than this hangs. So does a
# collector that takes nothing for so long of what waits for it.
IDLE_LIMIT_S = 30.0
# Leases are given by one clock and judged by the other.
_START = (
    "start it: `systemctl start farm-{0}` or `farm run {0}`; if it seems to run, look at its log, "
    "since it renews no health record"
)
_STEP_SHOWN_S = 3600.0
_MANY_BEATS = 50
# One of five agents beats each second, and where they are many their queues wait for so long.
_BEATS_OF_AN_AGENT = 0.2
_MANY_REPORTS = 200


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
                "look at its log and restart it; where every heartbeat is stale, compare its clock "
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
    """Return those that have stored nothing for long, and do not say why."""
    return [p for p in found if p.trouble is None and _idle_s(p) > IDLE_LIMIT_S]


def judge_server_clocks(found: Sequence[ProcessState]) -> list[Finding]:
    """Compare the clocks of scheduler and collector, and say who noticed that its clock was set.

    One gives leases, the other renews them.
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
    told = [(p.clock_offset_s, p.name) for p in found if p.clock_offset_s is not None]
    if not told:
        return judged
    (low_s, early), (high_s, late) = min(told), max(told)
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
            "mend that; it goes on by itself",
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
                f"({named(differing)})",
                "restart it after an upgrade",
            )
        )
    return judged


def _idle_s(one: ProcessState) -> float:
    return one.silent_s + (one.up_s if one.worked_s is None else one.worked_s)
