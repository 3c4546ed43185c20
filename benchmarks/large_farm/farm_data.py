"""Fills a store with a made-up farm: agents, a sweep nearly done, and a day-long job.

Rows are as the farm itself writes them: sweeps are expanded and stored by its own code, reports are
the JSON of their classes, and every job has its story. Samples come from `farm_series`.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.large_farm.farm_attempts import (
    JOB_STATES,
    SETUP_S,
    Attempts,
    TrainedAttempt,
    agent_name,
)
from benchmarks.large_farm.farm_reports import facts_of, measured
from benchmarks.large_farm.farm_series import write_logs
from benchmarks.large_farm.farm_size import Size
from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, JobState
from farm.importers import IMPORTERS
from farm.importers.contracts import read_publication
from farm.importing import import_reading, of_publication
from farm.messages.agents import AgentState
from farm.messages.trainer_lines import FailureKind
from farm.store.result_tables import MeasurementRow
from farm.store.sweeps.sweeps import insert_sweep
from farm.store.tables import AgentRow, JobRow
from farm.submission import plan
from farm.values.codec import to_json

LONG_WORLD_SIZE = 8
_LEASE = dt.timedelta(hours=1)
_SINCE = dt.timedelta(minutes=4)  # that the active jobs have run
_LOST_EVERY, _FAILED_EVERY, _CANCELLED_EVERY = 20, 50, 97  # jobs
_MODELS, _DATASETS = ["mlp", "shallow_cnn", "small_cnn"], ["mnist", "cifar10"]
_DELAYS_MS = [0, 1, 2, 5, 10, 20, 40, 60, 80, 100]
_AGAIN_S = 30  # that its jobs have trained

_Jobs = Sequence[tuple[int, JobSpec]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What is in the store. `again_id`: of a smaller sweep to compare the large one with.

    `runs`: attempts to have samples; `long_run`: that of a day.
    """

    sweep_id: int
    again_id: int
    long_job_id: int
    measured_job_id: int
    failed_job_id: int
    waiting_job_id: int
    runs: Sequence[TrainedAttempt]
    long_run: TrainedAttempt


def fill(session: Session, size: Size, *, now: dt.datetime) -> Filled:
    """Write everything but series. `now` is when the farm is looked at.

    The store is empty; the caller owns the transaction.
    """
    attempts = Attempts(agent_count=size.agent_count)
    _add_agents(session, size, now=now)
    begun_at = now - dt.timedelta(seconds=size.long_job_s + SETUP_S)
    _, [long_job] = _insert(session, "a day on eight machines", [_long_spec()], at=begun_at)
    [long_run] = _start(session, [long_job], attempts, first_agent=0, leased_at=begun_at, now=now)
    content = _sweep_file(size)
    specs = plan(content).expansion.jobs[: size.job_count]
    since = now - dt.timedelta(days=size.day_count)
    sweep_id, jobs = _insert(session, "a large sweep", specs, at=since, content=content)
    assert len(jobs) == size.job_count, f"the axes make {len(jobs)} jobs alone"
    done, rest = jobs[: size.done_count], jobs[size.done_count :]
    runs = _finish(session, done, attempts, size=size, duration_s=_duration_s(done, size), now=now)
    again_id, again = _insert(session, "some of it again", specs[: size.again_count], at=since)
    runs += _finish(session, again, attempts, size=size, duration_s=_AGAIN_S, now=now)
    runs += _start(
        session,
        rest[: size.active_count],
        attempts,
        first_agent=LONG_WORLD_SIZE,
        leased_at=now - _SINCE,
        now=now,
    )
    attempts.write(session)
    write_logs(session, long_run)
    for publication in IMPORTERS:
        source = of_publication(publication)
        import_reading(session, read_publication(publication), source, now=now)
    return Filled(
        sweep_id=sweep_id,
        again_id=again_id,
        long_job_id=long_job[0],
        measured_job_id=done[0][0],
        failed_job_id=done[_FAILED_EVERY - 1][0],
        waiting_job_id=jobs[-1][0],
        runs=runs,
        long_run=long_run,
    )


def _sweep_file(size: Size) -> dict[str, object]:
    """Return the sweep: gangs over networks, and single machines to compare them with."""
    of_both = {"model": _MODELS, "dataset": _DATASETS, "steps": 500}
    gangs = {
        "strategy": "mwms_ring",
        "world_size": [2, 3, 4, 8],
        "global_batch_size": [64, 128, 256, 512, 1024],
        "one_way_delay_ms": _DELAYS_MS[: size.delay_count],
        "bandwidth_mbit_per_s": [100, 1000],
    }
    single = {
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": [64 * n for n in range(1, 18)],
    }
    cases = [{**of_both, **gangs}, {**of_both, **single}]
    return {"name": "a large sweep", "repetitions": 2, "case": cases}


def _long_spec() -> JobSpec:
    return JobSpec(
        model="small_cnn",
        dataset="cifar10",
        strategy="mwms_ring",
        world_size=LONG_WORLD_SIZE,
        global_batch_size=512,
        epochs=2000,
    )


