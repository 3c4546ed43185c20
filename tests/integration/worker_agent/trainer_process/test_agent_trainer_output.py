"""What a trainer prints, however much and whatever it is, harms nobody but itself."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from farm.messages.reports import LogPart
from farm.messages.trainer_lines import Assignment, Progress, TrainerEvent
from tests.factories import job_spec
from worker_agent.trainer_process.logs import RECENT_BYTES, RankLog
from worker_agent.trainer_process.process import TrainerProcess

PROGRESS = '{"event": "progress", "step_count": 1}'


def run(
    script: str, folder: Path, *, on_start: Callable[[TrainerProcess], None] = lambda _: None
) -> tuple[list[TrainerEvent], str]:
    """Run a trainer to its end; return its events and the tail of its log."""
    events: list[TrainerEvent] = []
    has_ended = threading.Event()
    trainer = TrainerProcess(
        (sys.executable, "-c", f"import os, sys\n{script}\nprint('{PROGRESS}')"),
        Assignment(job=job_spec(), rank=0, cpus=(0,)),
        environment=dict(os.environ),
        folder=folder,
        on_event=events.append,
        on_exit=lambda _: has_ended.set(),
    )
    try:
        on_start(trainer)
        assert has_ended.wait(30)
        return events, trainer.log_tail
    finally:
        trainer.kill()
        trainer.close()


@pytest.mark.parametrize(
    "script",
    [
        "sys.stdout.write('no event\\n' * 20_000)",
        "[sys.stdout.write('x' * 1_000_000) for _ in range(20)]; print()",
        "[sys.stdout.buffer.write(os.urandom(1_000_000)) for _ in range(5)]; print(flush=True)",
        "print('[' * 900 + ']' * 900)",
    ],
    ids=["many lines", "a line without end", "binary", "endless nesting"],
)
def test_what_is_no_event_costs_the_agent_one_line_of_its_log(
    script: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        events, log_tail = run(script, tmp_path)
    assert events == [Progress(step_count=1)]
    assert len(log_tail.encode(errors="replace")) <= 3 * 8192
    assert len(caplog.records) == 1
    assert len(caplog.text) < 1000


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_trainer_that_floods_a_stream_is_held_up_by_nothing_and_kept_by_its_end(
    stream: str, tmp_path: Path
) -> None:
    script = f"[sys.{stream}.write('x' * 99 + '\\n') for _ in range(200_000)]\n"
    script += f"print('the end', file=sys.{stream}, flush=True)"
    log, parts = RankLog(), list[LogPart]()

    def follow(trainer: TrainerProcess) -> None:
        log.follow("worker", trainer.log)
        parts.extend(log.parts())

    events, log_tail = run(script, tmp_path, on_start=follow)
    parts += log.parts(is_last=True)
    assert events == [Progress(step_count=1)]
    assert log_tail.endswith("x\nthe end\n")
    text = "".join(part.text for part in parts)
    assert text.endswith("x\nthe end\n")
    assert "bytes were left out here]" in text
    assert len(text) < 2 * RECENT_BYTES
