"""Samples page by page, as Arrow, from both databases."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import httpx
import pyarrow
import pytest
import sqlalchemy as sa

from benchfarm.client import NoSuchThing, NotConnected, WrongServer
from farm.gang.lifecycle import AttemptState
from farm.messages.reports import LogPart, Sample
from farm.store.engine import writing
from farm.store.reports.logs import insert_log_parts
from farm.store.sweeps.sweeps import insert_sweep
from farm.store.tables import AttemptRow, JobRow
from tests import factories
from tests.integration.benchfarm.client.conftest import Connect
from tests.stored.stored_series import insert_samples
from tests.web.web_client import SWEEP


def _job_with(engine: sa.Engine, *, ranks: int, seconds: int) -> int:
    now = dt.datetime.now(dt.UTC)
    spec = factories.job_spec(world_size=ranks, global_batch_size=64)
    agents = [f"a{rank}" for rank in range(ranks)]
    with writing(engine) as session:
        for agent in agents:
            factories.add_agent(session, agent, heartbeat_at=now)
        insert_sweep(session, name="s", spec={}, jobs=[spec], skipped=[], priority=0, now=now)
        job = session.scalars(sa.select(JobRow)).one()
        token = factories.add_attempt(session, job.id, agents, state=AttemptState.SUCCEEDED)
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in range(ranks):
            samples = [
                Sample(
                    tick=tick,
                    cpu_ratio=0.25,
                    resident_bytes=2**40 + tick,
                    extra={"gpu0_ratio": tick / 1000} if rank == 1 else {},
                )
                for tick in range(seconds)
            ]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        return job.id


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
def test_every_row_comes_once_however_large_the_pages(
    engine: sa.Engine, connected: Connect
) -> None:
    job_id = _job_with(engine, ranks=3, seconds=70)
    farm = connected()
    frame = farm.job(job_id).series(full=True)
    assert list(zip(frame["rank"], frame["tick"], strict=True)) == [
        (rank, tick) for rank in range(3) for tick in range(70)
    ]
    assert list(frame["resident_bytes"][:2]) == [2**40, 2**40 + 1]
    of_gpu = frame[frame["rank"] == 1]["gpu0_ratio"]
    assert of_gpu.iloc[69] == 0.069
    assert frame[frame["rank"] == 0]["gpu0_ratio"].isna().all()
    one = farm.job(job_id).series(full=True, rank=1, library="pyarrow")
    assert one.column("rank").to_pylist() == [1] * 70


@pytest.mark.parametrize("limit", [1, 7, 70, 209, 210, 211])
def test_a_page_leads_to_the_next_until_there_is_none(
    engine: sa.Engine, connected: Connect, limit: int
) -> None:
    job_id = _job_with(engine, ranks=3, seconds=70)
    job = connected().job(job_id)
    batches = list(job.sample_batches(limit=limit))
    assert max(batch.num_rows for batch in batches) == min(limit, 210)
    table = pyarrow.Table.from_batches(batches)
    assert table.num_rows == 210
    ticks = list(zip(*(table.column(c).to_pylist() for c in ("rank", "tick")), strict=True))
    assert ticks == sorted(set(ticks))


def test_a_link_to_another_host_is_followed_here(engine: sa.Engine, connected: Connect) -> None:
    job_id = _job_with(engine, ranks=1, seconds=3)
    hosts: list[str] = []

    class Misleading(httpx.BaseTransport):
        def __init__(self, server: httpx.BaseTransport) -> None:
            self._server = server

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            hosts.append(request.url.host)
            answer = self._server.handle_request(request)
            if "Link" in answer.headers:
                answer.headers["Link"] = answer.headers["Link"].replace("</", "<http://other/", 1)
            return answer

    job = connected(between=Misleading).job(job_id)
    assert sum(batch.num_rows for batch in job.sample_batches(limit=2)) == 3
    assert set(hosts) == {"127.0.0.1"}


def test_pages_stay_with_the_attempt_that_the_first_is_of(
    engine: sa.Engine, connected: Connect
) -> None:
    job_id = _job_with(engine, ranks=1, seconds=4)
    pages = connected().job(job_id).sample_batches(limit=2)
    first = next(pages)
    with writing(engine) as session:
        token = factories.add_attempt(session, job_id, ["a0"], number=2)
        day = session.get_one(AttemptRow, token).leased_at.date()
        of_second = [Sample(tick=tick, cpu_ratio=0.75) for tick in range(9)]
        insert_samples(session, day=day, token=token, rank=0, samples=of_second)
    table = pyarrow.Table.from_batches([first, *pages])
    assert table.column("tick").to_pylist() == [0, 1, 2, 3]
    assert set(table.column("cpu_ratio").to_pylist()) == {0.25}


def test_a_log_stays_with_the_attempt_that_it_begins_with(
    engine: sa.Engine, connected: Connect
) -> None:
    job_id = _job_with(engine, ranks=1, seconds=1)
    with writing(engine) as session:
        token = session.scalars(sa.select(AttemptRow.id)).one()
        part = LogPart(first_character=0, text="first")
        insert_log_parts(session, token=token, rank=0, parts=[part])

    class RetriedMeanwhile(httpx.BaseTransport):
        def __init__(self, server: httpx.BaseTransport) -> None:
            self._server = server
            self._is_retried = False

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = self._server.handle_request(request)
            if request.url.path.endswith("/log") and not self._is_retried:
                self._is_retried = True
                with writing(engine) as session:
                    token = factories.add_attempt(session, job_id, ["a0"], number=2)
                    part = LogPart(first_character=0, text="of the second")
                    insert_log_parts(session, token=token, rank=0, parts=[part])
            return answer

    assert connected(between=RetriedMeanwhile).job(job_id).log() == "first"


class Instead(httpx.BaseTransport):
    """Answers with something else than the server's samples."""

    def __init__(self, server: httpx.BaseTransport, change: Callable[[bytes], bytes]) -> None:
        self._server = server
        self._change = change

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._server.handle_request(request)
        if not request.url.path.endswith("/samples"):
            return answer
        return httpx.Response(200, content=self._change(answer.read()))