def _add_agents(session: Session, size: Size, *, now: dt.datetime) -> None:
    rng = random.Random(1)
    rows = []
    for number in range(size.agent_count):
        facts = facts_of(number)
        rows.append(
            {
                "id": agent_name(number),
                "boot_id": f"boot-{number}",
                "beat_counter": 1,
                "state": AgentState.IDLE,
                "heartbeat_at": now,
                "first_seen_at": now - dt.timedelta(days=size.day_count),
                "clock_offset_s": rng.gauss(0.0, 0.01),
                "machine_id": facts.machine_id,
                "facts": to_json(facts),
                "fingerprint": facts.hardware.fingerprint,
                "is_drained": False,
            }
        )
    session.execute(sa.insert(AgentRow), rows)


def _insert(
    session: Session,
    name: str,
    specs: Sequence[JobSpec],
    *,
    at: dt.datetime,
    content: dict[str, object] | None = None,
) -> tuple[int, _Jobs]:
    spec = content or {"name": name}
    sweep_id = insert_sweep(
        session, name=name, spec=spec, jobs=specs, skipped=[], priority=0, now=at
    )
    ids = session.scalars(
        sa.select(JobRow.id).where(JobRow.sweep_id == sweep_id).order_by(JobRow.id)
    )
    return sweep_id, list(zip(ids, specs, strict=True))


def _start(
    session: Session,
    jobs: _Jobs,
    attempts: Attempts,
    *,
    first_agent: int,
    leased_at: dt.datetime,
    now: dt.datetime,
) -> list[TrainedAttempt]:
    """Let jobs run on agents from that number on, each on its own."""
    runs = []
    for job_id, spec in jobs:
        runs.append(
            attempts.add(
                job_id,
                spec,
                AttemptState.RUNNING,
                leased_at=leased_at,
                duration_s=int((now - leased_at).total_seconds() - SETUP_S),
                first_agent=first_agent,
            )
        )
        serving = [agent_name(first_agent + rank) for rank in range(spec.world_size)]
        leased = {"attempt_id": runs[-1].token, "lease_expires_at": now + _LEASE}
        changed = session.execute(
            sa.update(AgentRow)
            .where(AgentRow.id.in_(serving))
            .values(state=AgentState.BUSY, **leased)
            .returning(AgentRow.id)
        ).all()
        assert len(changed) == spec.world_size, "more ranks at once than agents"
        first_agent += spec.world_size
    _change(
        session,
        [
            {
                "id": job_id,
                "state": JobState.RUNNING,
                "attempt_count": 1,
                "attempt_id": run.token,
            }
            for (job_id, _), run in zip(jobs, runs, strict=True)
        ],
    )
    return runs


def _finish(
    session: Session,
    jobs: _Jobs,
    attempts: Attempts,
    *,
    size: Size,
    duration_s: int,
    now: dt.datetime,
) -> list[TrainedAttempt]:
    """Let jobs be over, one after another; return the attempts that were measured."""
    rng = random.Random(2)
    runs: list[TrainedAttempt] = []
    changes, measurements = [], []
    since = now - dt.timedelta(days=size.day_count)
    spacing = (now - since - dt.timedelta(seconds=duration_s + SETUP_S)) / len(jobs)
    for n, (job_id, spec) in enumerate(jobs):
        state, at, number = _fate(n), since + n * spacing, 1
        where: dict[str, Any] = {"duration_s": duration_s, "first_agent": n % size.agent_count}
        if n % _LOST_EVERY == _LOST_EVERY - 1:
            before = at - dt.timedelta(hours=1)
            attempts.add(job_id, spec, AttemptState.LOST, leased_at=before, **where)
            number = 2
        run = attempts.add(job_id, spec, state, number=number, leased_at=at, **where)
        has_failed = state is AttemptState.FAILED
        ended_at = at + dt.timedelta(seconds=SETUP_S + duration_s)
        changes.append(
            {
                "id": job_id,
                "state": JOB_STATES[state],
                "attempt_count": number,
                "finished_at": ended_at,
                "failure_kind": FailureKind.OUT_OF_MEMORY.value if has_failed else None,
                "reason": "rank 0 was killed for its memory" if has_failed else None,
            }
        )
        if state is not AttemptState.CANCELLED:
            measurements.append(
                measured(
                    job_id,
                    run.token,
                    spec,
                    agent=where["first_agent"],
                    at=ended_at,
                    has_failed=has_failed,
                    rng=rng,
                )
            )
        if state is AttemptState.SUCCEEDED:
            runs.append(run)
    _change(session, changes)
    session.execute(sa.insert(MeasurementRow), measurements)
    return runs


def _duration_s(jobs: _Jobs, size: Size) -> int:
    """Return how long each trains, so that all together have the samples that are wanted."""
    ranks = sum(s.world_size for n, (_, s) in enumerate(jobs) if _fate(n) is AttemptState.SUCCEEDED)
    return max(10, (size.sample_count - LONG_WORLD_SIZE * size.long_job_s) // ranks)


def _fate(n: int) -> AttemptState:
    if n % _FAILED_EVERY == _FAILED_EVERY - 1:
        return AttemptState.FAILED
    if n % _CANCELLED_EVERY == _CANCELLED_EVERY - 1:
        return AttemptState.CANCELLED
    return AttemptState.SUCCEEDED


def _change(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Set columns of jobs by their ids."""
    session.execute(sa.update(JobRow), rows)
