"""What trainers write goes on in parts, whole as long as it is not too much, and bounded always."""

from __future__ import annotations

import pytest

from farm.messages.reports import LogPart
from worker_agent.trainer_process.logs import (
    LONGEST_CHARACTERS,
    PART_BYTES,
    RECENT_BYTES,
    TAIL_BYTES,
    RankLog,
    TrainerLog,
)

MOST_NOTED = 200  # characters of a line that says what was left out


@pytest.fixture
def trainer() -> TrainerLog:
    return TrainerLog()


@pytest.fixture
def log(trainer: TrainerLog) -> RankLog:
    log = RankLog()
    log.follow("worker", trainer)
    return log


def joined(parts: list[LogPart]) -> str:
    """The text of parts that follow each other without a gap."""
    text = ""
    for part in parts:
        assert part.first_character == len(text)
        text += part.text
    return text


def test_nothing_is_sent_while_nothing_is_written(log: RankLog, trainer: TrainerLog) -> None:
    assert list(log.parts()) == []
    trainer.add(b"a line\n")
    assert joined(list(log.parts())) == "a line\n"
    assert list(log.parts()) == []
    assert list(log.parts(is_last=True)) == []


def test_what_was_written_at_once_goes_on_in_several_parts(
    log: RankLog, trainer: TrainerLog
) -> None:
    written = b"".join(b"line %d\n" % n for n in range(RECENT_BYTES // 12))
    assert PART_BYTES < len(written) <= RECENT_BYTES
    trainer.add(written)
    parts: list[LogPart] = []
    while new := list(log.parts()):
        assert len(new) == 1
        parts += new
    assert [len(part.text) <= PART_BYTES for part in parts] == [True] * 2
    assert joined(parts).encode() == written


def test_a_character_may_be_torn_between_two_parts(log: RankLog, trainer: TrainerLog) -> None:
    snowman = "\N{SNOWMAN}".encode()
    trainer.add(b"a" + snowman[:1])
    parts = list(log.parts())
    trainer.add(snowman[1:2])
    parts += log.parts()
    trainer.add(snowman[2:] + b"b")
    parts += log.parts()
    assert joined(parts) == "a\N{SNOWMAN}b"


def test_bytes_that_are_no_text_cost_a_character_and_no_more(
    log: RankLog, trainer: TrainerLog
) -> None:
    trainer.add(b"core\0dump \xff end \xc3")
    parts = [*log.parts(), *log.parts(is_last=True)]
    assert joined(parts) == "core\ufffddump \ufffd end \ufffd"


def test_of_a_flood_the_newest_is_sent_and_the_rest_is_counted(
    log: RankLog, trainer: TrainerLog
) -> None:
    trainer.add(b"before\n")
    parts = list(log.parts())
    for _ in range(1000):
        trainer.add(b"x" * 9_999 + b"\n")
    trainer.add(b"after\n")
    [flooded] = log.parts()
    assert len(flooded.text) <= PART_BYTES + MOST_NOTED
    parts += [flooded, *log.parts(is_last=True)]
    text = joined(parts)
    lost_count = 10_000_006 - RECENT_BYTES
    assert f"before\n\n[benchfarm: {lost_count} bytes were left out here]\nx" in text
    assert text.endswith("x\nafter\n")
    assert len(text) <= RECENT_BYTES + 2 * MOST_NOTED


def test_a_log_without_end_is_sent_by_its_beginning_and_its_end(
    log: RankLog, trainer: TrainerLog
) -> None:
    parts: list[LogPart] = []
    for _ in range(2 * LONGEST_CHARACTERS // PART_BYTES):
        trainer.add(b"y" * PART_BYTES)
        parts += log.parts()
    assert joined(parts).endswith("of what follows only the end will be here]\n")
    trainer.add(b"the last words\n")
    assert list(log.parts()) == []
    parts += log.parts(is_last=True)
    text = joined(parts)
    assert "bytes were left out here]\nyyy" in text
    assert text.endswith("the last words\n")
    assert len(text) <= LONGEST_CHARACTERS + PART_BYTES + RECENT_BYTES + 3 * MOST_NOTED


def test_of_several_trainers_the_log_says_who_speaks() -> None:
    worker, server, log = TrainerLog(), TrainerLog(), RankLog()
    log.follow("worker", worker)
    log.follow("ps", server)
    worker.add(b"one")
    parts = list(log.parts())
    worker.add(b" two\n")
    server.add(b"hello\n")
    parts += log.parts()
    server.add(b"bye\n")
    worker.add(b"three\n")
    parts += log.parts(is_last=True)
    assert joined(parts) == "[worker]\none two\n\n[ps]\nhello\n\n[worker]\nthree\n\n[ps]\nbye\n"


def test_the_tail_is_the_end_whether_it_was_sent_or_not(log: RankLog, trainer: TrainerLog) -> None:
    trainer.add(b"z" * 3 * RECENT_BYTES + b"the end")
    list(log.parts())
    assert len(trainer.tail) == TAIL_BYTES
    assert trainer.tail.endswith("zzz" + "the end")
