"""Connects a rank or a parameter server to its gang: session, barriers and liveness."""

from __future__ import annotations

import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from farm.configuration.spec import OperatorPlacement
from farm.messages.trainer_lines import FailureKind
from farm.trainers.contracts import RankContext
from farm.trainers.failures import RankFailed
from farm.trainers.tensorflow.gang import EXIT_BARRIER_TIMEOUT_S, check_port
from farm.trainers.tensorflow.sessions.liveness import (
    BEAT_INTERVAL_S,
    GAVE_UP,
    LEFT,
    SILENCE_LIMIT_S,
    LivenessMonitor,
)
from farm.trainers.tensorflow.sessions.scheme import Scheme

logger = logging.getLogger(__name__)
v1 = tf.compat.v1

T = TypeVar("T")
_POLL_S = 0.05
# Where somebody is lost: the others find out anyway, by silence.
_LAST_WORD_LIMIT_S = 1.0
_CALL_POLL_S = 0.5
# The weight host is about to set its counters up.
_SET_UP_POLL_S = 0.05
_NOT_YET = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError)
# Of a server, longer than of the ranks, so that they say who is lost and not that the server went.
_PATIENCE_S = SILENCE_LIMIT_S + 2.0
# For the answer to the last goodbye to get through.
_LINGER_S = 0.3
_ERROR_WRAPPING = re.compile(r"Graph execution error:|={3,}|\[\[\{\{node .*?\}\}\]\]")
_CONNECTION_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class SessionGang:
    """Connected from the start; a session follows once there is a graph.

    Raises:
        RankFailed: PORT_TAKEN; PEER_LOST, a weight host did not come in time.
    """

    def __init__(self, rank_context: RankContext, scheme: Scheme) -> None:
        addresses = rank_context.go.cluster[scheme.weight_host_role]
        weight_host_count = len(addresses) if scheme.has_servers else 1
        self.weight_host_devices = tuple(
            f"/job:{scheme.weight_host_role}/task:{i}/device:CPU:0"
            for i in range(weight_host_count)
        )
        is_hard = rank_context.job.placement is OperatorPlacement.HARD
        self.own_device = f"/job:{rank_context.role}/task:{rank_context.go.task_index}" + (
            "/device:CPU:0" if is_hard else ""
        )
        self._rank_context = rank_context
        self._target: str = _start_server(rank_context).target
        self._is_weight_host = not scheme.has_servers and rank_context.rank == 0
        if self._is_weight_host:
            self._counters(self.weight_host_devices[0]).begin()
        _await_listening(addresses[:weight_host_count], timeout_s=rank_context.peer_timeout_s)
        self._beats = _Beats(self._counters, rank_context, self.weight_host_devices)
        self._beats.start()
        self._caller = _BoundedCaller(self._beats.problem)
        self._session: Any = None
        self._barrier: Any = None

    def open(self, graph: Any, barrier: Any) -> None:
        """Open the session that runs `graph`; `barrier` is an operation of it."""
        peers = [device.partition("/device")[0] for device in self.weight_host_devices]
        config = _session_config(self._rank_context, peers=peers)
        self._session = self._caller.call(
            lambda: v1.Session(self._target, graph=graph, config=config)
        )
        self._barrier = barrier

    def run(self, work: Callable[[Any], T], *, timeout_s: float | None = None) -> T:
        """Return what `work` returns, which gets the session.

        Raises:
            RankFailed: PEER_LOST, a process of the gang has gone.
        """
        try:
            return self._caller.call(lambda: work(self._session), timeout_s=timeout_s)
        except RankFailed:
            # The others need not find out by waiting.
            self._beats.end(GAVE_UP, timeout_s=_LAST_WORD_LIMIT_S)
            raise

    def wait(self, *, timeout_s: float) -> None:
        """Wait until every rank has come; all call it equally often.

        Raises:
            RankFailed: PEER_LOST, one has gone, or has not come in time.
        """
        self.run(lambda session: session.run(self._barrier), timeout_s=timeout_s)

    def leave(self) -> None:
        """Part, after all have come this far; a rank that is a weight host goes last."""
        try:
            # Not by `run`: who does not come has failed by itself, and the others need not give up.
            self._caller.call(
                lambda: self._session.run(self._barrier), timeout_s=EXIT_BARRIER_TIMEOUT_S
            )
        except RankFailed as error:
            # The result is out already; a peer that failed after its own is the agents' affair.
            logger.warning("exit barrier failed: %s", error)
        others = range(1, self._rank_context.job.world_size) if self._is_weight_host else ()
        deadline = time.monotonic() + EXIT_BARRIER_TIMEOUT_S
        while not self._beats.have_left(others) and not self._beats.problem():
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        # A server waits for this word, which takes several round trips, and misses who is silent.
        is_lost = self._beats.problem() is not None
        self._beats.end(LEFT, timeout_s=_LAST_WORD_LIMIT_S if is_lost else EXIT_BARRIER_TIMEOUT_S)

    def _counters(self, weight_host_device: str) -> _Counters:
        return _Counters(self._target, self._rank_context, weight_host_device)


