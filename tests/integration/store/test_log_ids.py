"""Lines of the server's logs that speak of a rank name its job, its attempt and its number."""

from __future__ import annotations

import logging

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import REPORTS_TASK, make_app
from farm.collector.ingest import read_batch, take_batches
from farm.collector.main import register_tasks
from farm.gang.lifecycle import AttemptState
from farm.messages.commands import StopAttempt
from farm.messages.envelope import seal
from farm.messages.reports import Report, ReportBatch
from farm.scheduler.outgoing import Outgoing, Rules
from farm.store.engine import writing
from farm.store.tables import JobRow
from tests.factories import NOW, add_agent, add_attempt, add_job, seconds
from tests.stored.scheduler_round import run_round
from tests.web.web_client import NO_BROKER, web_settings

RULES = Rules(lease=seconds(20.0), reserve_after_s=60.0)


def of(*ranks: tuple[int, int]) -> ReportBatch:
    reports = tuple(
        Report(number=number, token=token, rank=rank, kind="ended", body={})
        for number, (token, rank) in enumerate(ranks, start=1)
    )
    return ReportBatch(agent_id="a", generation="g", reports=reports)


def ids_of(caplog: pytest.LogCaptureFixture, message: str) -> dict[str, object]:
    [record] = [r for r in caplog.records if r.getMessage().startswith(message)]
    names = ("job_id", "attempt_id", "rank", "agent_id")
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def test_reports_that_come_late(engine: sa.Engine, caplog: pytest.LogCaptureFixture) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a")
        token = add_attempt(session, job_id, ["a"], state=AttemptState.LOST)
    take_batches(engine, [read_batch(seal(of((token, 0))))], now=NOW)
    expected = {"job_id": job_id, "attempt_id": token, "rank": 0, "agent_id": "a"}
    assert ids_of(caplog, "reports came late") == expected


def test_an_attempt_that_is_given_up(engine: sa.Engine, caplog: pytest.LogCaptureFixture) -> None:
    with writing(engine) as session:
        job_id = add_job(session)
        add_agent(session, "a")
        token = add_attempt(session, job_id, ["a"])
        session.get_one(JobRow, job_id).spec = {"nonsense": True}
    with caplog.at_level(logging.INFO):
        run_round(engine, now=NOW, rules=RULES)
    expected = {"job_id": job_id, "attempt_id": token}
    assert ids_of(caplog, "attempt was given up") == expected


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (of((7, 1), (7, 1)), {"agent_id": "a", "attempt_id": 7, "rank": 1}),
        (of((7, 1), (8, 1)), {"agent_id": "a"}),
    ],
)
def test_a_batch_that_cannot_be_stored_is_named_by_its_rank_if_it_has_but_one(
    batch: ReportBatch,
    expected: dict[str, object],
    empty_engine: sa.Engine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = make_app(NO_BROKER)
    register_tasks(app, empty_engine, web_settings())
    app.tasks[REPORTS_TASK](seal(batch))  # into a store without tables
    app.close()
    assert ids_of(caplog, "1 messages not stored") == expected


def test_a_command_that_is_not_sent() -> None:
    stop = Outgoing("a", StopAttempt(token=7, reason="it is over"))
    assert stop.ids == {"agent_id": "a", "attempt_id": 7}
