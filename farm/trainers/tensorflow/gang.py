"""Connects TensorFlow ranks by its coordination service, and disconnects them.

The agents' rendezvous comes first: a missing peer would hang the leader here for minutes, without
reaction to SIGTERM, since the strategy's constructor holds the interpreter's lock.

The service has no public interface: it is set up and queried through TensorFlow's internal context.
"""

from __future__ import annotations

import errno
import faulthandler
import json
import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import Any, Literal

from farm.messages.trainer_lines import FailureKind, GoLine
from farm.trainers.contracts import Gang, RankContext
from farm.trainers.failures import RankFailed

logger = logging.getLogger(__name__)

# A stopped or unreachable peer is noticed after about this time; a killed one at once, because
# its connections break.
HEARTBEAT_TIMEOUT_S = 5.0
EXIT_BARRIER_TIMEOUT_S = 20.0
_POLL_S = 1.0
# Set for good, so that reading it says whether the leader's coordination service answers.
_LEADER_IS_THERE = "leader-is-there"
# The leader carries the coordination service, so it goes last. With no linger one exit in five
# was taken for a death over a lossy 20 ms link, with these none.
LEADER_LINGER_S = 1.0
FOLLOWER_LINGER_S = 0.3


@dataclass(frozen=True, slots=True)
class Coordinated:
    """A gang behind TensorFlow's coordination service, led by rank 0."""

    is_leader: bool

    def wait(self, name: str, *, timeout_s: float) -> None:
        """Wait at a barrier; raises TensorFlow's error when a peer dies or the time is over.

        The barrier itself keeps the interpreter's lock, and outlasts every limit while its leader
        is stopped; so the others enter it only once the leader, who works in between, has come.

        Raises:
            RankFailed: PEER_LOST, the leader is stopped or out of reach.
        """
        from tensorflow.python.eager import context

        if self.is_leader:
            context.context().set_config_key_value(name, "")
        else:
            _await_leader(name, timeout_s=timeout_s)
        context.context().wait_at_barrier(name, int(timeout_s * 1000))

    def leave(self) -> None:
        """Wait until all have come this far, then linger, so that nobody sees a broken link."""
        import tensorflow as tf

        try:
            self.wait("leave", timeout_s=EXIT_BARRIER_TIMEOUT_S)
        except (tf.errors.OpError, RankFailed) as error:
            # The result is out already; a peer that failed after its own is the agents' affair.
            logger.warning("exit barrier failed: %s", error)
            return
        time.sleep(LEADER_LINGER_S if self.is_leader else FOLLOWER_LINGER_S)


def join_collective(
    rank_context: RankContext, implementation: Literal["AUTO", "RING"]
) -> tuple[Any, Gang]:
    """Return a connected MultiWorkerMirroredStrategy, and its gang.

    AUTO is NCCL between GPUs and a ring between CPUs.

    Raises:
        RankFailed: this rank's own port is taken.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    check_port(rank_context.go)
    os.environ["TF_CONFIG"] = tf_config(rank_context.go, rank_context.role)
    _configure_coordination(rank_context)
    options = tf.distribute.experimental.CommunicationOptions(
        # No timeout_seconds: it would also kill a gang whose member is merely slow.
        implementation=tf.distribute.experimental.CommunicationImplementation[implementation]
    )
    # No thread of this process can run Python while the constructor waits for a peer, so nothing
    # of Python's can end it, nor write a failure; faulthandler's thread needs no interpreter's
    # lock and leaves with a traceback on standard error and code 1. The followers' registration
    # has a limit of its own, the leader's wait has none.
    faulthandler.dump_traceback_later(rank_context.peer_timeout_s, exit=True)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    finally:
        faulthandler.cancel_dump_traceback_later()
    is_leader = rank_context.go.task_index == 0
    if is_leader:
        context.context().set_config_key_value(_LEADER_IS_THERE, "")
    return strategy, Coordinated(is_leader=is_leader)


def _await_leader(name: str, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not _is_set(name, timeout_s=_POLL_S):
        if not _is_set(_LEADER_IS_THERE, timeout_s=HEARTBEAT_TIMEOUT_S):
            problem = f"rank 0 has not answered for {HEARTBEAT_TIMEOUT_S:g} s"
        elif time.monotonic() > deadline:
            problem = f"rank 0 was not at the barrier within {timeout_s:g} s"
        else:
            continue
        raise RankFailed(FailureKind.PEER_LOST, problem)


def _is_set(key: str, *, timeout_s: float) -> bool:
    """Wait for a key of the leader's coordination service, without the interpreter's lock."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    try:
        context.context().get_config_key_value(key, int(timeout_s * 1000))
    except tf.errors.DeadlineExceededError:
        return False
    return True


def tf_config(go: GoLine, role: str) -> str:
    """Render the cluster as TensorFlow reads it from TF_CONFIG."""
    return json.dumps(
        {
            "cluster": {name: list(addresses) for name, addresses in go.cluster.items()},
            "task": {"type": role, "index": go.task_index},
        }
    )


def check_port(go: GoLine, role: str = "worker") -> None:
    """Refuse to start when this task's port is taken.

    gRPC binds with SO_REUSEPORT and would silently share a port with another trainer; a plain
    bind tells.

    Raises:
        RankFailed: PORT_TAKEN.
    """
    port = int(go.cluster[role][go.task_index].rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise RankFailed(
                FailureKind.PORT_TAKEN, f"port {port}: expected a free port, another process has it"
            ) from error


def _configure_coordination(rank_context: RankContext) -> None:
    """Set shorter limits than TensorFlow's; it keeps a configuration that is there already."""
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.eager import context

    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{rank_context.role}/replica:0/task:0",
        cluster_register_timeout_in_ms=int(rank_context.peer_timeout_s * 1000),
        heartbeat_timeout_in_ms=int(HEARTBEAT_TIMEOUT_S * 1000),
        shutdown_barrier_timeout_in_ms=int(EXIT_BARRIER_TIMEOUT_S * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(
                name=rank_context.role, num_tasks=len(rank_context.go.cluster[rank_context.role])
            )
        ],
    )
