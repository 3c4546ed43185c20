"""What pages show of gangs with servers, of exchanges, and of accuracy by epoch."""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.configuration.spec import BatchSplit, OperatorPlacement, ServerPlacement
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import RankEnded, Sample
from farm.messages.trainer_lines import Epoch, Exchange, StepProfile, TrainerResult
from farm.store.engine import writing
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobRow, RankRow
from farm.values.codec import to_json
from tests import factories
from tests.stored.stored_series import insert_epoch, insert_samples
from tests.web.web_client import client_of

RESULT = TrainerResult(
    timed_step_count=10,
    window_step_count=10,
    timed_window_s=2.0,
    timed_begun_monotonic_s=5.0,
    interface_rx_bytes=None,
    interface_tx_bytes=None,
    payload_rx_bytes=20_000,
    payload_tx_bytes=10_000,
    train_loss=0.1,
    val_accuracy_ratio=None,
    peak_resident_bytes=1,
    seed=0,
    profile=StepProfile(
        step_count=2, step_time_s=0.2, compute_s=0.15, communication_s=0.05, idle_ratios=(0.2, 0.3)
    ),
    exchange=Exchange(update_count=10, push_s=0.004, pull_s=0.006, staleness_counts=(6, 4)),
)


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


def read(client: FlaskClient, path: str) -> tuple[str, str]:
    """Return a page, and what is read of it."""
    answer = client.get(path)
    page = answer.get_data(as_text=True)
    assert answer.status_code == 200, page
    markup = re.sub(r"<script.*?</script>", " ", page, flags=re.DOTALL)
    return page, " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def served_job(
    engine: sa.Engine, server_placement: ServerPlacement, *, ranks_per_agent: int = 1
) -> int:
    """Add a measured job of two agents that train and a server."""
    spec = factories.job_spec(
        strategy="ps_async",
        world_size=2 * ranks_per_agent,
        server_count=1,
        server_placement=server_placement,
        axes={} if ranks_per_agent == 1 else {"ranks_per_agent": ranks_per_agent},
        placement=OperatorPlacement.HARD,
    )
    with writing(engine) as session:
        job_id = factories.add_job(session, spec)
        agents = [factories.add_agent(session, f"a{n}") for n in range(spec.agent_count)]
        token = factories.add_attempt(session, job_id, agents, state=AttemptState.SUCCEEDED)
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in range(spec.agent_count):
            serves = rank >= 2
            result = dataclasses.replace(RESULT, profile=None, exchange=None, window_step_count=0)
            ended = RankEnded(
                result=result if serves else RESULT, failure=None, timed_begun_s=1.0, log_tail=""
            )
            session.get_one(RankRow, (token, rank)).ended = to_json(ended)  # type: ignore[assignment] # a dict
            extra = {"worker_cpu_ratio": 0.2, "ps_cpu_ratio": 0.7}
            samples = [Sample(tick=t, cpu_ratio=0.9, extra=extra) for t in range(4)]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        details: dict[str, Any] = {"agents": agents, "staleness_counts": [12, 8]}
        details["disk_operations"] = {"read_per_s": 1.5, "write_per_s": 2.5}
        if server_placement is ServerPlacement.APART:
            details["servers"] = [
                {
                    "rank": 2,
                    "cpu_ratio": 0.55,
                    "resident_bytes": 5_000_000,
                    "net_rx_bytes_per_s": 1e6,
                    "net_tx_bytes_per_s": 2e6,
                }
            ]
        factories.add_measurement(
            session,
            f"job {job_id}",
            job_id=job_id,
            attempt_id=token,
            strategy="ps_async",
            world_size=2,
            server_count=1,
            server_placement=server_placement.value,
            idle_ratio=0.25,
            push_s=0.004,
            pull_s=0.006,
            update_count=20,
            staleness_mean=0.4,
            staleness_max=1,
            received_bytes_per_step=2000.0,
            details=details,
        )
    return job_id


def test_a_jobs_page_tells_what_ranks_exchanged_and_what_its_server_used(
    engine: sa.Engine, client: FlaskClient
) -> None:
    page, text = read(client, f"/jobs/{served_job(engine, ServerPlacement.APART)}")
    assert "2 machines and 1 that serve" in text
    assert "1 server apart, hard placement" in text
    assert "rank 1 25 %" in text
    assert "rank 0 25 % 20 %, 30 %" in text  # idle, and in each profiled step
    assert "push 4.00 ms pull 6.00 ms" in text
    assert "rank 2, serves CPU 55 %, memory 5.00 MB" in text
    assert "1 8 40.0 %" in text  # by how many updates they were late
    assert "1.5 reads, 2.5 writes a second" in text or "1.50 reads, 2.50 writes" in text
    chart = page.split('id="plot-role-cpu-ratio"', 1)[1].split("</figure>", 1)[0]
    assert "ranks that train, mean" in chart
    assert "servers, mean" in chart


def test_a_server_of_agents_with_several_ranks_is_told_apart_from_those_that_train(
    engine: sa.Engine, client: FlaskClient
) -> None:
    job_id = served_job(engine, ServerPlacement.APART, ranks_per_agent=2)
    page, text = read(client, f"/jobs/{job_id}")
    assert "rank 1 25 %" in text
    assert "rank 2 \N{EN DASH}" not in text  # what a server exchanged is not counted
    chart = page.split('id="plot-role-cpu-ratio"', 1)[1].split("</figure>", 1)[0]
    assert "servers, mean" in chart


