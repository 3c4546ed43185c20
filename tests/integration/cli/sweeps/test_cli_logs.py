"""`farm logs` on a real store: all there is, as JSON, and as it comes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.sweeps import logs
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import LogPart
from farm.store.engine import writing
from farm.store.reports.logs import insert_log_parts
from farm.store.tables import AttemptRow, JobRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_job, job_spec


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def running(engine: sa.Engine) -> int:
    """The second attempt, of two ranks, of the only job."""
    with writing(engine) as session:
        job_id = add_job(session, job_spec(world_size=2))
        agents = [add_agent(session, agent_id) for agent_id in ("a", "b")]
        lost = add_attempt(session, job_id, agents, state=AttemptState.LOST)
        token = add_attempt(session, job_id, agents, state=AttemptState.RUNNING, number=2)
    write(engine, lost, "the first attempt\n")
    write(engine, token, "\x1b[1mone\x1b[0m\n")
    write(engine, token, "of rank 1\n", rank=1)
    return token


def write(engine: sa.Engine, token: int, text: str, *, rank: int = 0, first: int = 0) -> None:
    with writing(engine) as session:
        part = LogPart(first_character=first, text=text)
        insert_log_parts(session, token=token, rank=rank, parts=[part])


def end(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        session.get_one(AttemptRow, token).state = AttemptState.SUCCEEDED
        job = session.scalars(sa.select(JobRow)).one()
        job.state, job.attempt_id = JobState.SUCCEEDED, None


class Pauses:
    """The module `time`, with something that happens while nothing else does."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self._happens()


@pytest.mark.usefixtures("running")
def test_a_log_is_printed_as_it_was_written(farm: FarmCommand) -> None:
    assert farm.text("logs", "1") == "\x1b[1mone\x1b[0m\n"
    assert farm.text("logs", "1", "--rank", "1") == "of rank 1\n"
    assert farm.text("logs", "1", "--attempt", "1") == "the first attempt\n"


def test_as_json_a_log_says_whether_it_is_complete(
    farm: FarmCommand, engine: sa.Engine, running: int
) -> None:
    expected = {
        "job_id": 1,
        "attempt": 2,
        "rank": 1,
        "text": "of rank 1\n",
        "is_complete": False,
    }
    assert farm.json("logs", "1", "--rank", "1") == expected
    end(engine, running)
    assert farm.json("logs", "1", "--rank", "1") == {**expected, "is_complete": True}


def test_a_log_is_followed_to_the_end_of_its_attempt(
    farm: FarmCommand, engine: sa.Engine, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second_pause() -> None:
        write(engine, running, "three\n", first=16)
        end(engine, running)

    def first_pause() -> None:
        write(engine, running, "two\n", first=12)
        pauses.append(second_pause)

    pauses = [first_pause]
    monkeypatch.setattr(logs, "time", Pauses(lambda: pauses.pop()()))
    result = farm.run("logs", "1", "--follow")
    assert result.exit_code == 0
    assert result.stdout == "\x1b[1mone\x1b[0m\ntwo\nthree\n"
    assert result.stderr == "farm: attempt 2 is over: succeeded\n"


def test_who_follows_a_waiting_job_waits_for_its_first_attempt(
    farm: FarmCommand, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(engine) as session:
        job_id = add_job(session)

    def begin_and_end() -> None:
        with writing(engine) as session:
            add_attempt(session, job_id, [add_agent(session, "a")], state=AttemptState.FAILED)

    monkeypatch.setattr(logs, "time", Pauses(begin_and_end))
    result = farm.run("logs", "1", "--follow")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "farm: rank 0 has written nothing",
        "farm: attempt 1 is over: failed",
    ]


def test_a_log_that_does_not_exist_is_refused(farm: FarmCommand, engine: sa.Engine) -> None:
    with writing(engine) as session:
        add_job(session)
    assert "job 7 does not exist" in farm.refusal("logs", "7", status=1)
    assert "it is waiting" in farm.refusal("logs", "1", status=1)
    with writing(engine) as session:
        session.scalars(sa.select(JobRow)).one().state = JobState.CANCELLED
    assert "it is cancelled" in farm.refusal("logs", "1", "--follow", status=1)


@pytest.mark.usefixtures("running")
def test_a_rank_or_an_attempt_that_does_not_exist_is_refused(farm: FarmCommand) -> None:
    line = farm.refusal("logs", "1", "--rank", "2", status=1)
    assert line == "farm: rank 2 of attempt 2 of job 1 does not exist\n"
    line = farm.refusal("logs", "1", "--attempt", "3", status=1)
    assert line == "farm: attempt 3 of job 1 does not exist\n"
    farm.refusal("logs", "1", "--follow", "--json", status=2)


@pytest.mark.usefixtures("farm", "running")
def test_a_terminal_is_told_nothing_but_text() -> None:
    own, terminal = pty.openpty()
    command = [sys.executable, "-m", "farm.cli.main", "logs", "1"]
    subprocess.run(command, stdout=terminal, check=True)
    assert os.read(own, 1000) == b"one\r\n"
    os.close(terminal)
    os.close(own)
