"""`farm reproduce` in a lab, stopped in the middle; only the trainers are fakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import sqlalchemy as sa

from farm.embedded.farm import find_marked
from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, SweepRow
from farm.studies.publishing import read_runs
from tests.e2e.live_farm import wait_until
from tests.lab.test_command import environment

SWEEP = """
name = "a tiny study"
repetitions = 2

[[case]]
model = "mlp"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = 32
one_way_delay_ms = [0, 20]
"""


def test_a_stopped_study_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    home, out, sweep = tmp_path / "home", tmp_path / "out", tmp_path / "tiny.toml"
    sweep.write_text(SWEEP)
    # Who was interrupted is missed sooner.
    settings = {**environment(home), "FARM_LEASE_S": "8", "FARM_RETRY_WAIT_S": "0.2"}
    command = [sys.executable, "-m", "farm.cli.main", "reproduce", "latency"]
    command += ["--sweep", str(sweep), "--out", str(out)]
    engine = make_engine(f"sqlite:///{home}/farm.db")

    def measured() -> set[int | None]:
        if not sa.inspect(engine).has_table("measurements"):
            return set()
        with reading(engine) as session:
            return set(session.scalars(sa.select(MeasurementRow.job_id)))

    def attempts(job_ids: set[int | None]) -> list[int]:
        with reading(engine) as session:
            query = (
                sa.select(AttemptRow.id)
                .where(AttemptRow.job_id.in_(job_ids))
                .order_by(AttemptRow.id)
            )
            return list(session.scalars(query))

    with subprocess.Popen(
        command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(measured, "a job is measured")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to continue" in errors
    assert not (out / "latency-study.md").exists()
    first = measured()
    assert len(first) < 4
    first_attempts = attempts(first)

    done = subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    with reading(engine) as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(SweepRow)) == 1
    assert attempts(first) == first_attempts
    engine.dispose()
    runs = read_runs((out / "studies/latency.csv").read_text(), name="latency.csv")
    assert [run["world_size"] for run in runs] == [2] * 4
    # Three hosts may have fewer cores; two ranks share one only where there is no other.
    assert all(run.core_count >= min(2, len(os.sched_getaffinity(0))) for run in runs)
    assert (out / "latency-study.md").read_text().startswith("# What a delay")
    assert find_marked(str(home)) == []