def test_pages_count_the_agents_of_several_ranks(engine: sa.Engine, client: FlaskClient) -> None:
    job_id = served_job(engine, ServerPlacement.APART, ranks_per_agent=2)
    with writing(engine) as session:
        sweep_id = session.get_one(JobRow, job_id).sweep_id
    text = read(client, f"/jobs/{job_id}")[1]
    assert "4 ranks on 2 machines and 1 that serve" in text
    assert "rank 0 stands for the ranks 0 to 1" in text
    assert "ps_async 4 + 1" in read(client, f"/sweeps/{sweep_id}")[1]
    assert "2 of 3" in read(client, "/agents/a2")[1]


def test_an_older_attempt_is_not_shown_with_what_a_later_one_measured(
    engine: sa.Engine, client: FlaskClient
) -> None:
    job_id = served_job(engine, ServerPlacement.APART)
    with writing(engine) as session:
        later = factories.add_attempt(session, job_id, state=AttemptState.SUCCEEDED, number=2)
        session.execute(sa.update(MeasurementRow).values(attempt_id=later))
    _, text = read(client, f"/jobs/{job_id}?attempt=1")
    assert "rank 1 25 %" in text
    assert "serves CPU" not in text
    assert "was late" not in text


def test_collocated_servers_have_cpu_of_their_own_and_share_a_network(
    engine: sa.Engine, client: FlaskClient
) -> None:
    page, text = read(client, f"/jobs/{served_job(engine, ServerPlacement.COLLOCATED)}")
    assert 'id="plot-role-cpu-ratio"' in page
    assert 'id="plot-role-net-tx-bytes"' not in page
    assert "these share their ranks' network" in text


def test_a_job_without_servers_has_no_charts_by_role(
    engine: sa.Engine, client: FlaskClient
) -> None:
    with writing(engine) as session:
        job_id = factories.add_job(session)
        factories.add_measurement(session, "k", job_id=job_id)
    page, text = read(client, f"/jobs/{job_id}")
    assert "slot-role-" not in page
    assert "What ranks exchanged" not in text


def test_a_sweep_tells_its_cells_apart_by_how_they_are_set_up(
    engine: sa.Engine, client: FlaskClient
) -> None:
    ring = {"world_size": 2, "global_batch_size": 64}
    specs = [
        factories.job_spec(**ring),
        factories.job_spec(**ring, batch_split=BatchSplit.BY_SPEED),
        factories.job_spec(**ring, placement=OperatorPlacement.HARD),
        factories.job_spec(**ring, interface="infiniband"),
    ]
    with writing(engine) as session:
        sweep_id = session.get_one(JobRow, factories.add_sweep(session, *specs)[0]).sweep_id
    _, text = read(client, f"/sweeps/{sweep_id}")
    for words in ("by speed", "hard", "infiniband"):
        assert words in text


def test_accuracy_is_shown_by_epoch_and_as_the_time_to_a_target(
    engine: sa.Engine, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as session:
        ids = factories.add_sweep(
            session,
            factories.job_spec(epochs=2, global_batch_size=32),
            factories.job_spec(epochs=2, global_batch_size=64),
        )
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
        for number, job_id in enumerate(ids):
            agent = factories.add_agent(session, f"a{number}")
            token = factories.add_attempt(session, job_id, [agent], state=AttemptState.SUCCEEDED)
            factories.add_measurement(
                session, str(job_id), job_id=job_id, attempt_id=token, epochs=2, fingerprint="k"
            )
            for epoch in range(2):
                one = Epoch(
                    epoch=epoch,
                    train_s=3.0,
                    step_count=4,
                    train_loss=None,
                    val_loss=None,
                    val_accuracy_ratio=0.45 * (epoch + 1) - 0.1 * number,
                )
                insert_epoch(session, token=token, rank=0, epoch=one)
    page, text = read(client, f"/sweeps/{sweep_id}/accuracy?target=85")
    assert "batch 32" in text
    assert 'id="plot-accuracy"' in page
    assert "1 of 1 2 6.00 s" in re.sub(r" 2\.00 ", " 2 ", text)
    assert "0 of 1" in text
    assert client.get(f"/sweeps/{sweep_id}/accuracy?target=0").status_code in (200, 400)
    assert client.get(f"/sweeps/{sweep_id}/accuracy?target=many").status_code == 400
    assert client.get("/sweeps/999/accuracy").status_code == 404
    assert "digits 64 single" in text
    assert "a part of them" not in text
    monkeypatch.setattr("web.pages.accuracy.MOST_JOBS", 1)
    _, text = read(client, f"/sweeps/{sweep_id}/accuracy")
    assert "The page shows a part of them" in text
    assert "digits 32 single" in text
    assert "digits 64 single" not in text


def test_a_sweep_by_steps_has_no_accuracies(engine: sa.Engine, client: FlaskClient) -> None:
    with writing(engine) as session:
        sweep_id = session.get_one(JobRow, factories.add_job(session)).sweep_id
    _, text = read(client, f"/sweeps/{sweep_id}/accuracy")
    assert "No job of this sweep trains by epochs" in text
