"""What trainers write, on a real store: for programs, on a job's page and as a file."""

from __future__ import annotations

import html
import re

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import LogPart, RankEnded
from farm.messages.trainer_lines import Failure, FailureKind
from farm.store.engine import writing
from farm.store.reports.logs import insert_log_parts
from farm.store.tables import AttemptRow, JobRow, RankRow
from farm.values.codec import to_json
from tests import factories
from tests.web.web_client import client_of

EVIL = "</pre><script>alert('x')</script>"


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def token(engine: sa.Engine) -> int:
    """The running attempt, of two ranks, of job 1; the first one was lost."""
    return gang_of(engine, 2)


def gang_of(engine: sa.Engine, world_size: int) -> int:
    with writing(engine) as session:
        spec = factories.job_spec(world_size=world_size, global_batch_size=world_size)
        job_id = factories.add_job(session, spec)
        agents = [factories.add_agent(session, f"a{n}") for n in range(world_size)]
        factories.add_attempt(session, job_id, agents, state=AttemptState.LOST)
        running = AttemptState.RUNNING
        return factories.add_attempt(session, job_id, agents, state=running, number=2)


def write(engine: sa.Engine, token: int, *texts: str, rank: int = 0) -> None:
    first = 0
    with writing(engine) as session:
        for text in texts:
            part = LogPart(first_character=first, text=text)
            insert_log_parts(session, token=token, rank=rank, parts=[part])
            first += len(text)


def end(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        session.get_one(AttemptRow, token).state = AttemptState.SUCCEEDED
        job = session.get_one(JobRow, 1)
        job.state, job.attempt_id = JobState.SUCCEEDED, None


def logs_on(client: FlaskClient, path: str = "/jobs/1") -> str:
    """The part of a job's page that shows logs."""
    page = client.get(path).get_data(as_text=True)
    return page.split('<section class="card" id="logs"', 1)[1].split("</section>", 1)[0]


def texts_on(part: str) -> list[str]:
    """What stands in its logs."""
    found = re.findall(r"<pre>(.*?)</pre>", part, re.DOTALL)
    return [html.unescape(text) for text in found]


def answer(client: FlaskClient, **query: int) -> TestResponse:
    return client.get("/api/v1/jobs/1/log", query_string=query)


def test_a_program_reads_on_where_it_was(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, "one\n", "two\n")
    expected = {
        "job_id": 1,
        "attempt": 2,
        "rank": 0,
        "text": "one\ntwo\n",
        "next": 8,
        "is_complete": False,
    }
    assert answer(client).json == expected
    assert answer(client, **{"from": 6}).json == {**expected, "text": "o\n"}
    assert answer(client, **{"from": 8}).json == {**expected, "text": ""}
    end(engine, token)
    assert answer(client, **{"from": 8}).json == {**expected, "text": "", "is_complete": True}


def test_a_long_log_is_complete_with_its_last_character(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    parts = [f"{n}" + "x" * 31_000 for n in range(10)]
    write(engine, token, *parts)
    end(engine, token)
    text, is_complete = "", False
    while not is_complete:
        found = answer(client, **{"from": len(text)}).json
        assert found is not None
        assert found["text"]
        text, is_complete = text + found["text"], found["is_complete"]
        assert found["next"] == len(text)
    assert text == "".join(parts)


def test_a_rank_and_an_attempt_are_chosen(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, "of rank 1\n", rank=1)
    write(engine, token - 1, "the first\n", rank=1)
    for query, text in (({"rank": 1}, "of rank 1\n"), ({"rank": 1, "attempt": 1}, "the first\n")):
        found = answer(client, **query).json
        assert found is not None
        assert found["text"] == text


def test_what_cannot_change_any_more_is_sent_once(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, "one\n")
    assert "ETag" not in answer(client).headers
    end(engine, token)
    tag = answer(client).headers["ETag"]
    again = client.get("/api/v1/jobs/1/log", headers={"If-None-Match": tag})
    assert (again.status_code, again.data) == (304, b"")


def test_a_job_without_an_attempt_has_no_log_yet(client: FlaskClient, engine: sa.Engine) -> None:
    with writing(engine) as session:
        factories.add_job(session)
    found = answer(client, **{"from": 3}).json
    assert found == {
        "job_id": 1,
        "attempt": None,
        "rank": None,
        "text": "",
        "next": 3,
        "is_complete": False,
    }
    with writing(engine) as session:
        session.get_one(JobRow, 1).state = JobState.CANCELLED
    found = answer(client).json
    assert found is not None
    assert found["is_complete"]
    assert client.get("/jobs/1/log").status_code == 404
    assert client.get("/jobs/1").status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/jobs/1/log", "/jobs/1/log"])
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("rank=2", 404),
        ("attempt=3", 404),
        ("rank=-1", 400),
        ("rank=x", 400),
        ("attempt=0", 400),
        ("rank=0&rank=1", 400),
        ("lines=3", 400),
    ],
)
@pytest.mark.usefixtures("token")
def test_what_does_not_exist_is_refused(
    client: FlaskClient, path: str, query: str, status: int
) -> None:
    assert client.get(f"{path}?{query}").status_code == status
    assert client.get(path.replace("1/log", "9/log")).status_code == 404


