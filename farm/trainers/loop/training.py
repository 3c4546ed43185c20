"""The training loop of one rank: warm-up, timed steps or epochs, evaluation, profiled steps.

It drives an `Engine` and knows no framework. While only rank 0 works (evaluation), the others wait
at a barrier, so no step time includes that work.

A job by steps goes through as many epochs as its warm-up and timed steps need. The last, partial
step of an epoch is stored as such and is not counted as timed. A job by epochs resets the weights
and the optimizer's state after the warm-up: its epochs are complete passes from the initial
weights, and the accuracy after each is exact.
"""

from __future__ import annotations

import gc
import itertools
import math
import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from farm.configuration.spec import TrainingPass
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    FailureKind,
    Started,
    StepKind,
    StepProfile,
    TrainerResult,
)
from farm.trainers.contracts import Engine, Evaluation
from farm.trainers.failures import RankFailed
from farm.trainers.loop.batches import StepBatch, endless_steps, epoch_steps
from farm.trainers.loop.peak import peak_flop_per_s
from farm.trainers.loop.recorder import StepRecorder
from farm.trainers.loop.step_profile import step_profile
from farm.trainers.loop.window import TimedWindow
from farm.trainers.processes.process import EventWriter

# Enough for a median. Every rank must run as many, so the number may not depend on the clock.
_PROFILED_STEP_COUNT = 10
# A training diverges if more than half of so many steps in a row have too high a loss: fewer can be
# a spike that it recovers from.
DIVERGENCE_STEP_COUNT = 20
# A classifier that knows nothing has a loss of ln(classes), 0.7 to 7; trained in earnest it never
# comes near to a thousand times that, however rough the first steps with a large batch are.
DIVERGENCE_FACTOR = 1e3
# A loss that happens to be tiny at first may well grow a thousandfold.
SMALLEST_REFERENCE = 1.0


@dataclass(slots=True)
class _Trained:
    """What the timed part came to; loss and evaluation are of its end."""

    step_count: int = 0  # partial ones included
    full_step_count: int = 0
    train_loss: float | None = None
    evaluation: Evaluation | None = None


