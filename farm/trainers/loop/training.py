"""The training loop of one rank: warm-up, timed steps or epochs, evaluation, profiled steps.

It drives an `Engine` and knows no framework. Where only rank 0 works (evaluation) the others wait
at a barrier, so that it never pollutes a step time.

By steps, warm-up and timed steps walk through as many epochs as it takes; an epoch's last, partial
step is kept as such and is not counted as timed. By epochs, the weights and the optimizer's state
are put back after the warm-up: the trained epochs are complete passes from the initial weights, and
the accuracy after each is exact.
"""

from __future__ import annotations

import gc
import itertools
import math
import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from farm.configuration.spec import TrainingPass
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    FailureKind,
    StepKind,
    StepProfile,
    TrainerResult,
)
from farm.trainers.contracts import Engine, Evaluation
from farm.trainers.failures import RankFailed
from farm.trainers.loop.batches import StepBatch, endless_steps, epoch_steps
from farm.trainers.loop.peak import peak_flop_per_s
from farm.trainers.loop.recorder import SEND_INTERVAL_S, StepRecorder
from farm.trainers.loop.runner import Passed, StepRunner
from farm.trainers.loop.step_profile import step_profile
from farm.trainers.loop.window import TimedWindow
from farm.trainers.processes.process import EventWriter

# Enough for a median. Every rank must run as many, so the number may not depend on the clock.
PROFILED_STEP_COUNT = 10


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
        self._runner = StepRunner(
            engine, line, connect_s=connect_s, weights_checksum=weights_checksum
        )
        self._core_count = len(assignment.cpus)
        self._window = TimedWindow(assignment.interface, cpu_s=self._cpu_s)
        self._barrier_count = 0

    def run(self) -> TrainerResult:
        """Train as the job says and return the result, unsent.

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
        profile = self._profile(min(PROFILED_STEP_COUNT, trained.full_step_count))
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
        with signs_of_life(self._runner.recorder):
            initial = self._engine.save()
        self._load(self._endless_steps())
        self._warm_up(self._endless_steps())
        # The first batches are there when the first epoch begins, as are those of the others.
        self._load(step for epoch in range(self._job.epochs) for step in self._epoch_steps(epoch))
        with signs_of_life(self._runner.recorder):
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
        with signs_of_life(self._runner.recorder):  # ranks that are behind may take their time
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
        with signs_of_life(self._runner.recorder):
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


def _epoch(epoch: int, passed: Passed, evaluation: Evaluation | None) -> Epoch:
    return Epoch(
        epoch=epoch,
        train_s=passed.train_s,
        step_count=passed.step_count,
        train_loss=passed.train_loss,
        val_loss=evaluation.val_loss if evaluation else None,
        val_accuracy_ratio=evaluation.val_accuracy_ratio if evaluation else None,
    )


@contextmanager
def signs_of_life(recorder: StepRecorder) -> Iterator[None]:
    """Let the recorder report progress, at its own pace, for as long as the block lasts.

    For blocks that only wait and record nothing: the rank that works must report its own progress,
    so that a stall of it is not covered up.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(SEND_INTERVAL_S / 4):
            recorder.beat()

    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
