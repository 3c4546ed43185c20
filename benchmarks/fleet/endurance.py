"""Runs a large farm for minutes: memory must not grow, a backlog not delay other agents."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import sqlalchemy as sa

from benchmarks.figures import BenchmarkFigure, say
from benchmarks.fleet.load import (
    PROBE,
    job_counts,
    probe_count_of,
    probe_until,
    submit_backlog,
    submit_queue,
    wait_for,
)
from benchmarks.fleet.machine import backlog_role
from benchmarks.fleet.running import running_fleet
from benchmarks.fleet.server import FleetServer, ServerReading, fleet_server
from benchmarks.fleet.times import quantile
from benchmarks.server.ingest import postgres_database
from farm.gang.lifecycle import JobState
from farm.store.engine import reading
from farm.store.result_tables import SampleRow
from farm.store.tables import AttemptRow, JobRow

ENDURANCE_JOB_COUNT = 5000
BACKLOG_S = 3600
_SETTLE_S, _BEFORE_S = 40.0, 30.0
_STEPS = (100, 300, 500)
_DRAIN_LIMIT_S = 900.0
_MOST_LAG_S = 5.0
_OTHERS_PROCESSES = 3
_FEW = 100  # messages that wait are no queue, whatever waited before


def endurance_figures(folder: Path, *, agent_count: int, minutes: int) -> list[BenchmarkFigure]:
    """Hold a farm for some minutes and compare the last third with the first."""
    with ExitStack() as stack:
        server = stack.enter_context(
            fleet_server(folder, stack.enter_context(postgres_database()), collectors=2)
        )
        submit_queue(server, job_count=ENDURANCE_JOB_COUNT, steps=_STEPS)
        probes = probe_count_of(agent_count)
        roles = {PROBE: probes}
        fleet = stack.enter_context(running_fleet(server, count=agent_count, roles=roles))
        time.sleep(_SETTLE_S)
        since_s = time.time()
        say(f"{agent_count} agents for {minutes} min")
        probe_until(server, fleet, since_s + 60.0 * minutes, probe_agents=probes)
        until_s = time.time()
        third_s = (until_s - since_s) / 3
        first, last = (since_s, since_s + third_s), (until_s - third_s, until_s)
        done = job_counts(server).get(JobState.SUCCEEDED, 0)
        lags = [fleet.all_of("lags_s", *span) for span in (first, last)]
        looks = [server.between(*span) for span in (first, last)]
    note = f"{done} jobs of {ENDURANCE_JOB_COUNT} and the probes had succeeded"
    of_memory: list[tuple[str, Callable[[ServerReading], float]]] = [
        ("Redis", lambda r: r.redis_bytes),
        ("the collectors", lambda r: r.memory_bytes["collector"]),
        ("the scheduler", lambda r: r.memory_bytes["scheduler"]),
    ]
    waiting = [_mean(lambda r: r.reports_waiting + r.heartbeats_waiting, look) for look in looks]
    found = [_held("messages waiting, mean", "messages", waiting, most=max(1.5 * waiting[0], _FEW))]
    for name, of in of_memory:
        values = [_mean(of, look) for look in looks]
        found.append(_held(f"memory of {name}, mean", "bytes", values, most=1.1 * values[0]))
    lag_s = [quantile(part, 0.99) for part in lags]
    return [*found, _held("report lag, p99", "s", lag_s, most=_MOST_LAG_S, note=note)]


def _mean(of: Callable[[ServerReading], float], readings: Sequence[ServerReading]) -> float:
    return statistics.fmean(of(r) for r in readings)


def _held(
    name: str, unit: str, values: Sequence[float], *, most: float, note: str = ""
) -> BenchmarkFigure:
    return BenchmarkFigure(
        name=f"{name}, last third",
        unit=unit,
        ours=values[1],
        baseline=values[0],
        against="first third",
        limit=f"at most {most:.3g} {unit}",
        reached=values[1] <= most,
        note=note,
    )


def backlog_figures(folder: Path, *, agent_count: int, is_quick: bool) -> list[BenchmarkFigure]:
    """Let a tenth of the agents come with an hour of samples, and watch the others' new ones."""
    returning = max(1, agent_count // 10)
    backlog_s = BACKLOG_S // 10 if is_quick else BACKLOG_S
    expected = returning * backlog_s
    with ExitStack() as stack:
        server = stack.enter_context(
            fleet_server(folder, stack.enter_context(postgres_database()), collectors=2)
        )
        submit_queue(server, job_count=10 * agent_count, steps=(500,))
        others = agent_count - returning
        fleet = stack.enter_context(
            running_fleet(server, count=others, roles={}, process_count=_OTHERS_PROCESSES)
        )
        # In a process of its own: what keeps it from reporting is nothing to the others.
        roles = {backlog_role(backlog_s): returning}
        back = running_fleet(server, count=returning, roles=roles, first=others, process_count=1)
        stack.enter_context(back)
        time.sleep(_SETTLE_S)
        before_s = time.time()
        time.sleep(_BEFORE_S)
        since_s = time.time()
        sweep_id = submit_backlog(server, agent_count=returning, backlog_s=backlog_s)
        say(f"{returning} agents with {backlog_s} s each, {agent_count} in all")
        stored = lambda: _stored_rows(server, sweep_id) >= expected  # noqa: E731
        wait_for(stored, "the whole backlog", within_s=_DRAIN_LIMIT_S, fleet=fleet)
        until_s = time.time()
        lags = [fleet.all_of("lags_s", *span) for span in ((before_s, since_s), (since_s, until_s))]
        most = max(r.redis_bytes for r in server.between(since_s, until_s))
        least = min(r.redis_bytes for r in server.between(before_s, since_s))
        waiting = max(r.reports_waiting for r in server.between(since_s, until_s))
    took_s = until_s - since_s
    new_s = [quantile(part, 0.99) for part in lags]
    return [
        BenchmarkFigure(
            name="backlog taken in",
            unit="rows/s",
            ours=expected / took_s,
            baseline=float(others),
            against="samples that the others make",
            note=f"{expected:,} rows in {took_s:.0f} s, with the start of their jobs",
        ),
        dataclasses.replace(
            _held_during("new reports' lag, p99", "s", new_s),
            limit=f"at most {_MOST_LAG_S:g} s",
            reached=new_s[1] <= _MOST_LAG_S,
        ),
        _held_during("new reports' lag, p50", "s", [quantile(part, 0.5) for part in lags]),
        _held_during("memory of Redis, most", "bytes", [least, most], f"{waiting} reports waited"),
    ]


def _held_during(name: str, unit: str, values: Sequence[float], note: str = "") -> BenchmarkFigure:
    return BenchmarkFigure(
        name=f"{name}, during a backlog",
        unit=unit,
        ours=values[1],
        baseline=values[0],
        against="before it",
        note=note,
    )


def _stored_rows(server: FleetServer, sweep_id: int) -> int:
    query = (
        sa.select(sa.func.count())
        .select_from(SampleRow)
        .join(AttemptRow, AttemptRow.id == SampleRow.attempt_id)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(JobRow.sweep_id == sweep_id)
    )
    with reading(server.engine) as session:
        return session.scalar(query) or 0
