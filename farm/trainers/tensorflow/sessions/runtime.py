"""TensorFlow's server in this process, and sessions with it."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from farm.configuration.spec import OperatorPlacement
from farm.messages.trainer_lines import FailureKind
from farm.trainers.contracts import Seat
from farm.trainers.failures import RankFailed
from farm.trainers.tensorflow.gang import check_port

v1 = tf.compat.v1
_POLL_S = 0.05


def start_server(seat: Seat) -> Any:
    """Start this process's server, which listens from then on.

    Raises:
        RankFailed: PORT_TAKEN.
    """
    check_port(seat.go, seat.role)
    return tf.distribute.Server(
        tf.train.ClusterSpec({name: list(a) for name, a in seat.go.cluster.items()}),
        job_name=seat.role,
        task_index=seat.go.task_index,
        config=session_config(seat),
    )


def session_config(seat: Seat, *, peers: Sequence[str] = ()) -> Any:
    """Return what sets threads and devices. A session needs its `peers`, such as "/job:ps", alone.

    Without that filter it would wait for every process of the gang, and end with any.
    """
    gpu_count = len(tf.config.get_visible_devices("GPU")) if seat.role == "worker" else 0
    config = v1.ConfigProto(
        intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=tf.config.threading.get_inter_op_parallelism_threads(),
        allow_soft_placement=seat.job.placement is OperatorPlacement.SOFT,
        device_count={"GPU": gpu_count},
    )
    config.gpu_options.allow_growth = True
    if peers:
        own = f"/job:{seat.role}/task:{seat.go.task_index}"
        config.device_filters.extend(dict.fromkeys([*peers, own]))
    return config


def await_listening(addresses: Sequence[str], *, timeout_s: float) -> None:
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