def serve_until_left(rank_context: RankContext, beat: Callable[[], None]) -> None:
    """Be a server until every rank that trains has left; `beat` is called every half second.

    Raises:
        RankFailed: PORT_TAKEN; PEER_LOST, a rank has vanished, or has not come in time.
    """
    target = _start_server(rank_context).target
    own_device = f"/job:{rank_context.role}/task:{rank_context.go.task_index}/device:CPU:0"
    counters = _Counters(target, rank_context, own_device)
    counters.begin()
    watch = LivenessMonitor(
        own_device,
        world_size=rank_context.job.world_size,
        arrival_limit_s=rank_context.peer_timeout_s,
        begun_s=time.monotonic(),
        silence_limit_s=_PATIENCE_S,
    )
    while True:
        beat()
        watch.see(counters.read(), now_s=time.monotonic())
        if watch.have_left(range(rank_context.job.world_size)):
            break
        problem = watch.problem(now_s=time.monotonic())
        if problem is not None:
            raise RankFailed(FailureKind.PEER_LOST, problem)
        time.sleep(BEAT_INTERVAL_S / 2)
    time.sleep(_LINGER_S)


def _start_server(rank_context: RankContext) -> Any:
    """Start this process's server, which listens from then on.

    Raises:
        RankFailed: PORT_TAKEN.
    """
    check_port(rank_context.go, rank_context.role)
    return tf.distribute.Server(
        tf.train.ClusterSpec({name: list(a) for name, a in rank_context.go.cluster.items()}),
        job_name=rank_context.role,
        task_index=rank_context.go.task_index,
        config=_session_config(rank_context),
    )


def _session_config(rank_context: RankContext, *, peers: Sequence[str] = ()) -> Any:
    """Return what sets threads and devices. A session needs its `peers`, such as "/job:ps", alone.

    Without that filter it would wait for every process of the gang, and end with any.
    """
    gpu_count = len(tf.config.get_visible_devices("GPU")) if rank_context.role == "worker" else 0
    config = v1.ConfigProto(
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        allow_soft_placement=rank_context.job.placement is OperatorPlacement.SOFT,
        device_count={"GPU": gpu_count},
    )
    config.gpu_options.allow_growth = True
    if peers:
        own = f"/job:{rank_context.role}/task:{rank_context.go.task_index}"
        config.device_filters.extend(dict.fromkeys([*peers, own]))
    return config


def _await_listening(addresses: Sequence[str], *, timeout_s: float) -> None:
    """Wait until somebody listens at each address; a session would wait for ever.

    Raises:
        RankFailed: PEER_LOST, one was not there in time.
    """
    deadline = time.monotonic() + timeout_s
    for address in addresses:
        name, _, port = address.rpartition(":")
        while not _listens(name, int(port)):
            if time.monotonic() > deadline:
                problem = f"nobody listened at {address} within {timeout_s:g} s"
                raise RankFailed(FailureKind.PEER_LOST, problem)
            time.sleep(_POLL_S)


def _listens(name: str, port: int) -> bool:
    try:
        with socket.create_connection((name.strip("[]"), port), timeout=1.0):
            return True
    except OSError:
        return False