class Training:
    """One rank's way from the first step to the result."""

    def __init__(
        self,
        assignment: Assignment,
        engine: Engine,
        *,
        line: EventWriter,
        examples_count: int,
        connect_s: float,
        has_whole_batch: bool = False,
        batch_weights: Sequence[float] | None = None,
        weights_checksum: float | None = None,
    ) -> None:
        """`has_whole_batch`: each rank does; see `StrategyFacts.splits_layers`."""
        self._job = assignment.job
        self._rank = assignment.rank
        self._sharing_rank = None if has_whole_batch else assignment.rank
        self._engine = engine
        self._examples_count = examples_count
        self._batch_weights = batch_weights
        self._runner = _StepRunner(
            engine, line, connect_s=connect_s, weights_checksum=weights_checksum
        )
        self._core_count = len(assignment.cpus)
        self._window = TimedWindow(assignment.interface, cpu_s=self._cpu_s)
        self._barrier_count = 0

    def run(self) -> TrainerResult:
        """Train as the job requires, and return the result without sending it.

        Raises:
            RankFailed: NOT_A_NUMBER, DIVERGED. Whatever else the framework raises passes through.
        """
        # Before the warm-up, which fills the caches again; at the same time on every rank, so that
        # those of one machine share what they share in training.
        self._wait_for_peers()
        peak = peak_flop_per_s(self._engine.matrix_product)
        self._engine.take_device_memory_bytes()  # which the matrices have taken
        trained = self._by_steps() if self._job.steps is not None else self._by_epochs()
        evaluation = trained.evaluation
        exchange = self._engine.take_exchange()
        data_wait_s = self._take_data_wait_s()
        device_memory_bytes = self._engine.take_device_memory_bytes()
        weights = self._engine.weight_sums()
        peak_resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        profile = self._profile(min(_PROFILED_STEP_COUNT, trained.full_step_count))
        # A rank that is done first must not end while others need it, or its server.
        self._wait_for_peers()
        self._runner.recorder.flush()
        window = self._window
        return TrainerResult(
            **window.figures(),
            timed_step_count=trained.full_step_count,
            window_step_count=trained.step_count,
            train_loss=trained.train_loss,
            val_accuracy_ratio=evaluation.val_accuracy_ratio if evaluation else None,
            peak_resident_bytes=peak_resident_bytes,
            seed=self._job.seed,
            profile=profile,
            exchange=exchange,
            data_wait_s=data_wait_s,
            peak_flop_per_s=peak,
            peak_device_memory_bytes=device_memory_bytes,
            details={
                **self._engine.settings,
                "batch_weights": self._batch_weights,
                **window.details(self._core_count),
                "val_loss": evaluation.val_loss if evaluation else None,
                "weights_sum": weights.total,
                "weights_square_sum": weights.total_of_squares,
            },
        )

    def _by_steps(self) -> _Trained:
        assert self._job.steps is not None
        stream = self._endless_steps()
        self._load(self._endless_steps())
        self._warm_up(stream)
        self._settle()
        self._window.open()
        passed = self._runner.run(_until_full(stream, self._job.steps), StepKind.TIMED)
        self._close_window()
        self._runner.recorder.flush()
        return _Trained(
            step_count=passed.step_count,
            full_step_count=passed.full_step_count,
            train_loss=passed.train_loss,
            evaluation=self._evaluate(),
        )

    def _by_epochs(self) -> _Trained:
        assert self._job.epochs is not None
        with self._runner.recorder.beating():
            initial = self._engine.save()
        self._load(self._endless_steps())
        self._warm_up(self._endless_steps())
        # The first batches are there when the first epoch begins, as are those of the others.
        self._load(step for epoch in range(self._job.epochs) for step in self._epoch_steps(epoch))
        with self._runner.recorder.beating():
            self._engine.restore(initial)
        self._settle()
        trained = _Trained()
        for epoch in range(self._job.epochs):
            # A list, so that the epoch's order is drawn before its first step is timed.
            steps = list(self._epoch_steps(epoch))
            self._window.open()
            passed = self._runner.run(steps, StepKind.TIMED)
            self._runner.recorder.close_chunk()
            self._close_window()
            trained.step_count += passed.step_count
            trained.full_step_count += passed.full_step_count
            trained.train_loss = passed.train_loss
            trained.evaluation = self._evaluate()
            self._runner.recorder.add_epoch(_epoch(epoch, passed, trained.evaluation))
        return trained

    def _endless_steps(self) -> Iterator[StepBatch]:
        return endless_steps(
            self._job,
            rank=self._sharing_rank,
            examples_count=self._examples_count,
            weights=self._batch_weights,
        )

    def _epoch_steps(self, epoch: int) -> Iterator[StepBatch]:
        return epoch_steps(
            self._job,
            rank=self._sharing_rank,
            epoch=epoch,
            examples_count=self._examples_count,
            weights=self._batch_weights,
        )

    def _load(self, steps: Iterator[StepBatch]) -> None:
        """Tell the engine's loader, if it has one, of all steps until it is told of others."""
        if self._engine.loader is not None:
            self._engine.loader.begin(step.indices for step in steps)

    def _take_data_wait_s(self) -> float | None:
        """Return for how long steps have waited since the last call; None: they had no loader."""
        loader = self._engine.loader
        return None if loader is None else loader.take_wait_s()

    def _cpu_s(self) -> float:
        """Return the processor time of this process, and of those that load its batches."""
        loader = self._engine.loader
        return time.process_time() + (0.0 if loader is None else loader.cpu_s())

    def _warm_up(self, stream: Iterator[StepBatch]) -> None:
        """Run the warm-up steps, partial ones among them, so that both sizes are warm."""
        steps = itertools.islice(stream, self._job.warmup_step_count)
        self._runner.run(steps, StepKind.WARMUP)
        self._runner.recorder.flush()

    def _settle(self) -> None:
        """Make everything quiet for the timed steps, and begin them together."""
        # A full collection walks the hundreds of thousands of objects of the imported libraries,
        # tens of milliseconds in the middle of some step. Frozen, they are never walked again,
        # and the collector can stay on for long trainings.
        gc.collect()
        gc.freeze()
        self._engine.take_exchange()  # what the warm-up has counted
        self._take_data_wait_s()
        self._wait_for_peers()

    def _close_window(self) -> None:
        """Stop the clock, and read the counters once every rank has what this one sent."""
        self._window.stop()
        self._wait_for_peers()
        self._window.close()

    def _evaluate(self) -> Evaluation | None:
        """Let rank 0 evaluate while the others wait; None elsewhere, and where nothing is trained.

        Raises:
            RankFailed: NOT_A_NUMBER, the last update has ruined the weights.
        """
        if self._job.training_pass is TrainingPass.FORWARD:
            return None
        evaluation = None
        with self._runner.recorder.beating():  # ranks that are behind may take their time
            self._engine.prepare_evaluation()
        if self._rank == 0:
            evaluation = self._engine.evaluate(on_batch=self._runner.recorder.beat)
            if not math.isfinite(evaluation.val_loss):
                raise RankFailed(
                    FailureKind.NOT_A_NUMBER,
                    f"val_loss: expected a finite number, got {evaluation.val_loss} after step"
                    f" {self._runner.recorder.step_count - 1}",
                )
        self._wait_for_peers()
        return evaluation

    def _wait_for_peers(self) -> None:
        """Wait at the next barrier; a peer that dies meanwhile ends the wait with an error."""
        self._barrier_count += 1
        with self._runner.recorder.beating():
            self._engine.wait_for_peers(
                f"loop-{self._barrier_count}", timeout_s=self._job.time_limit_s
            )

    def _profile(self, step_count: int) -> StepProfile | None:
        """Run some more full steps under the profiler, after all results are in."""
        if self._job.training_pass is TrainingPass.FORWARD:
            return None
        full_steps = (step for step in self._endless_steps() if not step.is_partial)
        steps = list(itertools.islice(full_steps, step_count + 1))  # see `step_profile`
        self._load(iter(steps))
        times_s: list[float] = []

        def run_steps() -> None:
            # Starting the profiler takes each rank its own time.
            self._wait_for_peers()
            for step in steps:
                times_s.append(self._runner.run([step], StepKind.PROFILED).train_s)

        return step_profile(
            times_s, self._engine.trace(run_steps), period=self._job.steps_between_averages
        )


