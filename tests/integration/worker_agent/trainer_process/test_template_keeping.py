"""A template that hangs, dies or does not fit costs a rank its warm start and nothing else."""

from __future__ import annotations

import dataclasses
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from farm.messages.trainer_lines import Assignment, Progress, TrainerEvent
from tests.factories import job_spec
from tests.machine.agents import ROOT
from worker_agent.config import AgentConfig, load_config
from worker_agent.supervisor.events import AgentEvent, TemplateEvent, TemplateGone, TemplateReady
from worker_agent.trainer_process import template as template_module
from worker_agent.trainer_process.process import TrainerProcess
from worker_agent.trainer_process.template import (
    FIRST_TEMPLATE_PAUSE_S,
    IMPORT_LIMIT_S,
    MEASURE_EVERY_S,
    TemplateProcess,
    TemplateSupervisor,
)

Keep = Callable[..., TemplateSupervisor]
FAKE = ROOT / "tests" / "fakes" / "template.py"
COLD = (sys.executable, "-c", """print('{"event": "progress", "step_count": 1}')""")


@pytest.fixture
def events() -> queue.SimpleQueue[AgentEvent]:
    return queue.SimpleQueue()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentConfig:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return load_config({"AGENT_ID": "a", "AGENT_STATE_DIR": str(tmp_path)})


@pytest.fixture
def keep(config: AgentConfig, events: queue.SimpleQueue[AgentEvent]) -> Iterator[Keep]:
    """Start a fake template that does wrong what the words say, and end it after the test."""
    kept: list[TemplateSupervisor] = []

    def start(words: str = "") -> TemplateSupervisor:
        command = (sys.executable, str(FAKE), words)
        kept.append(TemplateSupervisor(dataclasses.replace(config, template=command), events.put))
        kept[0].tick(now=time.monotonic(), is_idle=True)
        return kept[0]

    yield start
    for supervisor in kept:
        is_alive = any(psutil.pid_exists(pid) for pid in supervisor.pids)
        supervisor.stop()
        if is_alive:
            next_event(events, TemplateGone)


def next_event(events: queue.SimpleQueue[AgentEvent], kind: type[TemplateEvent]) -> TemplateEvent:
    while not isinstance(event := events.get(timeout=60), kind):
        pass
    return event


class Trainer:
    """A trainer process with what it said and how it ended."""

    def __init__(self, folder: Path, template: TemplateProcess | None) -> None:
        self.events: list[TrainerEvent] = []
        self.ends: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.process = TrainerProcess(
            COLD,
            Assignment(job=job_spec(), rank=0, cpus=(0,)),
            environment=dict(os.environ),
            folder=folder,
            on_event=self.events.append,
            on_exit=self.ends.put,
            template=template,
        )


