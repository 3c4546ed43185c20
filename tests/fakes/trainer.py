"""A trainer that trains nothing: it speaks `farm.messages.trainer_lines` and starts in no time.

What it does wrong is said by its arguments, by FAKE_TRAINER in its environment, or by the label
`fake_trainer` of its job, as words separated by commas:

    fail:KIND     report that failure instead of a result, such as fail:not_a_number
    exit:STATUS   leave with that status and without a word
    signal:N      die of that signal
    hang          go silent after the first step and do not end
    user_code     do the wrong thing while code of the user's own runs, before the first step
    slow_ready:S  be ready only after S seconds
    never_ready   never be ready
    load          read the data set as a real trainer does, which may be missing
    framework:N   say that the framework is N instead of fake 1.0
    steps_s:S     make each step last S seconds; by default all of them together take one
    jitter:R      multiply the step time by a log-normal factor of that spread, by the job's seed
    child         start a child that leaves the process group and sleeps
    stray         start a child that leaves the session and knows nothing of its environment
    hopping       start one that, in addition, starts another like it and ends, again and again
    noise         print to standard output what is no event
    talk          print a line to standard error with each report of steps
    flood:N       print N megabytes to standard error, as fast as they are taken
    ports         listen on the port of its own in the cluster, as TensorFlow would
    meet          be connected to every other rank through rank 0 before the first step

Each rank that trains is connected to every server, which ends when all have done.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

from farm import registry
from farm.messages.trainer_lines import (
    Assignment,
    DatasetSource,
    Epoch,
    Exchange,
    Failure,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
    UserCode,
    write_event,
)
from farm.trainers.datasets.locations import data_places
from farm.trainers.failures import DatasetMissing
from farm.trainers.processes.process import limit
from farm.values.codec import from_json

_PR_SET_PDEATHSIG = 1
PARAMETER_COUNT = 1000
STEPS_PER_EPOCH = 4

RESTING = """
import os, pathlib, time
pathlib.Path("stray").write_text(str(os.getpid()))
time.sleep(600)
"""
HOPPING = """
import os, pathlib, time
end = time.monotonic() + 120
while time.monotonic() < end:
    pathlib.Path("stray").write_text(str(os.getpid()))
    time.sleep(0.02)
    if os.fork():
        os._exit(0)
    os.setsid()
