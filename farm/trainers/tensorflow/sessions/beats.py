"""Raises this rank's liveness counter, and reads the counters of all ranks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from farm.trainers.contracts import Seat
from farm.trainers.tensorflow.sessions.liveness import BEAT_INTERVAL_S, GAVE_UP, LifeWatch
from farm.trainers.tensorflow.sessions.runtime import session_config, v1

logger = logging.getLogger(__name__)

# The keeper is about to set its counters up.
_SET_UP_POLL_S = 0.05
_NOT_YET = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)


class Counters:
    """The counters on one keeper, through a session of their own; every run is a round trip."""

    def __init__(self, target: str, seat: Seat, keeper_device: str) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.device(keeper_device):
            count = seat.job.world_size
            handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[count], shared_name="beats")
            rank = v1.placeholder(tf.int32, [])
            self._begin = tf.raw_ops.AssignVariableOp(
                resource=handle, value=tf.zeros([count], tf.int64)
            )
            change = {"resource": handle, "indices": rank, "updates": np.int64(1)}
            with tf.control_dependencies([tf.raw_ops.ResourceScatterAdd(**change)]):
                self._raise = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
            self._word = v1.placeholder(tf.int64, [])
            self._say = tf.raw_ops.ResourceScatterUpdate(**{**change, "updates": self._word})
            self._read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
        self._rank = rank
        peer = keeper_device.partition("/device")[0]
        self._session = v1.Session(target, graph=graph, config=session_config(seat, peers=[peer]))

    def begin(self) -> None:
        """Set all to "not come yet"; the keeper does it to its own."""
        self._session.run(self._begin)

    def read(self) -> list[int]:
        return [int(n) for n in self._session.run(self._read)]

    def raise_own(self, rank: int) -> list[int]:
        """Raise the counter of `rank` and return all."""
        return [int(n) for n in self._session.run(self._raise, {self._rank: rank})]

    def say(self, rank: int, word: int) -> None:
        """Put a last word, LEFT or GAVE_UP, in the place of the counter of `rank`."""
        self._session.run(self._say, {self._rank: rank, self._word: word})


class Beats:
    """Raises this rank's counter on every keeper, in threads, for as long as it is there."""

    def __init__(
        self, open_counters: Callable[[str], Counters], seat: Seat, keepers: Sequence[str]
    ) -> None:
        self._open = open_counters
        self._rank = seat.rank
        self._keepers = tuple(keepers)
        self._over = threading.Event()
        self._last_word = GAVE_UP
        begun_s = time.monotonic()
        self._watches = [
            LifeWatch(
                keeper.partition("/device")[0],
                world_size=seat.job.world_size,
                arrival_limit_s=seat.peer_timeout_s,
                begun_s=begun_s,
            )
            for keeper in keepers
        ]
        self._threads = [
            threading.Thread(target=self._beat, args=(i,), name=f"beats {i}", daemon=True)
            for i in range(len(keepers))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def problem(self) -> str | None:
        """Say who is lost; None while nobody is."""
        now_s = time.monotonic()
        found = (watch.problem(now_s=now_s) for watch in self._watches)
        return next((problem for problem in found if problem is not None), None)

    def have_left(self, ranks: Sequence[int]) -> bool:
        return self._watches[0].have_left(ranks)

    def end(self, word: int, *, timeout_s: float) -> None:
        """Stop, with a last word on every keeper that can be reached within the limit."""
        self._last_word = word
        self._over.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _beat(self, keeper: int) -> None:
        """Beat until over, then say the last word. An error is silence, on which others decide."""
        counters: Any = None
        pause_s = 0.0
        while not self._over.wait(pause_s):
            pause_s = BEAT_INTERVAL_S
            try:
                counters = counters or self._open(self._keepers[keeper])
                counts = counters.raise_own(self._rank)
                self._watches[keeper].see(counts, now_s=time.monotonic())
            except _NOT_YET:
                pause_s = _SET_UP_POLL_S
            except tf.errors.OpError as error:
                logger.warning("no beat on %s: %s", self._keepers[keeper], error)
        try:
            if counters:
                counters.say(self._rank, self._last_word)
        except tf.errors.OpError as error:
            logger.warning("no last word to %s: %s", self._keepers[keeper], error)
