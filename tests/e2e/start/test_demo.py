"""The demo as a newcomer runs it, on real TensorFlow: what its store holds, what it leaves.

BENCHFARM_DEMO may name the folder of one that has run to its end, with what it said in output.txt.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import OperationalError

from farm.configuration.spec import TrainingPass
from farm.errors import Unreachable
from farm.gang.lifecycle import AttemptState, JobState
from farm.measuring.noise import disturbance_of_row, undisturbed_first
from farm.messages.trainer_lines import StepKind
from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.store.series.series import epochs_of, steps_of
from farm.store.tables import AttemptRow, JobRow, LateReport, RankRow
from farm.trainers.all_reduce import ring_all_reduce
from tests.e2e.live_farm import wait_until
from tests.stored.stored_series import samples_of

# The demo takes one minute, and five on a busy machine at a third of the usual speed.
DEMO_LIMIT_S = 840
pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]
if "BENCHFARM_DEMO" not in os.environ:
    pytestmark += [pytest.mark.slow, pytest.mark.alone]

FARM = [sys.executable, "-m", "farm.cli.main"]


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
    return {**kept, "FARM_HOME": str(home)}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo that ran to its end."""
    given = os.environ.get("BENCHFARM_DEMO")
    if given:
        return Path(given)
    home = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [*FARM, "demo", "--exit"],
        env=environment(home),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=DEMO_LIMIT_S,
    )
    (home / "output.txt").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return home


@pytest.fixture(scope="module")
def engine(home: Path) -> Iterator[Engine]:
    engine = make_engine(f"sqlite:///{home}/farm.db")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def rows(engine: Engine) -> list[MeasurementRow]:
    with reading(engine) as session:
        return list(session.scalars(select(MeasurementRow).order_by(MeasurementRow.id)))


def attempts(engine: Engine) -> list[tuple[AttemptRow, JobRow, list[RankRow]]]:
    """Every successful attempt with its job and its ranks."""
    with reading(engine) as session:
        found = session.execute(
            select(AttemptRow, JobRow)
            .join(JobRow, JobRow.id == AttemptRow.job_id)
            .where(AttemptRow.state == AttemptState.SUCCEEDED)
        ).all()
        return [
            (
                attempt,
                job,
                list(session.scalars(select(RankRow).where(RankRow.attempt_id == attempt.id))),
            )
            for attempt, job in found
        ]


def test_other_users_can_read_nothing_that_it_wrote(home: Path) -> None:
    written = [path for path in home.iterdir() if path.name != "output.txt"]
    assert home / "farm.db" in written
    assert not [path for path in written if path.lstat().st_mode & 0o077]


def test_every_job_succeeded_and_is_measured_once(
    engine: Engine, rows: list[MeasurementRow]
) -> None:
    with reading(engine) as session:
        jobs = session.scalars(select(JobRow)).all()
        assert session.scalars(select(LateReport)).all() == []
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    assert sorted(row.job_id or 0 for row in rows) == sorted(job.id for job in jobs)
    batch_sizes = {row.global_batch_size for row in rows}
    assert len(batch_sizes) == 2
    assert {(row.strategy, row.world_size) for row in rows} == {("single", 1), ("mwms_ring", 2)}


def test_every_rank_kept_every_step_and_a_sample_for_every_second(engine: Engine) -> None:
    for attempt, job, ranks in attempts(engine):
        assert len(ranks) == job.world_size
        with reading(engine) as session:
            for rank in ranks:
                chunks = steps_of(session, attempt.id, rank=rank.rank)
                timed = sum(len(c.times_s) for c in chunks if c.kind is StepKind.TIMED)
                assert rank.ended is not None
                assert timed == rank.ended["result"]["timed_step_count"] > 0
                ticks = [s.tick for s in samples_of(session, attempt.id, rank=rank.rank)]
                assert ticks == list(range(len(ticks)))
                assert len(ticks) >= 2


def test_samples_hold_cpu_memory_and_bytes(engine: Engine) -> None:
    for attempt, _, ranks in attempts(engine):
        with reading(engine) as session:
            for rank in ranks:
                later = samples_of(session, attempt.id, rank=rank.rank)[1:]
                # Seconds may end between the trainers' end and their agent's notice of it.
                while later[-1].net_tx_bytes_per_s is None:
                    later.pop()
                assert all(s.cpu_ratio is not None for s in later)
                assert all(s.machine_steal_ratio is not None for s in later)
                assert all(s.net_tx_bytes_per_s is not None for s in later)
                assert max(s.resident_bytes or 0 for s in later) > 100e6


def test_every_epoch_has_an_accuracy_that_training_improved(
    engine: Engine, rows: list[MeasurementRow]
) -> None:
    for attempt, job, _ in attempts(engine):
        with reading(engine) as session:
            epochs = epochs_of(session, attempt.id, rank=0)
        assert [e.epoch for e in epochs] == list(range(job.spec["epochs"]))
        accuracies = [e.val_accuracy_ratio for e in epochs]
        assert None not in accuracies
        assert (accuracies[-1] or 0) > 0.5
    assert all(row.accuracy is not None for row in rows)


def test_a_gang_reaches_the_accuracy_of_one_machine(rows: list[MeasurementRow]) -> None:
    """The same seed, batches and number of updates: the mathematics is the same."""
    by_cell = {
        (row.global_batch_size, row.repetition, row.world_size): row.accuracy for row in rows
    }
    for batch_size, repetition, world_size in by_cell:
        if world_size > 1:
            alone = by_cell[batch_size, repetition, 1]
            assert by_cell[batch_size, repetition, world_size] == pytest.approx(alone, abs=0.03)


