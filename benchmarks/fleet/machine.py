"""Simulates the machine and the trainer of a rank, without processes.

Pure: it returns events and their times; the caller has the clock.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator

from benchmarks.server.rows import make_sample
from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress, StartRank
from farm.messages.reports import LogPart, PeerRtt
from farm.messages.trainer_lines import (
    DatasetSource,
    GoLine,
    Progress,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
)
from worker_agent.metrics.sampler import BATCH_TICKS
from worker_agent.rank.memory_evidence import MemoryEvidence
from worker_agent.supervisor.events import (
    MeasuringPurpose,
    NetworkMeasured,
    RankCleared,
    RankEvent,
    Sampled,
    TrainerExited,
    TrainerOutput,
)

STEP_S = 0.1
_BACKLOG = "backlog-"  # of a role, before its seconds
_PREPARE_S, _MEASURE_S, _CLEAR_S = 0.05, 0.02, 0.02
_FIRST_STEP_S = 0.2
_MOST_AT_ONCE = 20  # of what is overdue, so that the others of the process have their turn
_STEPS_A_SECOND = round(1 / STEP_S)
_SOURCE = DatasetSource(
    name="digits",
    origin="a simulated agent",
    sha256="0" * 64,
    is_synthetic=False,
    train_examples_count=1437,
    test_examples_count=360,
)


def backlog_role(backlog_s: int) -> str:
    """Return the role of agents, and jobs, of which so much waits when the training begins."""
    return f"{_BACKLOG}{backlog_s}"


def _backlog_s(role: str) -> int:
    return int(role.removeprefix(_BACKLOG)) if role.startswith(_BACKLOG) else 0


class TimedResources:
    """In the place of `rank.resources.RankResources`; `take_due` says what has happened.

    A step takes `STEP_S`, and samples and steps come as a real rank's do: every `BATCH_TICKS`
    ticks, and once a second.
    """

    def __init__(self, command: StartRank, *, now: float, rng: random.Random) -> None:
        self._command = command
        self._now = now
        self._rng = rng
        self._order = itertools.count()
        self._due: list[tuple[float, int, RankEvent]] = []
        self._go_s = 0.0
        self._tick = 0
        self._step = 0
        self._step_count = (command.spec.steps or 0) + command.spec.warmup_step_count
        self._sampling_from = float("inf")
        self._training_from = float("inf")

    @property
    def due_s(self) -> float:
        """When something happens next; infinity where nothing will."""
        first_s = self._due[0][0] if self._due else float("inf")
        return min(first_s, self._sampling_from, self._training_from)

    def take_due(self, *, now: float) -> list[RankEvent]:
        """Return what has happened until now, in order."""
        self._now = now
        for _ in range(_MOST_AT_ONCE):
            if self._sampling_from <= now:
                self._sample()
            if self._training_from <= now:
                self._train()
        events = []
        while self._due and self._due[0][0] <= now:
            events.append(heapq.heappop(self._due)[2])
        return events

    def prepare(self) -> RankAddress:
        self._say(_PREPARE_S, Ready(import_s=0.0, framework="fake 1.0", dataset=_SOURCE))
        first = 20000 + 10 * self._command.rank
        ports = tuple(first + 1 + i for i in range(len(self._command.roles)))
        return RankAddress(
            rank=self._command.rank, host="127.0.0.1", probe_port=first, trainer_ports=ports
        )

    def measure(self, addresses: tuple[RankAddress, ...], *, timeout_s: float) -> None:
        self._measured(MeasuringPurpose.UNTOUCHED, addresses)

    def shape(
        self,
        profile: NetworkProfile | None,
        *,
        addresses: tuple[RankAddress, ...],
        timeout_s: float,
    ) -> None:
        self._measured(MeasuringPurpose.SHAPED, addresses)

    def go(self, lines: tuple[GoLine, ...], *, go_s: float) -> None:
        self._go_s = go_s
        # They are due at once, as what has waited for as long.
        self._sampling_from = self.instant_of(0)
        self._training_from = go_s + _FIRST_STEP_S + 1.0
        started = Started(
            parameter_count=1000, gradient_bytes=4000, connect_s=0.01, first_step_s=_FIRST_STEP_S
        )
        self._say(_FIRST_STEP_S, started)

    def instant_of(self, tick: int) -> float:
        """Return when a sample was made, or would have been if it is of the backlog."""
        return self._go_s - _backlog_s(self._command.spec.labels.get("role", "")) + tick

    def clear(self, *, has_succeeded: bool = False) -> None:
        self._due = [entry for entry in self._due if isinstance(entry[2], Sampled)]
        heapq.heapify(self._due)
        self._sampling_from = self._training_from = float("inf")
        self._after(_CLEAR_S, RankCleared(token=self._command.token))

    def log_parts(self, *, is_last: bool = False) -> Iterator[LogPart]:
        return iter(())

    def log_tail(self) -> str:
        return ""

    def memory_evidence(self, process: int) -> MemoryEvidence:
        return MemoryEvidence()

    def _sample(self) -> None:
        samples = tuple(make_sample(self._tick + i, self._rng) for i in range(BATCH_TICKS))
        at_s = self._sampling_from + BATCH_TICKS - 1
        self._put(at_s, Sampled(token=self._command.token, samples=samples))
        self._tick += BATCH_TICKS
        self._sampling_from += BATCH_TICKS

    def _train(self) -> None:
        warmup = self._command.spec.warmup_step_count
        kind, end = (
            (StepKind.WARMUP, warmup) if self._step < warmup else (StepKind.TIMED, self._step_count)
        )
        count = min(_STEPS_A_SECOND, end - self._step)
        at_s = self._training_from
        if count > 0:
            steps = Steps(
                kind=kind,
                first_step=self._step,
                begun_monotonic_s=at_s - 1.0,
                times_s=tuple(STEP_S * self._rng.uniform(0.98, 1.02) for _ in range(count)),
            )
            self._speak(at_s, steps)
            self._step += count
            self._speak(at_s, Progress(step_count=self._step))
        if self._step < self._step_count:
            self._training_from += 1.0
            return
        self._training_from = float("inf")
        self._speak(at_s, self._result(at_s))
        self._put(at_s, TrainerExited(token=self._command.token, process=0, return_code=0))

    def _result(self, at_s: float) -> TrainerResult:
        timed = self._step_count - self._command.spec.warmup_step_count
        return TrainerResult(
            timed_step_count=timed,
            window_step_count=timed,
            timed_window_s=timed * STEP_S,
            timed_begun_monotonic_s=max(self._go_s, at_s - timed * STEP_S),
            interface_rx_bytes=8000 * timed,
            interface_tx_bytes=8000 * timed,
            payload_rx_bytes=8000 * timed,
            payload_tx_bytes=8000 * timed,
            train_loss=0.5,
            val_accuracy_ratio=0.9 if self._command.rank == 0 else None,
            peak_resident_bytes=10_000_000,
            seed=self._command.spec.seed,
        )

    def _measured(self, purpose: MeasuringPurpose, addresses: tuple[RankAddress, ...]) -> None:
        others = [a.rank for a in addresses if a.rank != self._command.rank]
        measured = NetworkMeasured(
            token=self._command.token,
            purpose=purpose,
            emulator="none",
            rtts=tuple(PeerRtt(rank=rank, rtt_s=2e-4, probe_count=20) for rank in others),
            failure=None,
        )
        self._after(_MEASURE_S, measured)

    def _say(self, after_s: float, event: TrainerEvent) -> None:
        self._speak(self._now + after_s, event)

    def _speak(self, at_s: float, event: TrainerEvent) -> None:
        self._put(at_s, TrainerOutput(token=self._command.token, process=0, event=event))

    def _after(self, after_s: float, event: RankEvent) -> None:
        self._put(self._now + after_s, event)

    def _put(self, at_s: float, event: RankEvent) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), event))