@pytest.mark.parametrize("content", [b"<html>Sign in</html>", b""], ids=["page", "nothing"])
def test_samples_that_are_not_arrow_are_of_no_farm(
    engine: sa.Engine, connected: Connect, content: bytes
) -> None:
    job_id = _job_with(engine, ranks=1, seconds=3)
    farm = connected(between=lambda server: Instead(server, lambda _: content))
    with pytest.raises(WrongServer, match="/samples"):
        farm.job(job_id).series(full=True)


@pytest.mark.parametrize("lacking", [1, 8, 300])
def test_samples_whose_end_is_lacking_are_no_shorter_series(
    engine: sa.Engine, connected: Connect, lacking: int
) -> None:
    """As behind a proxy of HTTP/1.0: of an answer without a length nothing says that it was cut."""
    job_id = _job_with(engine, ranks=1, seconds=3)
    farm = connected(between=lambda server: Instead(server, lambda whole: whole[:-lacking]))
    with pytest.raises(NotConnected, match="/samples was cut"):
        farm.job(job_id).series(full=True)


@pytest.mark.parametrize("full", [False, True])
def test_no_metric_of_an_agent_takes_the_place_of_a_column(
    engine: sa.Engine, connected: Connect, full: bool
) -> None:
    job_id = _job_with(engine, ranks=1, seconds=1)
    with writing(engine) as session:
        [attempt] = session.scalars(sa.select(AttemptRow))
        extra = {"rank": 7.0, "tick": 8.0, "cpu_ratio": 0.5, "of_its_own": 9.0}
        sample = Sample(tick=1, cpu_ratio=0.25, extra=extra)
        day = attempt.leased_at.date()
        insert_samples(session, day=day, token=attempt.id, rank=0, samples=[sample])
    last = connected().job(job_id).series(full=full).iloc[-1]
    assert (last["rank"], last["tick"], last["cpu_ratio"], last["of_its_own"]) == (0, 1, 0.25, 9)


def test_a_job_without_an_attempt_has_no_samples_yet(connected: Connect) -> None:
    farm = connected()
    [job, _] = farm.submit(SWEEP).jobs
    with pytest.raises(NoSuchThing, match="no such attempt"):
        job.series(full=True)