def test_bytes_per_step_are_within_a_tenth_of_the_rings_theory(rows: list[MeasurementRow]) -> None:
    for row in rows:
        assert row.training_pass == TrainingPass.FORWARD_BACKWARD.value
        if row.strategy == "mwms_ring":
            assert row.gradient_bytes is not None
            theory = ring_all_reduce(row.world_size, row.gradient_bytes)
            assert row.sent_bytes_per_step == pytest.approx(theory.bytes, rel=0.10)


def test_short_epochs_have_means_of_cpu_and_bytes_too(rows: list[MeasurementRow]) -> None:
    for row in rows:
        assert row.cpu_ratio is not None
        assert 0 < row.cpu_ratio < 1.1  # a busy machine gives a rank little of its core
        assert row.net_tx_bytes_per_s is not None
        assert (row.net_tx_bytes_per_s > 0) is (row.world_size > 1)


def test_communication_is_measured_where_there_is_any(rows: list[MeasurementRow]) -> None:
    for row in rows:
        assert row.compute_s is not None
        assert row.compute_s > 0
        assert row.communication_s is not None
        assert (row.communication_s > 0) is (row.world_size > 1)


def test_what_was_measured_on_and_with_is_stored(rows: list[MeasurementRow]) -> None:
    for row in rows:
        assert row.fingerprint is not None
        assert row.details["hardware"][0]["cpu_model"]
        source = row.details["dataset_source"]
        assert source["is_synthetic"] is False
        assert len(source["sha256"]) == 64


def test_the_recommendation_follows_from_what_was_measured(
    home: Path, rows: list[MeasurementRow]
) -> None:
    for batch_size in {row.global_batch_size for row in rows}:
        question = ["--model", "small_cnn", "--dataset", "digits", "--one-way-delay-ms", "0"]
        done = subprocess.run(
            [*FARM, "recommend", *question, "--global-batch-size", str(batch_size), "--json"],
            env=environment(home),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        found = json.loads(done.stdout)
        answer, options = found["recommended"], {o["world_size"]: o for o in found["options"]}
        assert answer["basis"] == "measured"
        cells: dict[int, list[MeasurementRow]] = {}
        for row in rows:
            if row.global_batch_size == batch_size:
                cells.setdefault(row.world_size, []).append(row)
        # A disturbed repetition is no evidence beside an undisturbed one.
        evidence = {
            size: undisturbed_first(cell, disturbance_of_row) for size, cell in cells.items()
        }
        chosen = evidence[answer["world_size"]]
        assert answer["measurement_ids"] == [row.id for row in chosen]
        fastest_s = min(row.time_per_epoch_s or 0.0 for row in chosen)
        for size, others in evidence.items():
            rival = options[size]
            assert answer["low_s"] <= rival["high_s"]
            # A shorter time that is less sure may be the worse choice.
            is_as_sure = len(others) == len(chosen) and not rival["disturbed_ids"]
            if is_as_sure and not answer["disturbed_ids"]:
                assert fastest_s <= max(row.time_per_epoch_s or 0.0 for row in others)


def test_the_output_names_a_world_size_for_each_batch_size(
    home: Path, rows: list[MeasurementRow]
) -> None:
    output = (home / "output.txt").read_text()
    for batch_size in {row.global_batch_size for row in rows}:
        assert re.search(rf"^Recommended for .* batch {batch_size}: .*world size \d", output, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["redis", "agents", "training"])
def test_ctrl_c_leaves_no_process_no_port_and_no_half_written_row(
    tmp_path: Path, moment: str
) -> None:
    demo = subprocess.Popen(
        [*FARM, "demo"],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: _has_come_to(tmp_path, moment), f"the demo has come to: {moment}")
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=40) == 130
    finally:
        demo.kill()
        demo.wait(timeout=60)
    assert _processes_of(tmp_path) == []
    endpoints = tmp_path / "endpoints.json"
    if (tmp_path / "farm.db").exists() and moment == "training":
        engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
        with reading(engine) as session:
            states = {job.state for job in session.scalars(select(JobRow))}
            finished = [job.finished_at for job in session.scalars(select(JobRow))]
        engine.dispose()
        assert JobState.WAITING not in states
        assert all(at is None or at <= dt.datetime.now(dt.UTC) for at in finished)
    if endpoints.exists():
        assert not _listening(json.loads(endpoints.read_text()))


def _has_come_to(home: Path, moment: str) -> bool:
    if moment == "redis":
        return any(home.rglob("redis.pid"))  # it renames its process
    if moment == "agents":
        return any("worker_agent" in " ".join(line) for line in _processes_of(home))
    return (home / "farm.db").exists() and _is_training(home)


def _is_training(home: Path) -> bool:
    engine = make_engine(f"sqlite:///{home}/farm.db")
    try:
        with reading(engine) as session:
            return (
                session.scalar(select(JobRow.id).where(JobRow.state == JobState.RUNNING))
                is not None
            )
    except (OperationalError, Unreachable):
        return False  # its tables are being made
    finally:
        engine.dispose()


def _processes_of(home: Path) -> list[list[str]]:
    """Return the command lines of processes that belong to the farm in `home`, the demo aside."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if line and line[-1] != "demo" and str(home) in " ".join(process.environ().values()):
                found.append(line)
        except psutil.Error:
            continue
    return found


def _listening(endpoints: dict[str, object]) -> list[int]:
    """Return the ports named in the endpoints on which something still listens."""
    open_ports = {
        c.laddr.port
        for c in psutil.net_connections(kind="tcp")
        if c.laddr and c.status == psutil.CONN_LISTEN
    }
    named = {
        int(part)
        for value in endpoints.values()
        for part in str(value).replace("/", ":").split(":")
        if part.isdigit() and int(part) > 1023
    }
    return sorted(open_ports & named)
