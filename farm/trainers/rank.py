"""Runs one rank from its assignment to its result; heavy libraries are imported only here."""

from __future__ import annotations

import dataclasses
import logging
import os
import resource
import time
from pathlib import Path
from typing import cast

from farm import registry
from farm.configuration.catalogue import TORCH, StrategyFacts
from farm.configuration.spec import WORKER, Device, JobSpec
from farm.messages.trainer_lines import (
    Assignment,
    Failure,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    Started,
    TrainerResult,
    UserCode,
)
from farm.trainers.contracts import Engine, Model, RankContext, ServedStrategy
from farm.trainers.datasets.arrays import with_hidden_tokens
from farm.trainers.datasets.locations import data_places
from farm.trainers.failures import RankFailed
from farm.trainers.loop.training import Training
from farm.trainers.loop.window import TimedWindow
from farm.trainers.model_files.model_file import ModelFile
from farm.trainers.model_files.spawned import serve_spawned
from farm.trainers.processes.process import EventWriter, Orders, report_own_kills
from farm.trainers.script.rank import run_script
from farm.values.codec import from_text

logger = logging.getLogger(__name__)


def run_rank(assignment: Assignment, *, line: EventWriter, orders: Orders) -> None:
    """Load, report ready, wait for go, train, report the result, and part from the peers.

    Raises:
        FarmError: a reason with a name. Whatever the framework raises passes through.
    """
    job = assignment.job
    launcher = registry.launcher(job.strategy)
    if launcher is not None:
        run_script(assignment, launcher, line=line, orders=orders)
        return
    model = _load_model(assignment, line)
    dataset = registry.dataset(job.dataset)
    strategy = registry.strategy(job.strategy)
    # First, since it needs no framework: an agent without the data says so within a second.
    data = dataset.load(data_places(assignment.data_dir, os.environ))
    if model.facts.restores_tokens:
        data = with_hidden_tokens(data, dataset.facts)
    begun_s = time.monotonic()
    framework = strategy.prepare(job, len(assignment.cpus))
    import_s = time.monotonic() - begun_s
    sha256 = model.sha256 if isinstance(model, ModelFile) else None
    line.emit(
        Ready(
            import_s=import_s,
            framework=framework,
            dataset=data.source,
            model_sha256=sha256,
            device_control_s=_device_control_s(assignment, strategy.facts),
        )
    )

    go = from_text(GoLine, orders.next_line(timeout_s=job.time_limit_s))
    rank_context = RankContext(
        job=job,
        rank=assignment.rank,
        role=assignment.role,
        go=go,
        model=model,
        dataset=dataset.facts,
        data=data,
        peer_timeout_s=assignment.peer_timeout_s,
    )
    if rank_context.role != WORKER:
        line.emit(serve(cast(ServedStrategy, strategy), rank_context, line, assignment.interface))
        return
    begun_s = time.monotonic()
    engine = strategy.build(rank_context)
    connect_s = time.monotonic() - begun_s
    _check_gpu(job, engine, framework)
    is_compared = isinstance(model, ModelFile) and job.world_size > 1
    training = Training(
        assignment,
        engine,
        line=line,
        examples_count=len(data.train.labels),
        connect_s=connect_s,
        has_whole_batch=strategy.facts.splits_layers and job.world_size > 1,
        batch_weights=go.batch_weights,
        weights_checksum=engine.weights_checksum() if is_compared else None,
    )
    line.emit(training.run())
    engine.leave()


def _load_model(assignment: Assignment, line: EventWriter) -> Model:
    """Find the job's model. A model file is prepared to run, and says when its code runs."""
    job = assignment.job
    file = None if assignment.model_file is None else Path(assignment.model_file)
    model = registry.model(job.model, file=file)
    if isinstance(model, ModelFile):
        model = dataclasses.replace(
            model,
            world_size=job.world_size,
            announce=lambda is_running: line.emit(
                UserCode(name=f"model {job.model}", is_running=is_running)
            ),
        )
        serve_spawned(model)
        report_own_kills(lambda how: line.emit(_own_kill(job.model, how)))
    return model


def _check_gpu(job: JobSpec, engine: Engine, framework: str) -> None:
    if job.device is Device.GPU and engine.settings.get("device") != Device.GPU.value:
        raise RankFailed(
            FailureKind.TRAINER_RAISED,
            f"device: expected a GPU, and {framework} finds none that it can use: install its build"
            " for this GPU's CUDA",
        )


def _device_control_s(assignment: Assignment, facts: StrategyFacts) -> float | None:
    """Do the control run of the GPU that a rank of PyTorch trains on, if it does."""
    if assignment.role != WORKER or facts.framework != TORCH:
        return None
    from farm.trainers.torch.gpu_control_run import device_control_s

    return device_control_s(assignment.job)


def _own_kill(model: str, how: str) -> Failure:
    text = f"model {model}: expected its code to return, but it {how}"
    return Failure(kind=FailureKind.TRAINER_RAISED, message=text)


def serve(
    strategy: ServedStrategy, rank_context: RankContext, line: EventWriter, interface: str
) -> TrainerResult:
    """Serve until every rank that trains has left, and return the result, unsent.

    It counts no payload: a server cannot tell timed steps from others, and what it sends is what
    the ranks that train receive, who can.

    Raises:
        RankFailed: see `ServedStrategy.serve`.
    """
    window = TimedWindow(interface)
    window.open()
    line.emit(Started(parameter_count=0, gradient_bytes=0, connect_s=0.0, first_step_s=0.0))
    sent_at_s = time.monotonic()

    def beat() -> None:
        nonlocal sent_at_s
        if time.monotonic() - sent_at_s >= 1.0:
            sent_at_s = time.monotonic()
            line.emit(Progress(step_count=0))

    strategy.serve(rank_context, beat)
    window.close()
    assert window.begun_s is not None
    counted = window.interface_bytes
    return TrainerResult(
        timed_step_count=0,
        window_step_count=0,
        timed_window_s=window.span_s,
        timed_begun_monotonic_s=window.begun_s,
        interface_rx_bytes=counted.rx_bytes if counted else None,
        interface_tx_bytes=counted.tx_bytes if counted else None,
        payload_rx_bytes=None,
        payload_tx_bytes=None,
        train_loss=None,
        val_accuracy_ratio=None,
        peak_resident_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        seed=rank_context.job.seed,
    )
