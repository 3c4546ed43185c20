"""However a log is cut when it is written and when it is sent, it arrives as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farm.messages.reports import LogPart
from worker_agent.trainer_process.logs import RankLog, TrainerLog

chunks = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)


@given(texts, chunks)
def test_a_log_that_is_not_too_long_arrives_whole(text: str, cuts: list[tuple[int, bool]]) -> None:
    trainer, log = TrainerLog(), RankLog()
    log.follow("worker", trainer)
    rest, parts = text.encode(), list[LogPart]()
    for size, is_sent in cuts:
        trainer.add(rest[:size])
        rest = rest[size:]
        if is_sent:
            parts += log.parts()
    trainer.add(rest)
    parts += log.parts(is_last=True)
    assert "".join(part.text for part in parts) == text
    ends = [part.first_character + len(part.text) for part in parts]
    assert [part.first_character for part in parts] == [0, *ends][: len(parts)]
