"""Submits jobs to a simulated fleet: a long queue, and single jobs to time dispatch."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from benchmarks.fleet.machine import backlog_role
from benchmarks.fleet.running import FleetProcesses
from benchmarks.fleet.server import FleetServer
from farm.broker.wake_up import WakeReason
from farm.errors import FarmError
from farm.gang.lifecycle import JobState
from farm.store.engine import reading, writing
from farm.store.tables import AttemptRow, JobRow
from farm.submission import plan, submit

BULK, PROBE = "bulk", "probe"
WIDTHS = (1, 2, 4, 8)
_CASE = {"model": "mlp", "dataset": "digits", "warmup_steps": 5}
_BATCH_SIZES = tuple(32 * (1 + i) for i in range(10))
_PROBE_EVERY_S = 0.7
_PROBE_LASTS_S = 8.0  # its agent is not free for another before
_DISPATCH_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """A probe: its job, and the Unix time just before its transaction began."""

    sweep_id: int
    submitted_s: float


def submit_queue(server: FleetServer, *, job_count: int, steps: tuple[int, ...]) -> int:
    """Submit `job_count` jobs, as many of each width and length; return the sweep's id."""
    cell_count = len(WIDTHS) * len(_BATCH_SIZES) * len(steps)
    cases = [
        {
            **_CASE,
            "strategy": "single" if width == 1 else "mwms_ring",
            "world_size": width,
            "global_batch_size": list(_BATCH_SIZES),
            "steps": count,
            "labels": {"role": BULK},
        }
        for count in steps
        for width in WIDTHS
    ]
    sweep = {"name": "queue", "repetitions": -(-job_count // cell_count), "case": cases}
    return _submit(server, sweep)


def submit_backlog(server: FleetServer, *, agent_count: int, backlog_s: int) -> int:
    """Submit a job for each agent of a role of its own, which has so much to report at once."""
    case = {
        **_CASE,
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 32,
        "steps": 10_000,
        "labels": {"role": backlog_role(backlog_s)},
    }
    return _submit(server, {"name": "backlog", "repetitions": agent_count, "case": [case]})


def probe_count_of(agent_count: int) -> int:
    """Return how many agents are kept free for probes."""
    return max(min(4, agent_count // 2), agent_count // 20)


def probe_until(
    server: FleetServer, fleet: FleetProcesses, until_s: float, *, probe_agents: int
) -> list[Dispatched]:
    """Submit single jobs for agents that wait for them, no more than are free, until then."""
    probes = []
    every_s = max(_PROBE_EVERY_S, _PROBE_LASTS_S / probe_agents)
    while time.time() < until_s:
        fleet.check()
        submitted_s = time.time()
        case = {
            **_CASE,
            "strategy": "single",
            "world_size": 1,
            "global_batch_size": 32,
            "steps": 2,
            "labels": {"role": PROBE},
        }
        sweep_id = _submit(server, {"name": "probe", "priority": 1, "case": [case]})
        probes.append(Dispatched(sweep_id=sweep_id, submitted_s=submitted_s))
        time.sleep(max(0.0, submitted_s + every_s - time.time()))
    return probes


def dispatch_times_s(
    server: FleetServer, fleet: FleetProcesses, probes: list[Dispatched]
) -> tuple[list[float], int]:
    """Return the seconds from submitting each probe to its agent's receipt, and how many had none.

    The last ones are waited for: without those that took long the others would look quick.
    """
    deadline = time.monotonic() + _DISPATCH_LIMIT_S
    while True:
        received_s = _received_s(server, fleet, probes)
        if len(received_s) == len(probes) or time.monotonic() > deadline:
            return received_s, len(probes) - len(received_s)
        time.sleep(0.5)


def _received_s(
    server: FleetServer, fleet: FleetProcesses, probes: list[Dispatched]
) -> list[float]:
    started = {
        token: at for line in list(fleet.lines) for token, rank, at in line["starts"] if rank == 0
    }
    query = (
        sa.select(JobRow.sweep_id, sa.func.min(AttemptRow.id))
        .join(AttemptRow, AttemptRow.job_id == JobRow.id)
        .where(JobRow.sweep_id.in_([probe.sweep_id for probe in probes]))
        .group_by(JobRow.sweep_id)
    )
    with reading(server.engine) as session:
        tokens = {sweep_id: token for sweep_id, token in session.execute(query)}
    return [
        started[tokens[probe.sweep_id]] - probe.submitted_s
        for probe in probes
        if tokens.get(probe.sweep_id) in started
    ]


def job_counts(server: FleetServer) -> dict[JobState, int]:
    """Return how many jobs are in each state."""
    query = sa.select(JobRow.state, sa.func.count()).group_by(JobRow.state)
    with reading(server.engine) as session:
        return {state: count for state, count in session.execute(query)}


def wait_for(
    condition: Callable[[], bool], what: str, *, within_s: float, fleet: FleetProcesses
) -> None:
    """Raises FarmError: it did not come in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        fleet.check()
        if time.monotonic() > deadline:
            raise FarmError(f"not within {within_s:g} s: {what}")
        time.sleep(0.1)


def _submit(server: FleetServer, sweep: dict[str, object]) -> int:
    planned = plan(sweep)
    with writing(server.engine) as session:
        submitted = submit(session, planned, now=dt.datetime.now(dt.UTC))
    server.wake.send(WakeReason.REQUESTED)
    return submitted.sweep_id
