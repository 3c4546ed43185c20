"""Measures the server's load with 10, 100 and 1,000 agents, and how each figure grows.

Simulated agents, all in at most four processes, speak with a real Redis, two collectors, a
scheduler and a PostgreSQL: a heartbeat every 5 s, a sample a second in batches of three, a report
of step times a second, and everything that a rank says on its way through the rendezvous. Their
heartbeat, delivery, fencing and rank are the real agent's code; what has no machine is the trainer.
Some 10,000 jobs for gangs of 1, 2, 4 and 8 wait all the time, and one agent in twenty, at least
four, is kept free for single jobs, whose dispatch is timed from before their transaction to the
receipt of `start_rank`.

The baseline of every figure is the smallest farm of the same run. How it grows is the exponent of
the number of agents, fitted to all sizes: 0 is not at all, 1 in proportion.

With `--minutes` the largest farm alone is held for so long, and memory, queues and lags of the last
third are compared with those of the first: memory may be a tenth more, the queue half as long
again, the lag 5 s. With `--backlog` agents come back with an hour of samples each, and everybody
else's new reports may then lag by 5 s; the baseline is the lag before.

Processor times stay what they are on a machine where others are at work; lags and times to dispatch
do not.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import BenchmarkFigure, at_least, run_benchmark, say
from benchmarks.fleet.endurance import backlog_figures, endurance_figures
from benchmarks.fleet.load import (
    PROBE,
    dispatch_times_s,
    probe_count_of,
    probe_until,
    submit_queue,
    wait_for,
)
from benchmarks.fleet.running import running_fleet
from benchmarks.fleet.server import FleetServer, fleet_server
from benchmarks.fleet.times import cores, quantile
from benchmarks.server.ingest import postgres_database
from farm.errors import FarmError

SIZES = (10, 100, 1000)
QUICK_SIZES = (6, 12)
JOB_COUNT, QUICK_JOB_COUNT = 10_000, 200
STEPS = (100, 300, 500)  # of 0.1 s each
COLLECTORS = 2
# The 99th percentile of fewer than a hundred dispatches is the longest of them: these are 214.
_SETTLE_S, _MEASURE_S = 40.0, 150.0
_QUICK_SETTLE_S, _QUICK_MEASURE_S = 2.0, 10.0
_BEGIN_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleResult:
    """One size. Times in seconds; `cores`: processor seconds a second, by part of the server."""

    agent_count: int
    decision_s: float  # p99 of the time that deciding computes
    decided_s: float  # p99 of the time that it takes, waiting for a core included
    snapshot_s: float  # p99 of reading agents and jobs
    leading_s: float  # p99 of one turn, as of the next
    placing_s: float
    dispatch_s: list[float]
    lost_probe_count: int
    lag_s: list[float]
    rows_per_s: float
    database_bytes_per_s: float
    cores: dict[str, float]
    fleet_cores: float
    memory_bytes: int
    redis_bytes: int
    most_waiting: int
    repeat_ratio: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agents", type=at_least(2), nargs="+", help="these sizes instead")
    parser.add_argument("--minutes", type=at_least(1), help="hold the largest farm for so long")
    parser.add_argument(
        "--backlog", action="store_true", help="of an hour, from agents that return"
    )


def measure(given: argparse.Namespace) -> list[BenchmarkFigure]:
    """Measure farms of growing sizes, each with a store of its own."""
    sizes = given.agents or (QUICK_SIZES if given.quick else SIZES)
    with tempfile.TemporaryDirectory(prefix="farm-scale-") as name:
        if given.minutes:
            return endurance_figures(Path(name), agent_count=max(sizes), minutes=given.minutes)
        if given.backlog:
            return backlog_figures(Path(name), agent_count=max(sizes), is_quick=given.quick)
        seen = [_look(Path(name) / str(n), n, is_quick=given.quick) for n in sizes]
    return figures_of(seen)


def _look(folder: Path, agent_count: int, *, is_quick: bool) -> ScaleResult:
    say(f"{agent_count} agents")
    settle_s = _QUICK_SETTLE_S if is_quick else _SETTLE_S
    measure_s = _QUICK_MEASURE_S if is_quick else _MEASURE_S
    probes = probe_count_of(agent_count)
    with (
        postgres_database() as url,
        fleet_server(folder, url, collectors=COLLECTORS) as server,
    ):
        submit_queue(server, job_count=QUICK_JOB_COUNT if is_quick else JOB_COUNT, steps=STEPS)
        with running_fleet(server, count=agent_count, roles={PROBE: probes}) as fleet:
            wait_for(
                lambda: any(line["lags_s"] for line in list(fleet.lines)),
                "the first confirmed samples",
                within_s=_BEGIN_LIMIT_S,
                fleet=fleet,
            )
            time.sleep(settle_s)
            since_s = time.time()
            sent = probe_until(server, fleet, since_s + measure_s, probe_agents=probes)
            until_s = time.time()
            dispatched_s, lost_count = dispatch_times_s(server, fleet, sent)
            lines = fleet.between(since_s, until_s)
            lags_s = fleet.all_of("lags_s", since_s, until_s)
        return _seen(
            server,
            agent_count=agent_count,
            span=(since_s, until_s),
            dispatched_s=dispatched_s,
            lost_probe_count=lost_count,
            lags_s=lags_s,
            lines=lines,
        )


def _seen(
    server: FleetServer,
    *,
    agent_count: int,
    span: tuple[float, float],
    dispatched_s: list[float],
    lost_probe_count: int,
    lags_s: list[float],
    lines: list[dict[str, Any]],
) -> ScaleResult:
    advancing = server.turns("advance_once", since_s=span[0], until_s=span[1])
    placing = server.turns("place_once", since_s=span[0], until_s=span[1])
    readings = server.between(*span)
    decisions_s = [t["parts_cpu_s"]["place"] for t in placing if "place" in t["parts_cpu_s"]]
    if not (advancing and decisions_s and lags_s and dispatched_s) or len(readings) < 2:
        raise FarmError(f"{agent_count} agents: nothing came through, see {server.folder}")
    first, last = readings[0], readings[-1]
    took_s = last.at_s - first.at_s

    def part_s(*names: str) -> float:
        return quantile([sum(t["times_s"].get(n, 0.0) for n in names) for t in placing], 0.99)

    return ScaleResult(
        agent_count=agent_count,
        decision_s=quantile(decisions_s, 0.99),
        decided_s=part_s("place"),
        snapshot_s=part_s("live_agents", "_queue"),
        leading_s=quantile([t["turn_s"] for t in advancing], 0.99),
        placing_s=quantile([t["turn_s"] for t in placing], 0.99),
        dispatch_s=dispatched_s,
        lost_probe_count=lost_probe_count,
        lag_s=lags_s,
        rows_per_s=2 * len(lags_s) / took_s,
        database_bytes_per_s=(last.database_bytes - first.database_bytes) / took_s,
        cores={part: (last.cpu_s[part] - first.cpu_s[part]) / took_s for part in last.cpu_s},
        fleet_cores=cores(lines),
        memory_bytes=sum(last.memory_bytes.values()),
        redis_bytes=max(r.redis_bytes for r in readings),
        most_waiting=max(r.reports_waiting + r.heartbeats_waiting for r in readings),
        repeat_ratio=sum(line["repeat_count"] for line in lines)
        / max(1, sum(line["batch_count"] for line in lines)),
    )


def figures_of(seen: Sequence[ScaleResult]) -> list[BenchmarkFigure]:
    """Return a line for each figure: of the largest farm, beside the smallest, and how it grows."""
    lines: list[BenchmarkFigure] = []
    quantities: list[tuple[str, str, Callable[[ScaleResult], float], float | None, str]] = [
        ("decision, CPU time", "s", lambda s: s.decision_s, 0.1, "at most 100 ms"),
        ("decision, with waits for a core", "s", lambda s: s.decided_s, None, ""),
        ("snapshot", "s", lambda s: s.snapshot_s, None, ""),
        ("a turn of placing", "s", lambda s: s.placing_s, None, ""),
        ("a turn of leading", "s", lambda s: s.leading_s, None, ""),
        ("dispatch, p50", "s", lambda s: statistics.median(s.dispatch_s), None, ""),
        ("dispatch, p99", "s", lambda s: quantile(s.dispatch_s, 0.99), 1.0, "at most 1 s"),
        ("report lag, p50", "s", lambda s: statistics.median(s.lag_s), None, ""),
        ("report lag, p99", "s", lambda s: quantile(s.lag_s, 0.99), 5.0, "at most 5 s"),
        ("server's cores", "cores", lambda s: sum(s.cores.values()), None, ""),
        ("server's CPU time an agent", "s", _cpu_an_agent, None, ""),
        ("database growth", "bytes", lambda s: s.database_bytes_per_s * 3600, None, ""),
        ("memory of the server", "bytes", lambda s: s.memory_bytes, None, ""),
        ("memory of Redis", "bytes", lambda s: s.redis_bytes, None, ""),
        ("messages waiting, most", "messages", lambda s: s.most_waiting, None, ""),
    ]
    for name, unit, of, limit, words in quantities:
        values = [of(one) for one in seen]
        exponent = fitted_exponent([s.agent_count for s in seen], values)
        largest, value = seen[-1], values[-1]
        is_held = limit is not None and largest.agent_count >= SIZES[-1]
        lines.append(
            BenchmarkFigure(
                name=f"{name}, {largest.agent_count:,} agents",
                unit=unit,
                ours=value,
                baseline=values[0],
                against=f"{seen[0].agent_count} agents",
                limit=words if is_held else "",
                reached=value <= limit if is_held and limit is not None else None,
                note=_note(name, largest, exponent),
            )
        )
    return lines


def _cpu_an_agent(one: ScaleResult) -> float:
    """Return processor seconds of the server for one agent and second."""
    return sum(one.cores.values()) / one.agent_count


def _note(name: str, one: ScaleResult, exponent: float | None) -> str:
    grows = "" if exponent is None else f"grows with the agents to the power of {exponent:.2f}"
    if name == "server's cores":
        parts = ", ".join(f"{part} {value:.3f}" for part, value in one.cores.items())
        return f"{grows}; {parts}; the simulated agents' own {one.fleet_cores:.2f}"
    if name.startswith("report lag"):
        return (
            f"{grows}; {len(one.lag_s)} reports, {one.rows_per_s:.0f} rows a second, "
            f"{one.repeat_ratio:.1%} of the batches repeated"
        )
    if name.startswith("dispatch"):
        return f"{grows}; {len(one.dispatch_s)} jobs, {one.lost_probe_count} not started by the end"
    return f"{grows}; an hour of it" if name == "database growth" else grows


def fitted_exponent(counts: Sequence[int], values: Sequence[float]) -> float | None:
    """Return b of value = a * count ** b by least squares of the logarithms; None without two."""
    points = [(math.log(n), math.log(v)) for n, v in zip(counts, values, strict=True) if v > 0]
    if len(points) < 2:
        return None
    slope, _ = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return slope


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__, measure, options=add_options))