class _BoundedCaller:
    """Makes calls that may never return in a thread of its own, so that they can be given up.

    One call at a time; `problem` says why a call that has not returned never will.

    Handing a call over and back costs some 20 us a step. A call that was given up keeps its thread
    for good, which is why the process leaves without waiting for threads.
    """

    def __init__(self, problem: Callable[[], str | None]) -> None:
        self._problem = problem
        self._calls: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="session calls", daemon=True).start()

    def call(self, work: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Return what `work` returns, or raise what it raises.

        Raises:
            RankFailed: PEER_LOST, a process that it needs is gone, or `timeout_s` is over.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._calls.put(work)
        while True:
            try:
                value, error = self._outcomes.get(timeout=_CALL_POLL_S)
                break
            except queue.Empty:
                problem = self._problem()
            if problem is None and deadline is not None and time.monotonic() > deadline:
                problem = f"the peers were not there within {timeout_s:g} s"
            if problem is not None:
                raise RankFailed(FailureKind.PEER_LOST, problem)
        if isinstance(error, _CONNECTION_ERRORS):
            message = " ".join(_ERROR_WRAPPING.sub(" ", str(error)).split())[:300]
            problem = self._problem() or f"a connection broke: {message}"
            raise RankFailed(FailureKind.PEER_LOST, problem) from error
        if error is not None:
            raise error
        found: T = value
        return found

    def _serve(self) -> None:
        while True:
            work = self._calls.get()
            outcome: tuple[Any, Exception | None]
            try:
                outcome = work(), None
            except Exception as error:
                outcome = None, error
            self._outcomes.put(outcome)


class _Beats:
    """Raises this rank's counter on every weight host, in threads, for as long as it is there."""

    def __init__(
        self,
        open_counters: Callable[[str], _Counters],
        rank_context: RankContext,
        weight_hosts: Sequence[str],
    ) -> None:
        self._open = open_counters
        self._rank = rank_context.rank
        self._weight_hosts = tuple(weight_hosts)
        self._over = threading.Event()
        self._last_word = GAVE_UP
        begun_s = time.monotonic()
        self._watches = [
            LivenessMonitor(
                weight_host.partition("/device")[0],
                world_size=rank_context.job.world_size,
                arrival_limit_s=rank_context.peer_timeout_s,
                begun_s=begun_s,
            )
            for weight_host in weight_hosts
        ]
        self._threads = [
            threading.Thread(target=self._beat, args=(i,), name=f"beats {i}", daemon=True)
            for i in range(len(weight_hosts))
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
        """Stop, with a last word on every weight host that can be reached within the limit."""
        self._last_word = word
        self._over.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _beat(self, weight_host: int) -> None:
        """Beat until over, then say the last word. An error is silence, on which others decide."""
        counters: Any = None
        pause_s = 0.0
        while not self._over.wait(pause_s):
            pause_s = BEAT_INTERVAL_S
            try:
                counters = counters or self._open(self._weight_hosts[weight_host])
                counts = counters.increment_own(self._rank)
                self._watches[weight_host].see(counts, now_s=time.monotonic())
            except _NOT_YET:
                pause_s = _SET_UP_POLL_S
            except tf.errors.OpError as error:
                logger.warning("no beat on %s: %s", self._weight_hosts[weight_host], error)
        try:
            if counters:
                counters.say(self._rank, self._last_word)
        except tf.errors.OpError as error:
            logger.warning("no last word to %s: %s", self._weight_hosts[weight_host], error)


class _Counters:
    """The counters on one weight host, through their own session; every run is a round trip."""

    def __init__(self, target: str, rank_context: RankContext, weight_host_device: str) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.device(weight_host_device):
            count = rank_context.job.world_size
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
        peer = weight_host_device.partition("/device")[0]
        self._session = v1.Session(
            target, graph=graph, config=_session_config(rank_context, peers=[peer])
        )

    def begin(self) -> None:
        """Set all to "not come yet"; the weight host does it to its own."""
        self._session.run(self._begin)

    def read(self) -> list[int]:
        return [int(n) for n in self._session.run(self._read)]

    def increment_own(self, rank: int) -> list[int]:
        """Raise the counter of `rank` and return all."""
        return [int(n) for n in self._session.run(self._raise, {self._rank: rank})]

    def say(self, rank: int, word: int) -> None:
        """Put a last word, LEFT or GAVE_UP, in the place of the counter of `rank`."""
        self._session.run(self._say, {self._rank: rank, self._word: word})
