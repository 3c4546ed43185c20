"""A role process that only serves: it tells its agent that it lives, and at last what it sent."""

from __future__ import annotations

import resource
import time

from farm.messages.trainer_lines import Progress, Started, TrainerResult
from farm.trainers.contracts import Seat, ServedStrategy
from farm.trainers.loop.window import TimedWindow
from farm.trainers.processes.line import EventWriter


def serve(strategy: ServedStrategy, seat: Seat, line: EventWriter, interface: str) -> TrainerResult:
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

    strategy.serve(seat, beat)
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
        seed=seat.job.seed,
    )
