"""Runs, times and records single steps."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from farm.messages.trainer_lines import FailureKind, Started, StepKind
from farm.trainers.contracts import Engine
from farm.trainers.failures import RankFailed
from farm.trainers.loop.batches import StepBatch
from farm.trainers.loop.recorder import StepRecorder
from farm.trainers.processes.process import EventWriter

# A training diverges if more than half of so many steps in a row have too high a loss: fewer can be
# a spike that it recovers from.
WINDOW_STEP_COUNT = 20
# A classifier that knows nothing has a loss of ln(classes), 0.7 to 7; trained in earnest it never
# comes near to a thousand times that, however rough the first steps with a large batch are.
FACTOR = 1e3
# A loss that happens to be tiny at first may well grow a thousandfold.
SMALLEST_REFERENCE = 1.0


@dataclass(slots=True)
class Passed:
    """What a run of steps came to, on this rank."""

    loss_sum: float = 0.0
    examples_count: int = 0
    step_count: int = 0
    full_step_count: int = 0
    train_s: float = 0.0

    @property
    def train_loss(self) -> float | None:
        """The mean over this rank's examples; None when it had none."""
        return self.loss_sum / self.examples_count if self.examples_count else None


class StepRunner:
    """Drives an engine step by step. Ranks stay in step, since a step ends in a collective."""

    def __init__(
        self,
        engine: Engine,
        line: EventWriter,
        *,
        connect_s: float,
        weights_checksum: float | None = None,
    ) -> None:
        self._engine = engine
        self._weights_checksum = weights_checksum
        self._line = line
        self._connect_s = connect_s
        self._loss_watch = LossWatch()
        self.recorder = StepRecorder(line)

    def run(self, steps: Iterable[StepBatch], kind: StepKind) -> Passed:
        """Run `steps` and record each as `kind`, or as partial where a timed one is.

        Raises:
            RankFailed: NOT_A_NUMBER, the loss of a step was not finite; DIVERGED.
        """
        passed = Passed()
        for step in steps:
            is_partial = step.is_partial and kind is StepKind.TIMED
            time_s, loss_sum = self._run_one(step, StepKind.PARTIAL if is_partial else kind)
            passed.loss_sum += loss_sum
            passed.examples_count += len(step.indices)
            passed.step_count += 1
            passed.full_step_count += not step.is_partial
            passed.train_s += time_s
        return passed

    def _run_one(self, step: StepBatch, kind: StepKind) -> tuple[float, float]:
        begun_s = time.monotonic()
        loss_sum = self._engine.step(step.indices, examples_count=step.examples_count)
        time_s = time.monotonic() - begun_s
        number = self.recorder.step_count
        # Profiled steps come after the results and may not undo them.
        if kind is not StepKind.PROFILED:
            self._check_loss(loss_sum, examples_count=len(step.indices), number=number)
        if number == 0:
            self._line.emit(
                Started(
                    parameter_count=self._engine.parameter_count,
                    gradient_bytes=self._engine.gradient_bytes,
                    connect_s=self._connect_s,
                    first_step_s=time_s,
                    weights_checksum=self._weights_checksum,
                )
            )
        self.recorder.add(kind, begun_s=begun_s, time_s=time_s)
        return time_s, loss_sum

    def _check_loss(self, loss_sum: float, *, examples_count: int, number: int) -> None:
        """Look at the loss between two steps. Every rank looks at its own examples.

        The first that fails leaves the gang, and its peers' next collective ends with an error.
        """
        if not math.isfinite(loss_sum):
            raise RankFailed(
                FailureKind.NOT_A_NUMBER,
                f"train_loss: expected a finite number, got {loss_sum} in step {number}",
            )
        if examples_count == 0:
            return
        train_loss = loss_sum / examples_count
        if self._loss_watch.diverges(train_loss):
            raise RankFailed(
                FailureKind.DIVERGED,
                f"train_loss rose from {self._loss_watch.first:.3g} to {train_loss:.3g} by step"
                f" {number}: the training diverges",
            )


class LossWatch:
    """Tells a training that diverges while its loss is still a number.

    It ends as NaN or, where rectifiers die on the way, with a huge loss for good; either way its
    step times are worth no more, and its result is that it cannot train. Follows one rank's
    train_loss, a mean over examples, step by step.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self._limit = 0.0
        self._window: deque[bool] = deque(maxlen=WINDOW_STEP_COUNT)
        self._high_count = 0

    def diverges(self, train_loss: float) -> bool:
        """Take the next step's loss; say whether the median of the last ones is out of proportion.

        It is when more than half of the last 20 lie above a thousand times the first one. Costs
        less than a microsecond, since it counts instead of sorting.
        """
        if self.first is None:
            self.first = train_loss
            self._limit = FACTOR * max(train_loss, SMALLEST_REFERENCE)
        is_high = train_loss > self._limit
        if len(self._window) == WINDOW_STEP_COUNT:
            self._high_count -= self._window[0]
        self._window.append(is_high)
        self._high_count += is_high
        return self._high_count > WINDOW_STEP_COUNT // 2
