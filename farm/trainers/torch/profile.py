"""Where a step's time goes, read from PyTorch's own profiler in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch.profiler import ProfilerActivity, profile

logger = logging.getLogger(__name__)

STEP = "benchfarm step"  # what a step is recorded as while it is profiled
_ON_CPU = ("gloo:all_reduce",)
_ON_GPU = "ncclDevKernel"
_COMPUTING = "aten::"
_MICROSECONDS_PER_S = 1e6

Span: TypeAlias = tuple[float, float]  # begin and end, in microseconds


def communication_times(run_steps: Callable[[], None]) -> tuple[float, ...] | None:
    """Call `run_steps` under the profiler; return for each step the seconds of communication.

    That is transfer and waiting for slower peers together, as far as nothing is computed meanwhile:
    DistributedDataParallel sums gradients in buckets, whose all-reduces overlap each other and the
    backward pass. None where the profiler left no step.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        run_steps()
    events = profiler.events() or []
    steps = [_span(event) for event in events if event.name == STEP and _is_on_cpu(event)]
    collectives = [event for event in events if _is_collective(event)]
    # Gloo's threads sum what has arrived, which is a part of the collective.
    of_gloo = {event.thread for event in collectives if _is_on_cpu(event)}
    on_gpu = any(not _is_on_cpu(event) for event in events)
    computing = [
        event
        for event in events
        if (
            not _is_on_cpu(event) and not _is_collective(event)
            if on_gpu
            else event.name.startswith(_COMPUTING) and event.thread not in of_gloo
        )
    ]
    return per_step(steps, map(_span, collectives), map(_span, computing)) if steps else None


def per_step(
    steps: Iterable[Span], collectives: Iterable[Span], computing: Iterable[Span] = ()
) -> tuple[float, ...]:
    """Return the seconds of each step in which a collective was under way and nothing computed.

    In order of the steps' time.
    """
    busy = sorted(computing)
    either = sorted([*busy, *collectives])
    return tuple(
        (_covered(step, either) - _covered(step, busy)) / _MICROSECONDS_PER_S
        for step in sorted(steps)
    )


def _covered(step: Span, collectives: Iterable[Span]) -> float:
    """Return how much of a step the collectives, in order of their begin, cover together."""
    covered, reached = 0.0, step[0]
    for begin, end in collectives:
        begin, end = max(begin, reached), min(end, step[1])
        if end > begin:
            covered += end - begin
            reached = end
    return covered


def _is_collective(event: Any) -> bool:
    if _is_on_cpu(event):
        return event.name in _ON_CPU
    return bool(event.name.startswith(_ON_GPU))


def _span(event: object) -> Span:
    interval = event.time_range  # type: ignore[attr-defined] # PyTorch annotates no type of it
    return interval.start, interval.end


def _is_on_cpu(event: object) -> bool:
    return bool(event.device_type == torch.autograd.DeviceType.CPU)  # type: ignore[attr-defined]
