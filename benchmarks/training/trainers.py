"""Starts trainers as an agent does, warm or cold, without a farm."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from farm.configuration.spec import JobSpec
from farm.errors import FarmError
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    GoLine,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
)
from worker_agent.config import AgentConfig, load_config
from worker_agent.supervisor.events import AgentEvent, TemplateGone
from worker_agent.trainer_process.environment import trainer_environment
from worker_agent.trainer_process.process import TrainerProcess
from worker_agent.trainer_process.template import TemplateProcess

_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRun:
    """One job, of its slowest rank."""

    ready_s: float  # from the start of the first trainer process until all wait for go
    go_to_first_step_s: float
    connect_s: float  # its own word: from go until everything is built
    traced_s: float  # its own word: the first step alone
    step_s: float  # median of the timed steps

    @property
    def first_step_s(self) -> float:
        """From the start of its processes, without what it waited for go."""
        return self.ready_s + self.go_to_first_step_s


class DrivenTrainer:
    """One trainer, driven by its line protocol."""

    def __init__(
        self, job: JobSpec, rank: int, *, config: AgentConfig, template: TemplateProcess | None
    ) -> None:
        self._events: queue.SimpleQueue[tuple[float, TrainerEvent | int]] = queue.SimpleQueue()
        self.steps: list[float] = []
        self.has_ended = threading.Event()
        self.process = TrainerProcess(
            config.trainer,
            Assignment(job=job, rank=rank, cpus=config.cpus),
            environment=trainer_environment(os.environ, state_dir=config.settings.state_dir),
            folder=config.settings.state_dir,
            on_event=lambda event: self._events.put((time.monotonic(), event)),
            on_exit=self._end,
            template=template,
        )

    def _end(self, code: int) -> None:
        self._events.put((time.monotonic(), code))
        self.has_ended.set()

    def wait_for(self, kind: type) -> tuple[float, TrainerEvent | int]:
        """Return the next event of `kind` (int: its end) with the instant of its arrival."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                at, event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise FarmError(f"no {kind.__name__} from a trainer in {_LIMIT_S:g} s") from None
            if isinstance(event, Steps) and event.kind is StepKind.TIMED:
                self.steps += event.times_s
            if isinstance(event, kind):
                return at, event
            if isinstance(event, Failure | int):
                raise FarmError(f"trainer failed: {event}\n{self.process.log_tail}")


class Trainers:
    """The trainers of one job, one for each rank, each on its own cores.

    Every part of their way is done when it is asked for; in between they wait or stand still.
    """

    def __init__(
        self,
        job: JobSpec,
        configs: Sequence[AgentConfig],
        templates: Sequence[TemplateProcess | None],
    ) -> None:
        """Start them and wait until all are ready for go. `close` them, even if this fails."""
        self._cleanup = ExitStack()
        self._ranks: list[DrivenTrainer] = []
        self._started: Started | None = None
        begun_s = time.monotonic()
        try:
            for number in range(job.world_size):
                rank = DrivenTrainer(
                    job, number, config=configs[number], template=templates[number]
                )
                self._cleanup.callback(rank.process.close)
                self._cleanup.callback(rank.process.kill)
                self._ranks.append(rank)
            self._ready_s = max(rank.wait_for(Ready)[0] for rank in self._ranks) - begun_s
        except BaseException:
            self.close()
            raise

    def go(self) -> None:
        """Let them do their first step and then stand still."""
        cluster = {"worker": tuple(f"127.0.0.1:{port}" for port in free_ports(len(self._ranks)))}
        begun_s = time.monotonic()
        for number, rank in enumerate(self._ranks):
            rank.process.write(GoLine(cluster=cluster, task_index=number))
        arrivals = [rank.wait_for(Started) for rank in self._ranks]
        self._signal(signal.SIGSTOP)
        arrived_s, started = max(arrivals, key=lambda arrival: arrival[0])
        assert isinstance(started, Started)
        self._started, self._first_step_s = started, arrived_s - begun_s

    @property
    def is_done(self) -> bool:
        return any(rank.has_ended.is_set() for rank in self._ranks)

    def train_for(self, duration_s: float) -> None:
        """Train, and stand still afterwards."""
        self._signal(signal.SIGCONT)
        self._ranks[0].has_ended.wait(duration_s)
        self._signal(signal.SIGSTOP)

    def finish(self) -> TrainerRun:
        """Train to the end."""
        self._signal(signal.SIGCONT)
        for rank in self._ranks:
            rank.wait_for(TrainerResult)
        for rank in self._ranks:
            rank.wait_for(int)
        assert self._started is not None
        return TrainerRun(
            ready_s=self._ready_s,
            go_to_first_step_s=self._first_step_s,
            connect_s=self._started.connect_s,
            traced_s=self._started.first_step_s,
            step_s=max(statistics.median(rank.steps) for rank in self._ranks),
        )

    def close(self) -> None:
        """End them, if they have not ended."""
        self._cleanup.close()

    def _signal(self, number: signal.Signals) -> None:
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.process.pid, number)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [int(held.getsockname()[1]) for held in sockets]


@contextmanager
def ready_templates(configs: Sequence[AgentConfig]) -> Iterator[list[TemplateProcess]]:
    """Start a template for each agent and wait until all of them have imported everything."""
    events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
    templates: list[TemplateProcess] = []
    try:
        for number, config in enumerate(configs):
            assert config.template is not None
            environment = trainer_environment(os.environ, state_dir=config.settings.state_dir)
            template = TemplateProcess(
                number,
                config.template,
                environment=environment,
                folder=config.settings.state_dir,
                post=events.put,
            )
            templates.append(template)
        for _ in configs:
            event = events.get(timeout=_LIMIT_S)
            if isinstance(event, TemplateGone):
                raise FarmError(f"template ended: {templates[event.template].log_tail}")
        yield templates
    finally:
        for template in templates:
            template.kill()
        for _ in templates:
            while not isinstance(events.get(timeout=_LIMIT_S), TemplateGone):
                pass


def config_of(core: int, folder: Path) -> AgentConfig:
    """Return the settings of an agent that has one core."""
    state_dir = folder / str(core)
    state_dir.mkdir()
    return load_config(
        {"AGENT_ID": f"core-{core}", "AGENT_CPUS": str(core), "AGENT_STATE_DIR": str(state_dir)}
    )
