"""Whatever numbers a store holds, from before they were refused, every page is shown."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from sqlalchemy import select, update

from farm.messages.agents import AgentFacts
from farm.messages.reports import REPORTS, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.base import Plausible
from farm.store.engine import writing
from farm.store.result_tables import EpochRow, MeasurementRow, SampleRow, StepChunk
from farm.store.tables import AgentRow, RankRow
from tests.message_numbers import example, number_fields, replaced
from tests.stored.stored_series import insert_steps
from tests.web.web_client import Seeded, client_of, seed, without_limits

ABSURD = [1.7e308, -1.7e308, 5e-324, -1.0, 0.0]


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return without_limits(client_of(engine))


def _floats(kind: Any, choose: Callable[[], float]) -> Any:
    """Return a whole message whose floats are chosen, and whose counts are one."""
    message = example(kind)
    for field in number_fields(kind):
        if field.number is float:
            message = replaced(message, field.path, choose())
    return message


def is_reported(column: sa.Column[Any]) -> bool:
    kind = column.type.impl if isinstance(column.type, Plausible) else column.type
    return isinstance(kind, sa.Float) and column.name not in ASKED


# What was asked for, which no agent reports.
ASKED = {"one_way_delay_s", "bandwidth_bytes_per_s", "packet_loss_ratio", "jitter_s"}


def make_absurd(engine: sa.Engine, choose: Callable[[], float]) -> None:
    """Set every number that is no count in what agents have reported and what was made of it."""
    with writing(engine) as session:
        for table in (SampleRow, StepChunk, EpochRow, MeasurementRow, AgentRow):
            reported = filter(is_reported, table.metadata.tables[table.__tablename__].columns)
            columns = {column.name: choose() for column in reported}
            session.execute(update(table).values(columns))
        for rank in session.scalars(select(RankRow)):
            for name in ("prepared", "peers", "shaped", "started"):
                setattr(rank, name, _floats(REPORTS[name], choose))
            ended = _floats(REPORTS["ended"], choose)
            details = dict.fromkeys(("window_training_s", "window_cpu_ratio", "val_loss"), choose())
            ended["result"]["details"] = details
            rank.ended = {**ended, "failure": None}
            if rank.rank == 0:
                steps = StepTimes(
                    kind=StepKind.TIMED,
                    first_step=100,
                    begun_s=choose(),
                    times_s=(choose(), choose()),
                )
                insert_steps(session, token=rank.attempt_id, rank=0, steps=steps)
        for agent in session.scalars(select(AgentRow)):
            agent.facts = {**agent.facts, "hardware": _floats(AgentFacts, choose)["hardware"]}


def _paths(seeded: Seeded) -> list[str]:
    jobs = (seeded.measured, seeded.failed, seeded.running, seeded.single)
    return [
        "/",
        "/agents/a1",
        f"/sweeps/{seeded.sweep_id}",
        f"/sweeps/{seeded.sweep_id}/prediction",
        f"/sweeps/{seeded.sweep_id}/accuracy",
        f"/sweeps/{seeded.sweep_id}/export.csv",
        f"/sweeps/{seeded.sweep_id}/export.json",
        "/advice?model=mlp&dataset=digits&global_batch_size=64&one_way_delay_ms=0",
        "/data",
        "/metrics",
        "/api/v1/agents",
        "/api/v1/measurements",
        f"/api/v1/sweeps/{seeded.sweep_id}",
        "/api/v1/recommendation?model=mlp&dataset=digits&global_batch_size=64&one_way_delay_ms=0",
        *(f"/jobs/{job}" for job in jobs),
        *(f"/jobs/{job}/log" for job in jobs),
        *(f"/api/v1/jobs/{job}" for job in jobs),
        *(f"/api/v1/jobs/{job}/series" for job in jobs),
    ]


@pytest.mark.parametrize(
    "choose",
    [lambda: 1.7e308, functools.partial(random.Random(7).choice, ABSURD)],
    ids=["largest", "mixed"],
)
def test_no_page_fails_for_a_number_that_is_stored(
    engine: sa.Engine, client: FlaskClient, choose: Callable[[], float]
) -> None:
    seeded = seed(engine)
    make_absurd(engine, choose)
    failed = []
    for path in _paths(seeded):
        try:
            answer = client.get(path)
        except Exception as error:
            failed.append(f"{path}: {type(error).__name__}: {error}"[:300])
            continue
        if answer.status_code != 200:
            failed.append(f"{path}: {answer.status_code}")
        elif answer.is_json:
            text = answer.get_data(as_text=True)
            failed += [f"{path}: {word}" for word in ("Infinity", "NaN") if word in text]
    assert failed == []
