"""Rows and values for tests, with defaults that fit together; each test names what it is about."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.spec import TENSORFLOW, JobSpec
from farm.gang.lifecycle import AttemptState, JobState, RankPhase
from farm.messages.agents import AgentFacts, AgentState, Hardware, Heartbeat
from farm.store.reports.late_reports import RefusedReport
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow, SweepRow
from farm.values.codec import to_json

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)

_JOB_STATES = {
    AttemptState.PREPARING: JobState.LEASED,
    AttemptState.MEASURING: JobState.LEASED,
    AttemptState.SHAPING: JobState.LEASED,
    AttemptState.STARTING: JobState.LEASED,
    AttemptState.RUNNING: JobState.RUNNING,
    AttemptState.SUCCEEDED: JobState.SUCCEEDED,
    AttemptState.FAILED: JobState.FAILED,
    AttemptState.LOST: JobState.WAITING,
    AttemptState.VOID: JobState.WAITING,
    AttemptState.CANCELLED: JobState.CANCELLED,
}
_ACTIVE = frozenset({JobState.LEASED, JobState.RUNNING})


def seconds(value: float) -> dt.timedelta:
    return dt.timedelta(seconds=value)


def job_spec(**changes: Any) -> JobSpec:
    """One rank, ten steps of the MLP on digits, unless told otherwise."""
    fields: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 32,
        "steps": 10,
    }
    if changes.get("epochs") is not None:
        fields["steps"] = None
    if changes.get("world_size", 1) > 1:
        fields["strategy"] = "mwms_ring"
    return JobSpec(**{**fields, **changes})


def agent_facts(**changes: Any) -> AgentFacts:
    """Facts of an agent with one core of its own on a machine that several agents may share."""
    fields: dict[str, Any] = {
        "machine_id": "machine-1",
        "address": "127.0.0.1",
        "interface": "lo",
        "first_port": 30000,
        "last_port": 30099,
        "cpus": (0,),
        "capabilities": (TENSORFLOW,),
        "hardware": Hardware(
            cpu_model="A CPU",
            core_count=1,
            memory_bytes=8 * 2**30,
            kernel="6.1.0",
            tensorflow_version="2.21.0",
            python_version="3.11.7",
            benchfarm_version="0.1.0",
        ),
    }
    return AgentFacts(**{**fields, **changes})


def heartbeat(**changes: Any) -> Heartbeat:
    """The first beat of an idle agent `a`."""
    fields: dict[str, Any] = {
        "agent_id": "a",
        "boot_id": "boot of a",
        "counter": 1,
        "state": AgentState.IDLE,
        "serving_token": None,
        "highest_token": 0,
        "agent_time_s": 0.0,
        "echo": None,
        "facts": agent_facts(),
    }
    return Heartbeat(**{**fields, **changes})


def refused_report(number: int, *, agent_id: str = "a") -> RefusedReport:
    """A piece of a log, of an attempt that there is not."""
    return RefusedReport(
        agent_id=agent_id,
        generation="g",
        number=number,
        token=1,
        rank=0,
        kind="log",
        body={},
        reason="there is no attempt 1",
    )


def add_sweep(session: Session, *specs: JobSpec, name: str = "a sweep") -> list[int]:
    """Add a sweep with one waiting job for each spec (one default job without any).

    Returns the ids of the jobs, in the order of the specs.
    """
    sweep = SweepRow(name=name, spec={"name": name}, skipped=[], created_at=NOW)
    session.add(sweep)
    session.flush()
    jobs = [_waiting(sweep.id, spec) for spec in specs or (job_spec(),)]
    session.add_all(jobs)
    session.flush()
    return [job.id for job in jobs]


def add_job(session: Session, spec: JobSpec | None = None, **changes: Any) -> int:
    """Add a waiting job in a sweep of its own; `changes` set columns of the row."""
    [job_id] = add_sweep(session, spec or job_spec())
    job = session.get_one(JobRow, job_id)
    for column, value in changes.items():
        setattr(job, column, value)
    session.flush()
    return job_id


def add_agent(
    session: Session, agent_id: str = "a1", *, facts: AgentFacts | None = None, **changes: Any
) -> str:
    """Add an idle agent that has just sent a fresh heartbeat; `changes` set columns of the row."""
    facts = facts or agent_facts()
    columns: dict[str, Any] = {
        "id": agent_id,
        "boot_id": f"boot of {agent_id}",
        "beat_counter": 1,
        "state": AgentState.IDLE,
        "heartbeat_at": NOW,
        "first_seen_at": NOW,
        "machine_id": facts.machine_id,
        "facts": to_json(facts),
        "fingerprint": facts.hardware.fingerprint,
    }
    session.add(AgentRow(**{**columns, **changes}))
    session.flush()
    return agent_id


def add_attempt(
    session: Session,
    job_id: int,
    agent_ids: Sequence[str] = (),
    *,
    state: AttemptState = AttemptState.PREPARING,
    number: int = 1,
    phase: RankPhase = RankPhase.LEASED,
) -> int:
    """Add an attempt and its ranks, and put job and agents in the state that goes with it.

    Returns the attempt's id, that is its fencing token.
    """
    job = session.get_one(JobRow, job_id)
    attempt = AttemptRow(job_id=job_id, number=number, state=state, state_since=NOW, leased_at=NOW)
    session.add(attempt)
    session.flush()
    job.state, job.attempt_count = _JOB_STATES[state], number
    is_active = job.state in _ACTIVE
    job.attempt_id = attempt.id if is_active else None
    if not is_active:
        attempt.ended_at = NOW
        job.finished_at = None if job.state is JobState.WAITING else NOW
    for rank, agent_id in enumerate(agent_ids):
        agent = session.get_one(AgentRow, agent_id)
        if is_active:
            agent.attempt_id, agent.lease_expires_at = attempt.id, NOW + seconds(20)
        session.add(
            RankRow(
                attempt_id=attempt.id,
                rank=rank,
                agent_id=agent_id,
                phase=phase,
                hardware=agent.facts["hardware"],
            )
        )
    session.flush()
    return attempt.id


def add_measurement(session: Session, source_key: str, **changes: Any) -> int:
    """Add a measurement of the origin `farm` that belongs to no job, unless told otherwise."""
    columns: dict[str, Any] = {
        "origin": "farm",
        "source_key": source_key,
        "created_at": NOW,
        "status": "ok",
        "model": "mlp",
        "dataset": "digits",
        "training_pass": "forward_backward",
        "strategy": "single",
        "world_size": 1,
        "global_batch_size": 32,
        "step_time_s": 0.1,
        "details": {},
    }
    row = MeasurementRow(**{**columns, **changes})
    session.add(row)
    session.flush()
    return row.id


def _waiting(sweep_id: int, spec: JobSpec) -> JobRow:
    return JobRow(
        sweep_id=sweep_id,
        spec=to_json(spec),
        cell_hash=spec.cell_hash,
        model=spec.model,
        dataset=spec.dataset,
        strategy=spec.strategy,
        world_size=spec.world_size,
        agent_count=spec.agent_count,
        requires=sorted(spec.required_capabilities),
        global_batch_size=spec.global_batch_size,
        repetition=spec.repetition,
        state=JobState.WAITING,
        due_at=NOW,
        created_at=NOW,
    )
