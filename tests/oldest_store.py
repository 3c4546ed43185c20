"""A store as the first version wrote it: every table has rows, and nothing newer is in them.

Written for the first migration alone, and never changed with later ones.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import sqlalchemy as sa

FIRST_REVISION = "0001"
_AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
_LATER = _AT + dt.timedelta(minutes=5)
_NETWORK = {"one_way_delay_s": 0.01, "jitter_s": 0.0, "packet_loss_ratio": 0.0}
_SPEC: dict[str, Any] = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": 2,
    "global_batch_size": 32,
    "steps": 10,
    "epochs": None,
    "warmup_steps": 2,
    "seed": 0,
    "repetition": 0,
    "training_pass": "forward_backward",
    "network": _NETWORK,
}
_HARDWARE = {
    "cpu_model": "A CPU",
    "core_count": 1,
    "memory_bytes": 2**33,
    "kernel": "6.1.0",
    "tensorflow_version": "2.16.1",
    "python_version": "3.11.7",
    "benchfarm_version": "0.1.0",
}
_FACTS = {
    "machine_id": "machine-1",
    "address": "127.0.0.1",
    "interface": "lo",
    "first_port": 30000,
    "last_port": 30099,
    "cpus": [0],
    "labels": {"zone": "a"},
    "capabilities": ["network"],
    "hardware": _HARDWARE,
}


def _job(job_id: int, state: str, **changes: Any) -> dict[str, Any]:
    columns = {
        "id": job_id,
        "sweep_id": 1,
        "spec": _SPEC,
        "cell_hash": "c" * 64,
        "model": "mlp",
        "dataset": "digits",
        "strategy": "mwms_ring",
        "world_size": 2,
        "global_batch_size": 32,
        "repetition": job_id,
        "priority": 0,
        "state": state,
        "attempt_id": None,
        "attempt_count": 0,
        "due_at": _AT,
        "cancel_requested": False,
        "failure_kind": None,
        "reason": None,
        "created_at": _AT,
        "finished_at": None,
    }
    return {**columns, **changes}


def _attempt(token: int, job_id: int, state: str, **changes: Any) -> dict[str, Any]:
    columns = {
        "id": token,
        "job_id": job_id,
        "number": 1,
        "state": state,
        "state_since": _AT,
        "leased_at": _AT,
        "started_at": None,
        "ended_at": None,
        "failure_kind": None,
        "reason": None,
    }
    return {**columns, **changes}


def _agent(agent_id: str, **changes: Any) -> dict[str, Any]:
    columns = {
        "id": agent_id,
        "boot_id": f"boot of {agent_id}",
        "beat_counter": 7,
        "state": "idle",
        "heartbeat_at": _AT,
        "first_seen_at": _AT,
        "clock_offset_s": 0.25,
        "machine_id": "machine-1",
        "facts": _FACTS,
        "fingerprint": "f" * 64,
        "is_drained": False,
        "attempt_id": None,
        "lease_expires_at": None,
        "lease_boot_id": None,
        "unclean_token": None,
        "stop_sent_at": None,
    }
    return {**columns, **changes}


def _rank(token: int, rank: int, agent_id: str, phase: str) -> dict[str, Any]:
    return {
        "attempt_id": token,
        "rank": rank,
        "agent_id": agent_id,
        "phase": phase,
        "hardware": _HARDWARE,
    }


_ROWS: dict[str, list[dict[str, Any]]] = {
    "sweeps": [
        {"id": 1, "name": "old", "spec": {"name": "old"}, "skipped": ["x"], "created_at": _AT}
    ],
    "jobs": [
        _job(1, "waiting", spec={**_SPEC, "network": None}),
        _job(2, "running", attempt_id=2, attempt_count=1),
        _job(3, "succeeded", attempt_count=1, finished_at=_LATER),
        _job(4, "failed", attempt_count=1, failure_kind="out_of_memory", finished_at=_LATER),
        _job(5, "cancelled", cancel_requested=True, finished_at=_LATER),
    ],
    "agents": [
        _agent("a1", state="busy", attempt_id=2, lease_expires_at=_LATER, lease_boot_id="b"),
        _agent("a2", unclean_token=4, stop_sent_at=_AT),
    ],
    "attempts": [
        _attempt(2, 2, "running", started_at=_AT),
        _attempt(3, 3, "succeeded", started_at=_AT, ended_at=_LATER),
        _attempt(
            4, 4, "failed", ended_at=_LATER, failure_kind="out_of_memory", reason="the kernel"
        ),
    ],
    "ranks": [
        _rank(2, 0, "a1", "started"),
        _rank(3, 0, "a1", "ended"),
        _rank(3, 1, "a2", "ended"),
    ],
    "job_events": [
        {"id": 1, "job_id": 2, "attempt_id": 2, "at": _AT, "event": "job: leased"},
        {"id": 2, "job_id": 5, "at": _LATER, "event": "job: cancelled", "reason": "by somebody"},
    ],
    "samples": [
        {
            "day": _AT.date(),
            "attempt_id": 3,
            "rank": rank,
            "tick": tick,
            "cpu_ratio": 0.5,
            "memory_used_bytes": 2**34,
            "extra": {"gpu0_ratio": 0.25} if tick else None,
        }
        for rank in range(2)
        for tick in range(3)
    ],
    "step_chunks": [
        {
            "attempt_id": 3,
            "rank": 0,
            "first_step": 0,
            "kind": "timed",
            "begun_s": 0.5,
            "step_count": 1,
            "median_s": 0.1,
            "p95_s": 0.2,
            "times": b"\x00\x01",
        }
    ],
    "epochs": [
        {"attempt_id": 3, "rank": 0, "epoch": 0, "train_s": 1.5, "step_count": 10, "val_loss": 0.5}
    ],
    "measurements": [
        {
            "id": 1,
            "origin": "farm",
            "source_key": "job 3",
            "job_id": 3,
            "attempt_id": 3,
            "created_at": _LATER,
            "status": "ok",
            "model": "mlp",
            "dataset": "digits",
            "training_pass": "forward_backward",
            "strategy": "mwms_ring",
            "world_size": 2,
            "server_count": 0,
            "global_batch_size": 32,
            "one_way_delay_s": 0.01,
            "packet_loss_ratio": 0.0,
            "jitter_s": 0.0,
            "repetition": 0,
            "fingerprint": "f" * 64,
            "step_time_s": 0.1,
            "details": {"why": "not"},
        }
    ],
    "spool_positions": [
        {"agent_id": "a1", "generation": "g", "confirmed_number": 41, "updated_at": _AT}
    ],
    "late_reports": [
        {
            "id": 1,
            "agent_id": "a2",
            "generation": "g",
            "number": 5,
            "token": 1,
            "rank": 0,
            "kind": "ended",
            "body": {"result": None},
            "received_at": _AT,
            "reason": "attempt 1 is over",
        }
    ],
}


def fill(connection: sa.Connection) -> None:
    """Write the rows into a store that has the first schema."""
    for name, rows in _ROWS.items():
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        for row in rows:
            connection.execute(table.insert().values(**_typed(row, connection)))


def contents(connection: sa.Connection) -> dict[str, list[dict[str, Any]]]:
    """Read of every table what the first version knew of it, in the order of its keys."""
    found = {}
    for name, rows in _ROWS.items():
        known = list(rows[0] if len(rows) == 1 else {key: None for row in rows for key in row})
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        columns = [table.c[column] for column in known]
        keys = [column for column in table.primary_key.columns if column.name in known]
        read = connection.execute(sa.select(*columns).order_by(*keys)).mappings()
        found[name] = [{key: _plain(value) for key, value in row.items()} for row in read]
    return found


def _typed(row: dict[str, Any], connection: sa.Connection) -> dict[str, Any]:
    """Write instants as the columns of each kind of database hold them."""
    if connection.dialect.name == "postgresql":
        return row
    return {
        key: value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
        for key, value in row.items()
    }


def _plain(value: Any) -> Any:
    """Return what may be compared: SQLite reflects JSON as text, and booleans as numbers."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    return value
