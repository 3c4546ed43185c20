"""A data set of a user's own, from `farm data` to the farm's advice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import JobState
from farm.measuring.measurement import OK
from farm.messages.trainer_lines import FailureKind
from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.store.tables import JobRow
from tests.e2e.farm_up import farm_up, submit_and_wait
from tests.e2e.start.test_demo import FARM
from tests.own_data_files import write_npz

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]


def run(environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FARM, *words], env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def sweep_on(path: Path, line: str) -> Path:
    path.write_text(
        f'name = "{path.stem}"\n[[case]]\n{line}'
        'model = "mlp"\nstrategy = "single"\nworld_size = 1\nglobal_batch_size = 20\nsteps = 10\n'
    )
    return path


def test_two_contents_of_a_file_are_measured_apart_and_never_taken_for_each_other(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    file = data / "flowers.npz"
    sweeps, names = [], []
    with farm_up(
        tmp_path, agent_count=1, FARM_DATA_DIR=str(data), FARM_MAX_ATTEMPTS="1"
    ) as environ:
        for version in (1, 2):
            write_npz(file, y_test=[0, version, 2, 3] * 3)
            line = run(environ, "data", str(file)).stdout
            names.append(line.removeprefix("dataset = ").strip().strip('"'))
            sweeps.append(sweep_on(tmp_path / f"version {version}.toml", line))
            submit_and_wait(sweeps[-1], environ)
        again = run(environ, "submit", str(sweeps[0]), "--wait", "--patience", "600")
        advice = [
            run(environ, "recommend", "--dataset", name, "--global-batch-size", "20", "--json")
            for name in names
        ]
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    with reading(engine) as session:
        measured = session.scalars(sa.select(MeasurementRow).order_by(MeasurementRow.id)).all()
        jobs = session.scalars(sa.select(JobRow).order_by(JobRow.id)).all()
        found = [(row.dataset, row.status) for row in measured]
        ids = [row.id for row in measured]
        last = jobs[-1]
    engine.dispose()
    assert names[0] != names[1]
    assert found[:2] == [(name, OK) for name in names]
    assert (last.dataset, last.state) == (names[0], JobState.FAILED)
    assert last.failure_kind == FailureKind.DATASET_MISSING.value
    assert f"{file}: expected content {names[0].partition('@')[2][:12]}, got " in (
        last.reason or ""
    )
    assert again.returncode == 1
    for measurement_id, answer in zip(ids[:2], advice, strict=True):
        assert answer.returncode == 0, answer.stderr
        recommended = json.loads(answer.stdout)["recommended"]
        assert recommended["measurement_ids"] == [measurement_id]
