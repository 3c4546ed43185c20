"""Samples every metric once a second, in a thread, at the instants that `farm.sampling.ticks` sets.

A tick that the thread missed, or for which no metric could be read, is a hole in the series. It is
never filled in.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from farm.messages.reports import Sample
from farm.sampling.ticks import instant_of, is_on_time, next_tick
from worker_agent.metrics.contracts import Metric, Watched

logger = logging.getLogger(__name__)

BATCH_TICKS = 2
_COLUMNS = frozenset(field.name for field in dataclasses.fields(Sample)) - {"tick", "extra"}


class Sampler:
    """Samples from `go_s` on, a reading of the monotonic clock, until `stop`.

    `emit` is called in the sampler's thread with about two seconds' samples at a time.
    """

    def __init__(
        self, metrics: Sequence[Metric], *, go_s: float, emit: Callable[[tuple[Sample, ...]], None]
    ) -> None:
        self._metrics = metrics
        self._go_s = go_s
        self._emit = emit
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after emitting all samples."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception:
            logger.exception("sampler died; the rest of this rank's series is missing")

    def _sample_until_stopped(self) -> None:
        waiting: list[Sample] = []
        tick = 0
        while not self._stopping.wait(max(0.0, instant_of(tick, self._go_s) - time.monotonic())):
            if is_on_time(tick, time.monotonic(), go_s=self._go_s):
                waiting.append(read_sample(self._metrics, tick))
            # Not earlier than this, as a timer that fires early must not read a tick twice.
            tick = max(tick + 1, next_tick(time.monotonic(), self._go_s))
            if len(waiting) >= BATCH_TICKS:
                self._emit(tuple(waiting))
                waiting.clear()
        if waiting:
            self._emit(tuple(waiting))


def read_sample(metrics: Sequence[Metric], tick: int) -> Sample:
    """Read all groups; one that cannot be read leaves its columns None."""
    columns: dict[str, float | int | None] = {}
    extra: dict[str, float] = {}
    for metric in metrics:
        try:
            values: Mapping[str, float | int | None] = metric.read(tick)
        except (OSError, psutil.Error) as error:
            logger.debug("%s was not read: %s", type(metric).__name__, error)
            continue
        for name, value in values.items():
            if name in _COLUMNS:
                columns[name] = value
            elif value is not None:
                extra[name] = float(value)
    return Sample(tick=tick, extra=extra, **columns)  # type: ignore[arg-type] # checked by name


def create_metrics(
    factories: Sequence[Callable[[Watched], Metric | None]], watched: Watched
) -> list[Metric]:
    """Create the groups that this machine supports."""
    created = (factory(watched) for factory in factories)
    return [metric for metric in created if metric is not None]
