"""Where a step's time goes, read from PyTorch's own profiler in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch.profiler import ProfilerActivity, profile

logger = logging.getLogger(__name__)

STEP = "benchfarm step"  # what a step is recorded as while it is profiled
_ON_CPU = ("gloo:all_reduce",)
_ON_GPU = "ncclDevKernel"
_MICROSECONDS_PER_S = 1e6

Span: TypeAlias = tuple[float, float]  # begin and end, in microseconds


def communication_times(run_steps: Callable[[], None]) -> tuple[float, ...] | None:
    """Call `run_steps` under the profiler; return for each step the seconds in all-reduces.

    DistributedDataParallel sums gradients in buckets, whose all-reduces overlap each other and the
    backward pass; time in which several are under way counts once. It is transfer and waiting for
    slower peers together. None where the profiler left no step.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        run_steps()
    events = profiler.events() or []
    steps = [_span(event) for event in events if event.name == STEP and _is_on_cpu(event)]
    collectives = [
        _span(event)
        for event in events
        if (event.name in _ON_CPU if _is_on_cpu(event) else event.name.startswith(_ON_GPU))
    ]
    return per_step(steps, collectives) if steps else None


def per_step(steps: Iterable[Span], collectives: Sequence[Span]) -> tuple[float, ...]:
    """Return the seconds of each step, in order of time, in which a collective was under way."""
    ordered = sorted(collectives)
    return tuple(_covered(step, ordered) / _MICROSECONDS_PER_S for step in sorted(steps))


def _covered(step: Span, collectives: Iterable[Span]) -> float:
    """Return how much of a step the collectives, in order of their begin, cover together."""
    covered, reached = 0.0, step[0]
    for begin, end in collectives:
        begin, end = max(begin, reached), min(end, step[1])
        if end > begin:
            covered += end - begin
            reached = end
    return covered


def _span(event: object) -> Span:
    interval = event.time_range  # type: ignore[attr-defined] # PyTorch annotates no type of it
    return interval.start, interval.end


def _is_on_cpu(event: object) -> bool:
    return bool(event.device_type == torch.autograd.DeviceType.CPU)  # type: ignore[attr-defined]
