"""The process of a parameter server."""

from __future__ import annotations

import time
from collections.abc import Callable

from farm.messages.trainer_lines import FailureKind
from farm.trainers.contracts import Seat
from farm.trainers.failures import RankFailed
from farm.trainers.tensorflow.sessions.beats import Counters
from farm.trainers.tensorflow.sessions.liveness import BEAT_INTERVAL_S, SILENCE_LIMIT_S, LifeWatch
from farm.trainers.tensorflow.sessions.runtime import start_server

# Longer than the ranks, so that they say who is lost and not that the server went.
_PATIENCE_S = SILENCE_LIMIT_S + 2.0
# For the answer to the last goodbye to get through.
_LINGER_S = 0.3


def serve_until_left(seat: Seat, beat: Callable[[], None]) -> None:
    """Be a server until every rank that trains has left; `beat` is called every half second.

    Raises:
        RankFailed: PORT_TAKEN; PEER_LOST, a rank has vanished, or has not come in time.
    """
    target = start_server(seat).target
    own_device = f"/job:{seat.role}/task:{seat.go.task_index}/device:CPU:0"
    counters = Counters(target, seat, own_device)
    counters.begin()
    watch = LifeWatch(
        own_device,
        world_size=seat.job.world_size,
        arrival_limit_s=seat.peer_timeout_s,
        begun_s=time.monotonic(),
        silence_limit_s=_PATIENCE_S,
    )
    while True:
        beat()
        watch.see(counters.read(), now_s=time.monotonic())
        if watch.have_left(range(seat.job.world_size)):
            break
        problem = watch.problem(now_s=time.monotonic())
        if problem is not None:
            raise RankFailed(FailureKind.PEER_LOST, problem)
        time.sleep(BEAT_INTERVAL_S / 2)
    time.sleep(_LINGER_S)
