"""Reads where a step's time goes from TensorFlow's profiler."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from farm.trainers.loop.step_profile import exchange_times
from farm.trainers.processes.process import end_with_parent

logger = logging.getLogger(__name__)

COLLECTIVE = "CollectiveReduceV2"
# Before a collective its ranks agree on its parameters. Ranks other than the first ask the first
# for them, which takes a round trip.
_AGREEMENT = "CollectiveExecutor::CompleteParams"
_OPERATION = "operation"
_PICOSECONDS_PER_S = 1e12
_STOP_LIMIT_S = 30.0
# Of a fork.
_EXIT_RAISED = 70
_MOST_BYTES_AT_ONCE = 65_536
_WHOLE = b"."  # the last byte of a whole answer


def collective_times(run_steps: Callable[[], None]) -> tuple[float, ...] | None:
    """Call `run_steps` under the profiler; return the seconds of each collective, in order.

    A collective's time is transfer and waiting for slower peers together, with the agreement of
    the ranks on its parameters. None where the
    profiler could not run or left no trace; `run_steps` is called in any case, since the peers
    wait for it.

    The profiler is stopped in a fork alone, and goes on in this process, of which it is the last
    work: to stop it has crashed a rank in one of some forty gangs. TensorFlow 2.21 dies while it
    pairs begins with ends of operations that end in another thread, as collectives do
    (`SplitEventTracker::FindStartAndMerge`).
    """
    options = tf.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
    )
    with tempfile.TemporaryDirectory(prefix="farm-profile-") as folder:
        try:
            tf.profiler.experimental.start(folder, options=options)
        except tf.errors.OpError as error:
            logger.warning("profiler did not start: %s", error)
            run_steps()
            return None
        run_steps()
        spans = in_fork(lambda: _stopped(Path(folder)), limit_s=_STOP_LIMIT_S)
    if spans is None:
        return None
    found = json.loads(spans)
    return tuple(
        duration_ps / _PICOSECONDS_PER_S
        for duration_ps in exchange_times(found[COLLECTIVE], found[_AGREEMENT], found[_OPERATION])
    )


def _stopped(folder: Path) -> bytes:
    """Stop the profiler; return (begin, duration) in ps of what exchanges, by name, as JSON."""
    tf.profiler.experimental.stop()
    traces = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    space = xplane_pb2.XSpace()
    space.ParseFromString(traces[-1].read_bytes())
    return json.dumps(
        {
            COLLECTIVE: list(_spans(space, lambda name: name.rpartition(":")[2] == COLLECTIVE)),
            _AGREEMENT: list(_spans(space, lambda name: name == _AGREEMENT)),
            _OPERATION: list(_spans(space, _computes)),
        }
    ).encode()


def _computes(name: str) -> bool:
    """Whether an event is an operation other than a collective; functions have "::"."""
    _, colon, kind = name.rpartition(":")
    return bool(colon) and "::" not in name and kind != COLLECTIVE


def _spans(space: Any, is_wanted: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield (begin, duration) in ps of the events with such names, on any line of the trace.

    An operation is named `name:type`.
    """
    for plane in space.planes:
        ids = {
            number for number, metadata in plane.event_metadata.items() if is_wanted(metadata.name)
        }
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in ids:
                    yield line.timestamp_ns * 1000 + event.offset_ps, event.duration_ps


def in_fork(work: Callable[[], bytes], *, limit_s: float) -> bytes | None:
    """Return what `work` returns in a fork of this process, whatever that costs the fork.

    The fork has this process's memory as it is, and of its threads only the one that called. None
    where it raised, crashed, or had not ended within `limit_s`, when it is killed; the log says so.
    """
    answers, answer = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(answer)
        os.close(answers)
        logger.warning("no fork: %s", error)
        return None
    if pid == 0:
        _work_and_end(work, answer)
    os.close(answer)
    result = _read_to_end(answers, limit_s)
    os.close(answers)
    if result is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)  # it has closed its end of the pipe, and ends
    if result is None or not result.endswith(_WHOLE):
        logger.warning("a fork gave no answer: status %d", os.waitstatus_to_exitcode(status))
        return None
    return result.removesuffix(_WHOLE)


def _work_and_end(work: Callable[[], bytes], answer: int) -> None:
    try:
        end_with_parent()
        with os.fdopen(answer, "wb") as pipe:
            pipe.write(work() + _WHOLE)
    except BaseException:
        logger.exception("a fork failed")
        os._exit(_EXIT_RAISED)
    os._exit(0)


def _read_to_end(descriptor: int, limit_s: float) -> bytes | None:
    deadline = time.monotonic() + limit_s
    readable = select.poll()
    readable.register(descriptor, select.POLLIN | select.POLLHUP)
    parts: list[bytes] = []
    while readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(descriptor, _MOST_BYTES_AT_ONCE)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None