"""


def main() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    assignment = from_json(Assignment, json.loads(sys.stdin.readline()))
    limit(assignment.limits)
    os.sched_setaffinity(0, assignment.cpus)
    behaviour = read_behaviour(assignment)
    if "never_ready" in behaviour:
        wait_for_end_of_input()
    time.sleep(float(behaviour.get("slow_ready", 0)))
    if "load" in behaviour:
        load(assignment)
    framework = behaviour.get("framework", "fake 1.0")
    say(Ready(import_s=0.1, framework=framework, dataset=source(assignment)))
    line = sys.stdin.readline()
    if not line:
        return
    go = from_json(GoLine, json.loads(line))
    # From now on the agent only closes the pipe.
    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
    if assignment.role == "ps":
        serve(assignment, go)
    else:
        train(assignment, go, behaviour)


def serve(assignment: Assignment, go: GoLine) -> None:
    host, _, port = go.cluster["ps"][go.task_index].rpartition(":")
    say(Started(parameter_count=0, gradient_bytes=0, connect_s=0.0, first_step_s=0.0))
    begun_s = time.monotonic()
    with socket.create_server((host, int(port))) as listening:
        come = [listening.accept()[0] for _ in go.cluster["worker"]]
    for connection in come:
        connection.settimeout(0.5)
        while not is_done(connection):
            say(Progress(step_count=0))
    say(result(assignment, begun_s=begun_s, span_s=time.monotonic() - begun_s))
    for connection in come:
        connection.send(b".")


def is_done(rank: socket.socket) -> bool:
    try:
        return rank.recv(1) in (b".", b"")
    except TimeoutError:
        return False


def connect(go: GoLine) -> list[socket.socket]:
    return [reach(place) for place in go.cluster.get("ps", ())]


def reach(place: str) -> socket.socket:
    deadline = time.monotonic() + 10
    host, _, port = place.rpartition(":")
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def meet(go: GoLine) -> None:
    """Return once every rank is here: all connect to rank 0, which lets them go together."""
    first, *others = go.cluster["worker"]
    if go.task_index:
        with reach(first) as connection:
            assert connection.recv(1) == b".", "rank 0 went away"
        return
    host, _, port = first.rpartition(":")
    with socket.create_server((host, int(port))) as listening:
        come = [listening.accept()[0] for _ in others]
    for connection in come:
        connection.send(b".")
        connection.close()


def watch(server: socket.socket) -> None:
    """Return when all ranks have done with the server; it must not go away before."""
    with contextlib.suppress(ConnectionError):
        if server.recv(1):
            return
    say(Failure(kind=FailureKind.PEER_LOST, message="a server went away"))
    os._exit(1)


def read_behaviour(assignment: Assignment) -> dict[str, str]:
    words = [
        *sys.argv[1:],
        os.environ.get("FAKE_TRAINER", ""),
        assignment.job.labels.get("fake_trainer", ""),
    ]
    pairs = (word.partition(":") for word in ",".join(words).split(",") if word)
    return {name: value for name, _, value in pairs}


def train(assignment: Assignment, go: GoLine, behaviour: dict[str, str]) -> None:
    job = assignment.job
    timed_count = job.steps or (job.epochs or 0) * STEPS_PER_EPOCH
    step_s = float(behaviour.get("steps_s", 1.0 / (timed_count + job.warmup_step_count)))
    jitter = float(behaviour.get("jitter", 0))
    step_s *= math.exp(random.Random(job.seed).gauss(0, jitter))
    # In one piece: `print` writes the end of the line by itself where nothing is buffered, and
    # what goes to standard output may come between.
    sys.stderr.write("the fake trainer begins\n")
    if "noise" in behaviour:
        print("a library says hello", flush=True)
    if "flood" in behaviour:
        for _ in range(int(behaviour["flood"])):
            print("f" * 999_999, file=sys.stderr, flush=True)
        print("the flood is over", file=sys.stderr, flush=True)
    if "child" in behaviour:
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
    for name, program in (("stray", RESTING), ("hopping", HOPPING)):
        if name in behaviour:
            subprocess.Popen([sys.executable, "-c", program], env={}, start_new_session=True)
    listening = []  # to the end
    if "ports" in behaviour:
        host, _, port = go.cluster[assignment.role][go.task_index].rpartition(":")
        listening.append(socket.create_server((host, int(port))))
    if "meet" in behaviour:
        meet(go)
    if "user_code" in behaviour:
        say(UserCode(name=f"model {job.model}", is_running=True))
        misbehave(behaviour)
        say(UserCode(name=f"model {job.model}", is_running=False))
    servers = connect(go)
    watches = [threading.Thread(target=watch, args=(s,), daemon=True) for s in servers]
    for thread in watches:
        thread.start()
    say(
        Started(
            parameter_count=PARAMETER_COUNT,
            gradient_bytes=4 * PARAMETER_COUNT,
            connect_s=0.01,
            first_step_s=step_s,
        )
    )
    misbehave(behaviour)
    talks = "talk" in behaviour
    run_steps(StepKind.WARMUP, first=0, count=job.warmup_step_count, step_s=step_s, talks=talks)
    begun_s = time.monotonic()
    first = job.warmup_step_count
    run_steps(StepKind.TIMED, first=first, count=timed_count, step_s=step_s, talks=talks)
    for epoch in range(job.epochs or 0):
        say(
            Epoch(
                epoch=epoch,
                train_s=STEPS_PER_EPOCH * step_s,
                step_count=STEPS_PER_EPOCH,
                train_loss=1.0 / (epoch + 1),
                val_loss=1.0 / (epoch + 1) if assignment.rank == 0 else None,
                val_accuracy_ratio=epoch / (epoch + 1) if assignment.rank == 0 else None,
            )
        )
    own = result(assignment, begun_s=begun_s, span_s=timed_count * step_s, step_count=timed_count)
    # Every other update comes one too late.
    late = (timed_count - timed_count // 2, timed_count // 2)
    exchange = Exchange(update_count=timed_count, push_s=0.001, pull_s=0.002, staleness_counts=late)
    say(dataclasses.replace(own, exchange=exchange if servers else None))
    for server in servers:
        server.send(b".")
    for thread in watches:
        thread.join()


def result(
    assignment: Assignment, *, begun_s: float, span_s: float, step_count: int = 0
) -> TrainerResult:
    """Say what a rank that trains would; without a step, what a server would."""
    byte_count = 8 * PARAMETER_COUNT * step_count if step_count else None
    return TrainerResult(
        timed_step_count=step_count,
        window_step_count=step_count,
        timed_window_s=span_s,
        timed_begun_monotonic_s=begun_s,
        interface_rx_bytes=byte_count,
        interface_tx_bytes=byte_count,
        payload_rx_bytes=byte_count,
        payload_tx_bytes=byte_count,
        train_loss=0.5 if step_count else None,
        val_accuracy_ratio=0.9 if step_count and assignment.rank == 0 else None,
        peak_resident_bytes=10_000_000,
        seed=assignment.job.seed,
    )


def run_steps(
    kind: StepKind, *, first: int, count: int, step_s: float, talks: bool = False
) -> None:
    """Sleep through the steps on an absolute grid; say how it goes about once a second."""
    begun_s = time.monotonic()
    chunk = max(1, int(1.0 / step_s))
    for start in range(0, count, chunk):
        end = min(start + chunk, count)
        time.sleep(max(0.0, begun_s + end * step_s - time.monotonic()))
        say(Progress(step_count=first + end))
        say(
            Steps(
                kind=kind,
                first_step=first + start,
                begun_monotonic_s=begun_s + start * step_s,
                times_s=(step_s,) * (end - start),
            )
        )
        if talks:
            print(f"step {first + end}", file=sys.stderr, flush=True)


def misbehave(behaviour: dict[str, str]) -> None:
    if "fail" in behaviour:
        kind = FailureKind(behaviour["fail"])
        say(Failure(kind=kind, message=f"the fake trainer was told to fail: {kind.value}"))
        sys.exit(1)
    if "exit" in behaviour:
        print("the fake trainer was told to leave", file=sys.stderr, flush=True)
        os._exit(int(behaviour["exit"]))
    if "signal" in behaviour:
        os.kill(os.getpid(), int(behaviour["signal"]))
    if "hang" in behaviour:
        threading.Event().wait()


def load(assignment: Assignment) -> None:
    try:
        registry.dataset(assignment.job.dataset).load(data_places(assignment.data_dir, os.environ))
    except DatasetMissing as error:
        say(Failure(kind=error.kind, message=str(error)))
        sys.exit(1)


def source(assignment: Assignment) -> DatasetSource:
    return DatasetSource(
        name=assignment.job.dataset,
        origin="fake",
        sha256=hashlib.sha256(assignment.job.dataset.encode()).hexdigest(),
        is_synthetic=True,
        train_examples_count=100,
        test_examples_count=10,
    )


def say(event: TrainerEvent) -> None:
    sys.stdout.write(write_event(event))
    sys.stdout.flush()


def wait_for_end_of_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
