"""What trainers wrote, on a real database: stored once, read in stretches and by its end."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.messages.reports import LONGEST_LOG_PART_CHARACTERS, LogPart
from farm.store.engine import reading, writing
from farm.store.reports.logs import LogEnd, insert_log_parts, log_ends, log_stretch
from farm.store.result_tables import LogPartRow
from tests.factories import add_agent, add_attempt, add_job, job_spec


@pytest.fixture
def token(engine: sa.Engine) -> int:
    """An attempt of three ranks, and before it another one."""
    with writing(engine) as session:
        job_id = add_job(session, job_spec(world_size=3))
        agents = [add_agent(session, agent_id) for agent_id in ("a", "b", "c")]
        add_attempt(session, add_job(session))
        return add_attempt(session, job_id, agents)


def write(session: Session, token: int, *texts: str, rank: int = 0, first: int = 0) -> None:
    for text in texts:
        part = LogPart(first_character=first, text=text)
        insert_log_parts(session, token=token, rank=rank, parts=[part])
        first += len(text)


def whole(engine: sa.Engine, token: int, *, rank: int = 0, first: int = 0) -> list[str]:
    """The stretches from a character on, up to the last."""
    texts = []
    while True:
        with reading(engine) as session:
            stretch = log_stretch(session, token, rank=rank, first_character=first)
        texts.append(stretch.text)
        assert stretch.next_character == first + len(stretch.text)
        if stretch.is_end:
            return texts
        first = stretch.next_character


def test_a_log_is_read_from_any_character_on(engine: sa.Engine, token: int) -> None:
    log = ["one \N{SNOWMAN}\n", "two", " and three\n"]
    with writing(engine) as session:
        write(session, token, *log)
    text = "".join(log)
    for first in range(len(text) + 1):
        assert whole(engine, token, first=first) == [text[first:]]


def test_beyond_its_end_a_log_goes_on_where_it_was_asked_for(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        write(session, token, "one\n")
        stretch = log_stretch(session, token, rank=0, first_character=50)
        assert (stretch.text, stretch.next_character, stretch.is_end) == ("", 50, True)
        nothing = log_stretch(session, token, rank=1)
        assert (nothing.text, nothing.next_character, nothing.is_end) == ("", 0, True)


def test_the_same_part_again_changes_nothing(engine: sa.Engine, token: int) -> None:
    for text in ("one\n", "another\n"):
        with writing(engine) as session:
            write(session, token, text, "")
    assert whole(engine, token) == ["one\n"]
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(LogPartRow)) == 1


def test_what_the_store_has_lost_is_passed_over(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        write(session, token, "one\n")
        write(session, token, "three\n", first=100)
        stretch = log_stretch(session, token, rank=0)
        assert (stretch.text, stretch.next_character) == ("one\nthree\n", 106)
        assert log_stretch(session, token, rank=0, first_character=50).text == "three\n"


def test_logs_are_told_apart_by_rank_and_attempt(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        write(session, token, "mine\n")
        write(session, token, "of rank 1\n", rank=1)
        write(session, token - 1, "of the attempt before\n")
    assert whole(engine, token) == ["mine\n"]
    assert whole(engine, token, rank=1) == ["of rank 1\n"]


def test_a_long_log_comes_in_stretches(engine: sa.Engine, token: int) -> None:
    parts = [f"{n:06} {'x' * 31_992}\n" for n in range(20)]
    with writing(engine) as session:
        write(session, token, *parts)
    stretches = whole(engine, token, first=3)
    assert len(stretches) == 3
    assert max(map(len, stretches)) < 300_000
    assert "".join(stretches) == "".join(parts)[3:]


def test_a_log_of_many_small_parts_comes_in_stretches_too(engine: sa.Engine, token: int) -> None:
    rows = [
        {"attempt_id": token, "rank": 0, "first_character": n, "text": str(n % 10)}
        for n in range(5001)
    ]
    with writing(engine) as session:
        session.execute(sa.insert(LogPartRow), rows)
    assert [len(text) for text in whole(engine, token)] == [5000, 1]


def test_the_end_of_a_log_is_there_however_it_was_cut(engine: sa.Engine, token: int) -> None:
    long = "y" * LONGEST_LOG_PART_CHARACTERS
    with writing(engine) as session:
        write(session, token, "first\n", long, long, "last\n")
        write(session, token, "short\n", rank=2)
        write(session, token - 1, "of the attempt before\n", rank=2)
    with reading(engine) as session:
        ends = log_ends(session, token, ranks=[0, 1, 2])
        assert log_ends(session, token, ranks=[1]) == {}
    assert set(ends) == {0, 2}
    assert ends[2] == LogEnd(text="short\n", character_count=6)
    assert ends[0].character_count == 2 * len(long) + 11
    assert ends[0].text == long + "last\n"
