"""Measures by PyTorch's profiler how long each step waits for other ranks.

The farm's engine and users' scripts are measured in the same way. PyTorch is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

STEP = "benchfarm step"  # what a step is recorded as while it is profiled
# Of the libraries that carry collectives, the operations on a CPU and the kernels on a GPU.
_CPU_COLLECTIVES = ("gloo:", "mpi:")
_GPU_COLLECTIVE = "ncclDevKernel"
_CPU_COMPUTING = "aten::"
_MICROSECONDS_PER_S = 1e6


class StepTrace:
    """Profiles the steps of a script from `begin` to `end`, in the thread that trains.

    Raises whatever PyTorch raises.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._profiler = torch.profiler.profile(activities=activities_of(torch))
        self._step: Any = None

    def begin(self) -> None:
        self._profiler.start()
        self.next_step()

    def next_step(self) -> None:
        """End a step, if there is one, and begin the next."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        self._step = self._torch.profiler.record_function(STEP)
        self._step.__enter__()

    def end(self) -> list[float] | None:
        """End the last step; return for each the seconds of communication, see below."""
        self._step.__exit__(None, None, None)
        self._profiler.stop()
        return communication_times(self._profiler.events() or [])


def trace_of_gang() -> StepTrace | None:
    """Return a trace that has begun, if PyTorch is here and in a gang; None: there is nothing."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    try:
        if distributed is None or not distributed.is_initialized():
            return None
        trace = StepTrace(torch)
        trace.begin()
    except Exception:  # a profiler that does not work here
        return None
    return trace


def activities_of(torch: Any) -> list[Any]:
    """Return what to profile: the CPU, and a GPU if there is one."""
    kinds = torch.profiler.ProfilerActivity
    return [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else [])]


def communication_times(events: Iterable[Any]) -> list[float] | None:
    """Return the seconds of communication of each step, in order, from a profiler's events.

    That is transfer and waiting for slower peers together, as far as nothing is computed meanwhile:
    DistributedDataParallel sums gradients in buckets, whose all-reduces overlap each other and the
    backward pass. None where the profiler left no step.
    """
    events = list(events)
    steps = [_span(event) for event in events if event.name == STEP and _is_on_cpu(event)]
    collectives = [event for event in events if _is_collective(event)]
    # Gloo's threads sum what has arrived, which is a part of the collective. The thread that trains
    # computes, although a single message belongs to it.
    of_gloo = {event.thread for event in collectives if _is_on_cpu(event)}
    of_gloo -= {event.thread for event in events if event.name == STEP}
    on_gpu = any(not _is_on_cpu(event) for event in events)
    computing = [
        event
        for event in events
        if (
            not _is_on_cpu(event) and not _is_collective(event)
            if on_gpu
            else event.name.startswith(_CPU_COMPUTING) and event.thread not in of_gloo
        )
    ]
    return per_step(steps, map(_span, collectives), map(_span, computing)) if steps else None


def per_step(
    steps: Iterable[tuple[float, float]],
    collectives: Iterable[tuple[float, float]],
    computing: Iterable[tuple[float, float]] = (),
) -> list[float]:
    """Return the seconds of each step in which a collective was under way and nothing computed.

    In order of the steps' time; each is (begin, end) in microseconds.
    """
    busy = sorted(computing)
    either = sorted([*busy, *collectives])
    return [
        (_covered(step, either) - _covered(step, busy)) / _MICROSECONDS_PER_S
        for step in sorted(steps)
    ]


def _covered(step: tuple[float, float], spans: Iterable[tuple[float, float]]) -> float:
    """Return how much of a step the spans, in order of their begin, cover together."""
    covered, reached = 0.0, step[0]
    for begin, end in spans:
        begin, end = max(begin, reached), min(end, step[1])
        if end > begin:
            covered += end - begin
            reached = end
    return covered


def _is_collective(event: Any) -> bool:
    name = event.name
    return name.startswith(_CPU_COLLECTIVES if _is_on_cpu(event) else _GPU_COLLECTIVE)  # type: ignore[no-any-return]


def _span(event: Any) -> tuple[float, float]:
    interval = event.time_range
    return interval.start, interval.end


def _is_on_cpu(event: Any) -> bool:
    return bool(event.device_type.name == "CPU")