def _until_full(stream: Iterator[StepBatch], full_step_count: int) -> Iterator[StepBatch]:
    """Yield steps until that many full ones have passed, the partial ones between included."""
    while full_step_count:
        step = next(stream)
        yield step
        full_step_count -= not step.is_partial


def _epoch(epoch: int, passed: _Passed, evaluation: Evaluation | None) -> Epoch:
    return Epoch(
        epoch=epoch,
        train_s=passed.train_s,
        step_count=passed.step_count,
        train_loss=passed.train_loss,
        val_loss=evaluation.val_loss if evaluation else None,
        val_accuracy_ratio=evaluation.val_accuracy_ratio if evaluation else None,
    )


@dataclass(slots=True)
class _Passed:
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


class _StepRunner:
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
        self._loss_watch = DivergenceDetector()
        self.recorder = StepRecorder(line)

    def run(self, steps: Iterable[StepBatch], kind: StepKind) -> _Passed:
        """Run `steps` and record each as `kind`, or as partial where a timed one is.

        Raises:
            RankFailed: NOT_A_NUMBER, the loss of a step was not finite; DIVERGED.
        """
        passed = _Passed()
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


class DivergenceDetector:
    """Detects a diverging training while its loss is still a number.

    It ends as NaN or, where rectifiers die on the way, with a huge loss for good; either way its
    step times are worth no more, and its result is that it cannot train. Follows one rank's
    train_loss, a mean over examples, step by step.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self._limit = 0.0
        self._window: deque[bool] = deque(maxlen=DIVERGENCE_STEP_COUNT)
        self._high_count = 0

    def diverges(self, train_loss: float) -> bool:
        """Add the next step's loss; return whether the median of the last ones is far too large.

        It is when more than half of the last 20 lie above a thousand times the first one. Costs
        less than a microsecond, since it counts instead of sorting.
        """
        if self.first is None:
            self.first = train_loss
            self._limit = DIVERGENCE_FACTOR * max(train_loss, SMALLEST_REFERENCE)
        is_high = train_loss > self._limit
        if len(self._window) == DIVERGENCE_STEP_COUNT:
            self._high_count -= self._window[0]
        self._window.append(is_high)
        self._high_count += is_high
        return self._high_count > DIVERGENCE_STEP_COUNT // 2
