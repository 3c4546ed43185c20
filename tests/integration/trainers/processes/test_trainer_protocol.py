"""The trainer as its agent sees it: real processes, spoken to by lines alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from farm.configuration.catalogue import GangShape
from farm.configuration.spec import JobSpec, TrainingPass
from farm.messages.trainer_lines import (
    Assignment,
    Epoch,
    Failure,
    FailureKind,
    GoLine,
    Progress,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerResult,
)
from farm.trainers.processes.process import EXIT_ABANDONED, EXIT_FAILED, EXIT_USAGE
from farm.trainers.strategies.mwms_ring import MwmsRing
from tests.integration.trainer_process import (
    TrainerProcess,
    free_ports,
    gang,
    results,
    started,
)

pytestmark = pytest.mark.alone

# 1437 = 3 * 381 + 294: every fourth step is partial, and both sizes are uneven over two ranks.
UNEVEN_BATCH = 381
PARAMETER_COUNT = 72_842
SINGLE = JobSpec(
    model="small_cnn",
    dataset="digits",
    strategy="single",
    world_size=1,
    global_batch_size=UNEVEN_BATCH,
    steps=10,
    warmup_step_count=2,
)
RING = replace(SINGLE, strategy="mwms_ring", world_size=2)
LONG = replace(RING, steps=1_000_000)
# The evaluation of 10,000 examples takes the leader a second or two.
EVALUATED = replace(RING, dataset="synthetic_cifar10", global_batch_size=64, steps=3)


def kinds_of_steps(trainer: TrainerProcess) -> str:
    """One letter for each step, in order of their numbers, which have no gap."""
    letters = {
        StepKind.WARMUP: "w",
        StepKind.TIMED: "t",
        StepKind.PARTIAL: "P",
        StepKind.PROFILED: "p",
    }
    kinds = ""
    for steps in trainer.seen(Steps):
        assert steps.first_step == len(kinds)
        kinds += letters[steps.kind] * len(steps.times_s)
    return kinds


@pytest.mark.tensorflow
def test_a_gang_trains_as_one_machine_does_and_sends_what_the_ring_must(tmp_path: Path) -> None:
    (tmp_path / "single").mkdir()
    with gang(SINGLE, tmp_path / "single") as trainers:
        (alone,) = results(trainers)
        # w warm-up, t timed, P partial, p profiled: ten timed ones and one more to close the trace.
        assert kinds_of_steps(trainers[0]) == "ww" + "t" + "Pttt" * 3 + "p" * 11
        assert alone.timed_step_count == 10
        assert alone.window_step_count == 13
        assert trainers[0].seen(Started)[0].parameter_count == PARAMETER_COUNT
        assert alone.profile is not None
        assert alone.profile.communication_s == 0.0
        assert alone.payload_tx_bytes == 0
        assert alone.val_accuracy_ratio is not None

    with gang(RING, tmp_path) as trainers:
        pair = results(trainers)
    for result in pair:
        # The order of summation differs, nothing else: float32 over thirteen updates.
        for key in ("weights_sum", "weights_square_sum"):
            assert result.details[key] == pytest.approx(alone.details[key], rel=1e-4)
        sent = MwmsRing().traffic(GangShape(world_size=2), PARAMETER_COUNT * 4).bytes
        assert result.payload_tx_bytes is not None
        assert result.payload_tx_bytes / 13 == pytest.approx(sent, rel=0.1)
        # The loopback interface carries what both ranks send, and what else there is.
        assert result.interface_tx_bytes is not None
        assert result.interface_tx_bytes > 2 * 0.9 * 13 * sent
    # TensorFlow's profiler may crash in a rank now and then (`collective_times`).
    profiles = [result.profile for result in pair if result.profile is not None]
    assert profiles
    assert all(0.0 < p.communication_s < p.step_time_s for p in profiles)
    assert pair[0].val_accuracy_ratio == pytest.approx(alone.val_accuracy_ratio, abs=0.01)
    assert pair[1].val_accuracy_ratio is None
    assert not any(isinstance(e, Failure) for t in trainers for _, e in t.events)


@pytest.mark.tensorflow
def test_epochs_are_complete_passes_that_the_warm_up_does_not_touch(tmp_path: Path) -> None:
    job = replace(SINGLE, steps=None, epochs=4, global_batch_size=64)
    with gang(job, tmp_path) as (trainer,):
        (result,) = results([trainer])
    assert [(e.epoch, e.step_count) for e in trainer.seen(Epoch)] == [(n, 23) for n in range(4)]
    assert result.timed_step_count == 4 * 22
    assert len(trainer.step_times_s(StepKind.PARTIAL)) == 4
    last = trainer.seen(Epoch)[-1]
    assert last.val_accuracy_ratio == result.val_accuracy_ratio
    assert result.val_accuracy_ratio is not None
    assert result.val_accuracy_ratio > 0.6


@pytest.mark.tensorflow
def test_a_gang_trains_by_epochs_with_a_last_step_smaller_than_itself(tmp_path: Path) -> None:
    # 1437 = 4 * 359 + 1: the last step of each epoch has one example, and rank 1 has none.
    job = replace(RING, steps=None, epochs=2, global_batch_size=359)
    with gang(job, tmp_path) as trainers:
        leader, follower = results(trainers)
    assert leader.details["weights_sum"] == follower.details["weights_sum"]
    assert [e.step_count for e in trainers[1].seen(Epoch)] == [5, 5]
    assert all(e.val_accuracy_ratio is None for e in trainers[1].seen(Epoch))
    assert all(e.val_accuracy_ratio is not None for e in trainers[0].seen(Epoch))


@pytest.mark.tensorflow
def test_a_forward_pass_sends_nothing_and_learns_nothing(tmp_path: Path) -> None:
    job = replace(RING, training_pass=TrainingPass.FORWARD, global_batch_size=64, steps=50)
    with gang(job, tmp_path) as trainers:
        for result in results(trainers):
            assert result.val_accuracy_ratio is None
            assert result.profile is None
            assert result.payload_tx_bytes is not None
            assert result.payload_tx_bytes / 50 < 0.01 * PARAMETER_COUNT


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("blow", "limit_s"), [(signal.SIGKILL, 5.0), (signal.SIGSTOP, 25.0)], ids=["killed", "stopped"]
)
def test_the_loss_of_a_peer_is_noticed_and_named(
    tmp_path: Path, blow: signal.Signals, limit_s: float
) -> None:
    with gang(LONG, tmp_path) as (leader, follower):
        for trainer in (leader, follower):
            trainer.wait_for(Progress)  # well within the timed steps
        follower.process.send_signal(blow)
        begun = time.monotonic()
        failure = leader.wait_for(Failure)
        assert failure.kind is FailureKind.PEER_LOST
        assert "\n" not in failure.message
        assert leader.exit_code() == EXIT_FAILED
        assert time.monotonic() - begun < limit_s


def stop_in_evaluation(leader: TrainerProcess, follower: TrainerProcess) -> None:
    """Stop the leader in its evaluation, for which its peer waits.

    Stopped before the peer has all of the last step from it, it would be missed in that step.
    """
    for trainer in (leader, follower):
        while trainer.wait_for(Steps).kind is not StepKind.TIMED:
            pass
    leader.process.send_signal(signal.SIGSTOP)


@pytest.mark.tensorflow
def test_a_leader_that_stops_while_its_peers_wait_is_noticed_and_named(tmp_path: Path) -> None:
    with gang(EVALUATED, tmp_path) as (leader, follower):
        stop_in_evaluation(leader, follower)
        begun = time.monotonic()
        failure = follower.wait_for(Failure)
        assert time.monotonic() - begun < 25.0
    assert failure.kind is FailureKind.PEER_LOST
    assert "rank 0 has not answered for 5 s" in failure.message


@pytest.mark.tensorflow
def test_a_rank_that_waits_for_its_leader_shows_signs_of_life(tmp_path: Path) -> None:
    with gang(EVALUATED, tmp_path) as (leader, follower):
        stop_in_evaluation(leader, follower)
        follower.wait_for(Progress, timeout_s=10.0)
        leader.process.send_signal(signal.SIGCONT)
        results([leader, follower])


@pytest.mark.tensorflow
def test_a_trainer_stays_on_its_cores_and_ends_with_its_pipe(tmp_path: Path) -> None:
    with gang(replace(SINGLE, steps=1_000_000), tmp_path) as (trainer,):
        trainer.wait_for(Started)
        threads = Path(f"/proc/{trainer.process.pid}/task").iterdir()
        cpus = {frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads}
        assert cpus == {frozenset({min(os.sched_getaffinity(0))})}
        trainer.close_stdin()
        assert trainer.exit_code(timeout_s=10.0) == EXIT_ABANDONED
        assert trainer.seen(TrainerResult) == []


@pytest.mark.tensorflow
def test_a_taken_port_is_no_fault_of_the_configuration(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as leader, socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        leader.write(Assignment(job=RING, rank=0, cpus=(min(os.sched_getaffinity(0)),)))
        leader.wait_for(Ready)
        addresses = (f"127.0.0.1:{port}", f"127.0.0.1:{free_ports(1)[0]}")
        leader.write(GoLine(cluster={"worker": addresses}, task_index=0))
        failure = leader.wait_for(Failure)
        assert failure.kind is FailureKind.PORT_TAKEN
        assert str(port) in failure.message
        assert leader.exit_code() == EXIT_FAILED


@pytest.mark.tensorflow
def test_a_leader_whose_peer_never_comes_ends_within_the_limit(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as leader:
        leader.write(
            Assignment(job=RING, rank=0, cpus=(min(os.sched_getaffinity(0)),), peer_timeout_s=3.0)
        )
        leader.wait_for(Ready)
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
        leader.write(GoLine(cluster={"worker": addresses}, task_index=0))
        assert leader.exit_code(timeout_s=15.0) == EXIT_FAILED
        assert "Timeout" in leader.log.read_text()


def test_a_missing_data_set_is_named_and_nothing_synthetic_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"no archive")
    with started(replace(SINGLE, dataset="mnist"), tmp_path, data_dir=tmp_path) as (trainer,):
        failure = trainer.wait_for(Failure)
        assert failure.kind is FailureKind.DATASET_MISSING
        assert str(tmp_path) in failure.message
        assert trainer.exit_code() == EXIT_FAILED


@pytest.mark.parametrize("line", ["", "hello\n", "{}\n", '{"job": 1}\n'])
def test_a_first_line_that_is_no_assignment_gets_one_line_and_exit_code_2(line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "farm.trainers"],
        input=line,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == EXIT_USAGE
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "assignment" in done.stderr


def test_a_cpu_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with TrainerProcess(tmp_path / "log") as trainer:
        trainer.write(Assignment(job=SINGLE, rank=0, cpus=(1023,)))
        assert trainer.exit_code(timeout_s=30.0) == EXIT_USAGE
    assert "cpus" in trainer.log.read_text()


def test_a_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    """Without the pipe: TensorFlow may hold the interpreter's lock when it closes."""
    child = (
        "import sys; from farm.trainers.processes.process import end_with_parent;"
        "end_with_parent();"
        "print('armed', flush=True); sys.stdin.read()"
    )
    parent = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]]);"
        "print(child.pid, flush=True); sys.stdin.read()"
    )
    reading, writing = os.pipe()  # held open by this test, so that only the signal can end them
    try:
        with subprocess.Popen(
            [sys.executable, "-c", parent, child], stdin=reading, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = {process.stdout.readline().strip() for _ in range(2)}
            assert "armed" in lines
            (pid,) = lines - {"armed"}
            process.kill()
            deadline = time.monotonic() + 10.0
            while _is_running(int(pid)):
                assert time.monotonic() < deadline, f"process {pid} lives on"
                time.sleep(0.01)
    finally:
        os.close(reading)
        os.close(writing)


def _is_running(pid: int) -> bool:
    try:
        # A killed orphan may wait as a zombie for whoever adopts it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
