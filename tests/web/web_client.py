"""A client of the web application on a given store, and a store worth looking at."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from flask.testing import FlaskClient
from sqlalchemy.orm import Session
from werkzeug.test import TestResponse

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, RankPhase
from farm.keys.api_tokens import SECRET_BYTES, Scope, make_token, token_hash
from farm.messages.agents import AgentState
from farm.messages.reports import RankEnded, Sample, StepTimes
from farm.messages.trainer_lines import Epoch, Failure, FailureKind, StepKind, TrainerResult
from farm.settings.server import Settings, load_settings
from farm.store.access.api_tokens import add_token
from farm.store.engine import writing
from farm.store.sweeps.sweeps import insert_sweep
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow
from farm.values.codec import to_json
from tests import factories
from tests.fakes.server import wait_until
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps
from tests.web.described_client import DescribedClient
from web.app import create_app

TOKEN = "a token of this test"  # the farm's, where a test sets one
# Nothing listens there, and the kernel says so at once.
NO_BROKER = "redis://127.0.0.1:1/0"

SWEEP: dict[str, object] = {
    "name": "two cells",
    "case": [
        {
            "model": "mlp",
            "dataset": "digits",
            "strategy": "single",
            "world_size": 1,
            "global_batch_size": [32, 64],
        }
    ],
}


def web_settings(**environ: str) -> Settings:
    """Settings of a farm on loopback without a token, unless told otherwise."""
    return load_settings({"FARM_BROKER_URL": NO_BROKER, "FARM_HOME": "/dev/null/farm", **environ})


def client_of(engine: sa.Engine, **environ: str) -> FlaskClient:
    """A client of an application on that store; it holds the API to its document."""
    app = create_app(web_settings(**environ), engine=engine)
    app.test_client_class = DescribedClient
    return app.test_client()


def csrf_of(client: FlaskClient, path: str = "/sweeps/new") -> str:
    """Open a page and return the token that its forms send back."""
    page = client.get(path).get_data(as_text=True)
    return page.split('name="csrf_token" value="', 1)[1].split('"', 1)[0]


def make_api_token(
    engine: sa.Engine,
    name: str = "ci",
    *,
    scope: Scope = Scope.ADMIN,
    expires_at: dt.datetime | None = None,
) -> str:
    """Add a token to the store, and return what its owner presents."""
    token = make_token(secrets.token_bytes(SECRET_BYTES))
    with writing(engine) as session:
        add_token(
            session,
            name=name,
            scope=scope,
            secret_hash=token_hash(token),
            now=dt.datetime.now(dt.UTC),
            expires_at=expires_at,
        )
    return token


def bearer(token: str) -> dict[str, str]:
    """The header that presents a token."""
    return {"Authorization": f"Bearer {token}"}


def sign_in(client: FlaskClient, token: str, **fields: str) -> TestResponse:
    """Send the form of the sign-in page."""
    data = {"token": token, "csrf_token": csrf_of(client, "/login"), **fields}
    return client.post("/login", data=data)


def without_limits(client: FlaskClient) -> FlaskClient:
    """Let a client ask as often as it likes, for tests that are about something else."""
    for limiter in client.application.extensions["limiter"]:
        limiter.enabled = False
    return client


@dataclass(frozen=True, slots=True)
class Seeded:
    """One sweep: a measured gang of two, a failed job, a running, a waiting, a measured one."""

    sweep_id: int
    measured: int
    failed: int
    running: int
    waiting: int
    single: int


def seed(engine: sa.Engine, *, name: str = "a sweep", log_tail: str = "its log") -> Seeded:
    """Fill a store with one sweep and the agents that serve it."""
    now = dt.datetime.now(dt.UTC)
    specs = [
        factories.job_spec(world_size=2, global_batch_size=64, epochs=1),
        factories.job_spec(global_batch_size=64),
        factories.job_spec(global_batch_size=32),
        factories.job_spec(global_batch_size=128, labels={"kind": "rare"}),
        factories.job_spec(global_batch_size=64, seed=1),
    ]
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            state = AgentState.BUSY if agent_id == "a1" else AgentState.IDLE
            factories.add_agent(session, agent_id, heartbeat_at=now, state=state)
        factories.add_agent(session, "gone", heartbeat_at=now - dt.timedelta(hours=1))
        sweep_id = insert_sweep(
            session, name=name, spec={"name": name}, jobs=specs, skipped=[], priority=0, now=now
        )
        jobs = session.scalars(sa.select(JobRow).order_by(JobRow.id)).all()
        seeded = Seeded(sweep_id, *(job.id for job in jobs))
        _measured(session, seeded.measured, specs[0], log_tail=log_tail)
        _failed(session, seeded.failed)
        token = factories.add_attempt(session, seeded.single, ["a1"], state=AttemptState.SUCCEEDED)
        _measurement(session, seeded.single, token, specs[4], step_time_s=0.4)
        factories.add_attempt(session, seeded.running, ["a1"], state=AttemptState.RUNNING)
    return seeded


def _measured(session: Session, job_id: int, spec: JobSpec, *, log_tail: str) -> None:
    token = factories.add_attempt(session, job_id, ["a1", "a2"], state=AttemptState.SUCCEEDED)
    day = session.get_one(AttemptRow, token).leased_at.date()
    for rank in (0, 1):
        samples = [
            Sample(tick=tick, cpu_ratio=0.5, net_rx_bytes_per_s=2e6)
            for tick in range(10)
            if tick != 5
        ]
        insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        times = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=1.0, times_s=(0.1, 0.2, 0.3))
        insert_steps(session, token=token, rank=rank, steps=times)
    epoch = Epoch(
        epoch=0,
        train_s=2.0,
        step_count=3,
        train_loss=0.5,
        val_loss=0.6,
        val_accuracy_ratio=0.9,
    )
    insert_epoch(session, token=token, rank=0, epoch=epoch)
    ended = RankEnded(
        result=TrainerResult(
            timed_step_count=3,
            window_step_count=3,
            timed_window_s=0.6,
            timed_begun_monotonic_s=1.0,
            interface_rx_bytes=1,
            interface_tx_bytes=1,
            payload_rx_bytes=1,
            payload_tx_bytes=1,
            train_loss=0.5,
            val_accuracy_ratio=0.9,
            peak_resident_bytes=1,
            seed=0,
        ),
        failure=None,
        timed_begun_s=1.0,
        log_tail=log_tail,
    )
    chief = session.get_one(RankRow, (token, 0))
    chief.phase, chief.ended = RankPhase.ENDED, _table(ended)
    _measurement(session, job_id, token, spec, step_time_s=0.2)


def _measurement(
    session: Session, job_id: int, token: int, spec: JobSpec, *, step_time_s: float
) -> None:
    factories.add_measurement(
        session,
        f"job {job_id}",
        job_id=job_id,
        attempt_id=token,
        strategy=spec.strategy,
        world_size=spec.world_size,
        global_batch_size=spec.global_batch_size,
        step_time_s=step_time_s,
        step_time_spread_s=step_time_s / 2,
        step_time_p25_s=step_time_s * 0.75,
        step_time_p75_s=step_time_s * 1.25,
        time_per_epoch_s=23 * step_time_s,
        throughput_examples_per_s=spec.global_batch_size / step_time_s,
        cpu_ratio=0.5,
        fingerprint="a kind",
    )


def _failed(session: Session, job_id: int) -> None:
    token = factories.add_attempt(session, job_id, ["a2"], state=AttemptState.FAILED)
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="the kernel killed rank 0")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="no more memory")
    rank = session.get_one(RankRow, (token, 0))
    rank.phase, rank.ended = RankPhase.ENDED, _table(ended)
    job = session.get_one(JobRow, job_id)
    job.failure_kind, job.reason = failure.kind.value, failure.message
    at = dt.datetime.now(dt.UTC)
    session.add(
        JobEvent(job_id=job_id, attempt_id=token, at=at, event="job: failed", reason=job.reason)
    )


def _table(ended: RankEnded) -> dict[str, object]:
    values = to_json(ended)
    assert isinstance(values, dict)
    return values


def fitted(client: FlaskClient, path: str) -> dict[str, Any]:
    """Return a recommendation that rests on its fit, which may take a busy machine long."""

    def answered() -> dict[str, Any] | None:
        answer: dict[str, Any] | None = client.get(path).json
        return None if answer is None or answer["is_preliminary"] else answer

    return wait_until(answered, "a fit", timeout_s=240.0)