def test_a_template_that_answers_nothing_is_killed_and_the_trainer_starts_cold(
    keep: Keep,
    events: queue.SimpleQueue[AgentEvent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor = keep("deaf")
    monkeypatch.setattr(template_module, "ANSWER_LIMIT_S", 0.1)
    next_event(events, TemplateReady)
    trainer = Trainer(tmp_path, supervisor.template())
    assert trainer.ends.get(timeout=60) == 0
    trainer.process.close()
    assert trainer.events == [Progress(step_count=1)]
    gone = next_event(events, TemplateGone)
    assert isinstance(gone, TemplateGone)
    assert gone.return_code == -signal.SIGKILL


def test_a_trainer_killed_before_it_was_forked_is_not_started_at_all(
    keep: Keep, tmp_path: Path
) -> None:
    supervisor = keep("never_ready")
    trainer = Trainer(tmp_path, supervisor.template())
    trainer.process.kill()
    trainer.process.close()
    assert trainer.ends.get(timeout=60) == -signal.SIGKILL
    assert trainer.ends.empty()
    assert trainer.events == []


def test_a_template_that_does_not_get_ready_is_killed_even_while_a_rank_waits_for_it(
    keep: Keep, events: queue.SimpleQueue[AgentEvent], tmp_path: Path
) -> None:
    supervisor = keep("never_ready")
    template = supervisor.template()
    assert template is not None
    trainer = Trainer(tmp_path, template)
    supervisor.tick(now=template.started_s + IMPORT_LIMIT_S - 1, is_idle=False)
    assert template.is_alive
    supervisor.tick(now=template.started_s + IMPORT_LIMIT_S + 1, is_idle=False)
    next_event(events, TemplateGone)
    assert trainer.ends.get(timeout=60) == 0
    trainer.process.close()
    assert trainer.events == [Progress(step_count=1)]


def test_the_next_template_is_started_after_a_pause_and_never_beside_a_rank(
    keep: Keep, events: queue.SimpleQueue[AgentEvent]
) -> None:
    supervisor = keep()
    next_event(events, TemplateReady)
    [first] = supervisor.pids
    os.kill(first, signal.SIGKILL)
    now = time.monotonic()
    supervisor.handle(next_event(events, TemplateGone), now=now)
    supervisor.tick(now=now, is_idle=True)
    assert supervisor.pids == set()
    supervisor.tick(now=now + FIRST_TEMPLATE_PAUSE_S, is_idle=False)
    assert supervisor.pids == set()
    supervisor.tick(now=now + FIRST_TEMPLATE_PAUSE_S, is_idle=True)
    assert supervisor.pids not in (set(), {first})


def test_a_template_is_measured_when_ready_and_each_minute_but_not_beside_a_rank(
    keep: Keep, events: queue.SimpleQueue[AgentEvent]
) -> None:
    supervisor = keep()
    now = time.monotonic()
    supervisor.handle(next_event(events, TemplateReady), now=now)
    supervisor.tick(now=now, is_idle=False)
    assert supervisor.template_bytes is None
    supervisor.tick(now=now, is_idle=True)
    measured = supervisor.template_bytes
    assert measured is not None
    assert 1_000_000 < measured < 100_000_000
    supervisor.template_bytes = None
    supervisor.tick(now=now + MEASURE_EVERY_S - 1, is_idle=True)
    assert supervisor.template_bytes is None
    supervisor.tick(now=now + MEASURE_EVERY_S, is_idle=True)
    assert supervisor.template_bytes is not None


def test_a_template_of_another_environment_serves_nobody(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = keep()
    assert supervisor.template() is not None
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert supervisor.template() is None


def test_a_template_of_tensorflow_serves_no_rank_of_pytorch(keep: Keep) -> None:
    supervisor = keep()
    template = supervisor.template()
    assert template is not None
    assert template.serves("mwms_ring")
    assert not template.serves("torch_ddp")


def test_a_template_that_cannot_be_started_is_tried_again_ever_more_rarely(
    config: AgentConfig, events: queue.SimpleQueue[AgentEvent], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = TemplateSupervisor(
        dataclasses.replace(config, template=("/no/such/program",)), events.put
    )
    for now in (
        0.0,
        FIRST_TEMPLATE_PAUSE_S,
        FIRST_TEMPLATE_PAUSE_S + 0.1,
        3 * FIRST_TEMPLATE_PAUSE_S,
    ):
        supervisor.tick(now=now, is_idle=True)
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [
        *(FIRST_TEMPLATE_PAUSE_S, 2 * FIRST_TEMPLATE_PAUSE_S, 4 * FIRST_TEMPLATE_PAUSE_S)
    ]
    assert "No such file" in caplog.text


def test_a_template_without_a_thread_to_wait_for_it_is_not_kept(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    before = psutil.Process().children()
    supervisor = keep()
    assert "can't start new thread" in caplog.text
    assert supervisor.pids == set()
    assert psutil.Process().children() == before


def test_an_own_trainer_command_is_always_started_cold(tmp_path: Path) -> None:
    environ = {"AGENT_ID": "a", "AGENT_STATE_DIR": str(tmp_path)}
    assert load_config(environ).template is not None
    assert load_config({**environ, "AGENT_TRAINER": "sleep 60"}).template is None
    assert load_config({**environ, "AGENT_WARM_TRAINERS": "false"}).template is None