@pytest.mark.parametrize("begin", ["-1", "1.5", "99999999999", ""])
@pytest.mark.usefixtures("token")
def test_a_log_begins_with_a_character(client: FlaskClient, begin: str) -> None:
    refused = client.get(f"/api/v1/jobs/1/log?from={begin}")
    assert refused.status_code == 400
    assert refused.json is not None
    assert refused.json["field"] == "from"


def test_the_page_shows_the_last_lines_of_every_rank(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, *(f"line {n}\n" for n in range(500)))
    write(engine, token, "\x1b[31mof rank 1\x1b[0m\n", rank=1)
    part = logs_on(client)
    first, second = texts_on(part)
    assert first.splitlines() == [f"line {n}" for n in range(300, 500)]
    assert second == "of rank 1"
    assert "The last of 4\u202f390 characters" in part
    assert part.count("The whole output") == 1
    assert "data-live" in client.get("/jobs/1").get_data(as_text=True).split('id="logs"', 1)[1][:20]
    links = re.findall(r'href="([^"]*/log[^"]*)"', part)
    assert [html.unescape(link) for link in links] == [
        f"/jobs/1/log?attempt=2&rank={rank}" for rank in (0, 1)
    ]
    for link in links:
        assert client.get(html.unescape(link)).status_code == 200


def test_a_line_without_end_is_shown_by_its_end(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, "x" * 30_000 + "the end")
    [shown] = texts_on(logs_on(client))
    assert len(shown) == 16_000
    assert shown.endswith("xthe end")


def test_another_attempt_shows_its_own_logs(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token - 1, "the first attempt\n")
    assert texts_on(logs_on(client)) == []
    assert "It has no output" in logs_on(client)
    part = logs_on(client, "/jobs/1?attempt=1")
    assert texts_on(part) == ["the first attempt"]
    assert "/jobs/1/log?attempt=1&amp;rank=0" in part


def test_a_rank_that_failed_comes_first_with_its_reason(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, "of rank 0\n")
    write(engine, token, "of rank 1\n", rank=1)
    failure = Failure(kind=FailureKind.NOT_A_NUMBER, message=f"the loss is {EVIL}")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="its tail")
    with writing(engine) as session:
        session.get_one(RankRow, (token, 1)).ended = to_json(ended)  # type: ignore[assignment] # a table
    part = logs_on(client)
    assert texts_on(part) == ["of rank 1", "of rank 0"]
    assert "Rank 1 on a1: not a number" in part
    assert EVIL not in part
    assert "the loss is &lt;/pre&gt;" in part


def test_what_ended_before_there_were_logs_shows_the_end_that_it_reported(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="killed")
    ended = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="its tail\n")
    with writing(engine) as session:
        session.get_one(RankRow, (token, 0)).ended = to_json(ended)  # type: ignore[assignment] # a table
    part = logs_on(client)
    assert texts_on(part) == ["its tail"]
    assert "whole log" not in part


def test_what_a_trainer_wrote_is_shown_and_never_run(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    write(engine, token, EVIL)
    page = client.get("/jobs/1").get_data(as_text=True)
    assert EVIL not in page
    assert texts_on(logs_on(client)) == [EVIL]
    file = client.get("/jobs/1/log")
    assert file.get_data(as_text=True) == EVIL
    assert file.content_type == "text/plain; charset=utf-8"
    assert file.headers["X-Content-Type-Options"] == "nosniff"
    expected = 'attachment; filename="job-1-attempt-2-rank-0.log"'
    assert file.headers["Content-Disposition"] == expected


def test_of_a_large_gang_some_logs_are_shown_and_all_are_linked(
    client: FlaskClient, engine: sa.Engine
) -> None:
    token = gang_of(engine, 70)
    for rank in range(70):
        write(engine, token, f"of rank {rank}\n", rank=rank)
    part = logs_on(client)
    assert texts_on(part) == [f"of rank {rank}" for rank in range(8)]
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*)"', part)]
    assert sorted(int(link.partition("rank=")[2]) for link in links) == list(range(70))


def test_a_whole_log_is_sent_as_it_was_written(
    client: FlaskClient, engine: sa.Engine, token: int
) -> None:
    parts = [f"{n} \x1b[1m\N{SNOWMAN}\r{'x' * 31_000}\n" for n in range(30)]
    write(engine, token, *parts)
    assert client.get("/jobs/1/log").get_data(as_text=True) == "".join(parts)
    assert client.get("/jobs/1/log?rank=1").get_data() == b""
    head = client.head("/jobs/1/log")
    assert (head.status_code, head.get_data()) == (200, b"")
