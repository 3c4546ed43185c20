"""What a rank holds on its machine, without processes and networks: it goes on when it is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from farm.configuration.spec import NetworkProfile
from farm.messages.commands import RankAddress, StartRank
from farm.messages.reports import LogPart, Sample
from farm.messages.trainer_lines import (
    DatasetSource,
    Failure,
    GoLine,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
)
from worker_agent.rank.memory_evidence import MemoryEvidence
from worker_agent.supervisor.events import (
    MeasuringPurpose,
    NetworkMeasured,
    Post,
    RankCleared,
    RankEvent,
    Sampled,
    TrainerExited,
    TrainerOutput,
)

_SOURCE = DatasetSource(
    name="digits",
    origin="a test",
    sha256="0" * 64,
    is_synthetic=False,
    train_examples_count=1437,
    test_examples_count=360,
)
_READY = Ready(import_s=1.0, framework="tensorflow 2.21.0", dataset=_SOURCE)
_STARTED = Started(parameter_count=100, gradient_bytes=400, connect_s=0.1, first_step_s=0.2)
_STEPS_S = (0.2, 0.2, 0.2)
KILLED_CODE = -9


class SimulatedResources:
    """In the place of `worker_agent.rank.resources.RankResources`.

    What it would do in threads waits in `under_way`, in order, until `work` is called.
    """

    def __init__(self, command: StartRank, *, post: Post) -> None:
        self._command = command
        self._post = post
        self._log = 0
        self._logged = 0
        self._has_trainer = False
        self.under_way: deque[RankEvent] = deque()
        self.is_cleared = False

    def work(self) -> bool:
        """Let the next thing happen; False where there is none."""
        if not self.under_way:
            return False
        event = self.under_way.popleft()
        self._log += 1
        self.is_cleared = self.is_cleared or isinstance(event, RankCleared)
        self._post(event)
        return True

    def die(self, return_code: int = KILLED_CODE) -> None:
        """End the trainer as somebody else's signal does."""
        if self._has_trainer:
            self._has_trainer = False
            self._drop_trainer()
            self.under_way.appendleft(
                TrainerExited(token=self._command.token, process=0, return_code=return_code)
            )

    def fail(self, failure: Failure) -> None:
        """Let the trainer give up, for a reason that it tells."""
        if self._has_trainer:
            self._drop_trainer()
            self._say(failure)
            self._exit(1)

    def prepare(self) -> RankAddress:
        self._has_trainer = True
        self._say(_READY)
        return RankAddress(
            rank=self._command.rank,
            host="127.0.0.1",
            probe_port=20000,
            trainer_ports=tuple(20001 + i for i in range(len(self._command.roles))),
        )

    def measure(self, addresses: tuple[RankAddress, ...], *, timeout_s: float) -> None:
        assert len(addresses) == self._command.agent_count
        self._measured(MeasuringPurpose.UNTOUCHED)

    def shape(
        self,
        profile: NetworkProfile | None,
        *,
        addresses: tuple[RankAddress, ...],
        timeout_s: float,
    ) -> None:
        assert profile is None
        self._measured(MeasuringPurpose.SHAPED)

    def go(self, lines: tuple[GoLine, ...], *, go_s: float) -> None:
        if not self._has_trainer:
            return  # its exit is under way
        self._say(_STARTED)
        for tick in range(2):
            self.under_way.append(
                Sampled(token=self._command.token, samples=(Sample(tick=tick, cpu_ratio=0.5),))
            )
        begun_s = go_s + 1.0
        self._say(
            Steps(kind=StepKind.TIMED, first_step=1, begun_monotonic_s=begun_s, times_s=_STEPS_S)
        )
        self._say(_result(begun_s))
        self._exit(0)

    def clear(self, *, has_succeeded: bool = False) -> None:
        # What was measured is still told, as a sampler's last words are; the trainer's are not.
        self._drop_trainer()
        self._has_trainer = False
        self.under_way.append(RankCleared(token=self._command.token))

    def log_parts(self, *, is_last: bool = False) -> Iterator[LogPart]:
        if self._log > self._logged:
            text = "." * (self._log - self._logged)
            first, self._logged = self._logged, self._log
            yield LogPart(first_character=first, text=text)

    def log_tail(self) -> str:
        return ""

    def memory_evidence(self, process: int, *, children: Sequence[int] = ()) -> MemoryEvidence:
        return MemoryEvidence()

    def _say(self, event: TrainerEvent) -> None:
        self.under_way.append(TrainerOutput(token=self._command.token, process=0, event=event))

    def _exit(self, return_code: int) -> None:
        self.under_way.append(
            TrainerExited(token=self._command.token, process=0, return_code=return_code)
        )

    def _measured(self, purpose: MeasuringPurpose) -> None:
        self.under_way.append(
            NetworkMeasured(
                token=self._command.token,
                purpose=purpose,
                emulator="none",
                rtts=(),
                failure=None,
            )
        )

    def _drop_trainer(self) -> None:
        kept = [e for e in self.under_way if not isinstance(e, TrainerOutput | TrainerExited)]
        self.under_way = deque(kept)


def _result(begun_s: float) -> TrainerResult:
    return TrainerResult(
        timed_step_count=len(_STEPS_S),
        window_step_count=len(_STEPS_S),
        timed_window_s=sum(_STEPS_S),
        timed_begun_monotonic_s=begun_s,
        interface_rx_bytes=2400,
        interface_tx_bytes=2400,
        payload_rx_bytes=2400,
        payload_tx_bytes=2400,
        train_loss=0.5,
        val_accuracy_ratio=0.75,
        peak_resident_bytes=10,
        seed=0,
    )
