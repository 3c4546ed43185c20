"""How precise the cells of a sweep are, on the page, in the API and on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading, writing
from farm.store.sweeps.jobs import list_jobs
from farm.store.tables import AttemptRow
from farm.submission import plan, submit
from tests import factories
from tests.commands.farm_command import FarmCommand
from tests.facts import lacking
from tests.stored.sweep_cells import cells_in
from tests.web.web_client import client_of

SWEEP = {
    "name": "precise",
    "repetitions": "auto",
    "max_repetitions": 4,
    "case": [
        {
            "model": "mlp",
            "dataset": "digits",
            "strategy": "single",
            "world_size": 1,
            "global_batch_size": [32, 64],
        }
    ],
}
TIMES_S = {32: (0.100, 0.100, 0.1005), 64: (0.1, 0.1, 0.2)}


@pytest.fixture
def client(engine: sa.Engine) -> FlaskClient:
    return client_of(engine)


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def sweep_id(engine: sa.Engine) -> int:
    """Batch 32 is precise; batch 64 still runs, and has an outlier."""
    with writing(engine) as session:
        sweep_id = submit(session, plan(SWEEP), now=factories.NOW).sweep_id
        for job in list_jobs(session, sweep_id=sweep_id):
            token = factories.add_attempt(session, job.id, state=AttemptState.SUCCEEDED)
            session.get_one(AttemptRow, token).ended_at = factories.NOW + factories.seconds(60)
            factories.add_measurement(
                session,
                f"job {job.id}",
                job_id=job.id,
                global_batch_size=job.global_batch_size,
                repetition=job.repetition,
                step_time_s=TIMES_S[job.global_batch_size][job.repetition],
                fingerprint="x",
            )
    return sweep_id


def test_the_api_tells_cells_target_and_machine_time(client: FlaskClient, sweep_id: int) -> None:
    answer = client.get(f"/api/v1/sweeps/{sweep_id}").get_json()
    precise, loose = answer["cells"]
    assert precise["configuration"]["global_batch_size"] == 32
    assert "seed" not in precise["configuration"]
    assert precise["configuration"]["warmup_steps"] == 5
    assert (precise["target"], precise["repetition_count"]) == ("reached", 3)
    assert precise["step_time_low_s"] < 0.1 < precise["step_time_high_s"]
    assert precise["half_width_ratio"] <= answer["target_ratio"] == 0.02
    assert loose["target"] == "running"
    assert len(loose["outlier_job_ids"]) == 1
    assert answer["machine_s"] == 360.0
    assert (answer["fixed_repetitions"], answer["machine_hours_saved"]) == (3, 0.0)
    assert (answer["max_job_count"], answer["has_more_cells"]) == (6, False)


def test_the_page_has_a_line_for_each_cell(client: FlaskClient, sweep_id: int) -> None:
    page = client.get(f"/sweeps/{sweep_id}").get_data(as_text=True)
    table = page.split('id="cells"')[1].split('id="results"')[0]
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", table))
    assert "at most 2.0 % of the median" in text
    assert re.search(r"32 single 1 100 ms ± 1\.6 % 3 reached –", text)  # noqa: RUF001
    assert re.search(r"64 single 1 100 ms ± \d+\.\d % 3 running job \d+", text)
    assert "3 repetitions of every cell would have taken" in text


def test_a_sweep_that_is_not_precise_says_how_many_jobs_it_may_have(
    client: FlaskClient, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        sweep_id = submit(session, plan(SWEEP), now=factories.NOW).sweep_id
    page = client.get(f"/sweeps/{sweep_id}").get_data(as_text=True)
    assert "0 of 6 done, up to 8 in all" in page


def test_of_a_large_sweep_only_whole_cells_are_told(engine: sa.Engine, sweep_id: int) -> None:
    with reading(engine) as session:
        found = cells_in(session, sweep_id, max_jobs=5)
    assert [cell.machine_s for cell in found.cells] == [180.0]
    assert not found.is_complete
    assert found.saving is None


def test_the_command_marks_what_is_precise_and_names_outliers(
    farm: FarmCommand, sweep_id: int
) -> None:
    lines = [" ".join(line.split()) for line in farm.text("status", str(sweep_id)).splitlines()]
    precise = next(line for line in lines if line.split()[:2] == ["32", "single"])
    loose = next(line for line in lines if line.split()[:2] == ["64", "single"])
    assert "3 reached 100 ms ± 1.6 %" in precise
    assert "3* running 100 ms ± " in loose
    [outlier] = farm.json("status", str(sweep_id))["cells"][1]["outlier_job_ids"]
    [note] = [line for line in lines if line.startswith("*:")]
    assert lacking(note, f"job {outlier}") == []
    assert lacking(lines[-1], "machine time: 6 min", "3 repetitions", "taken 6 min") == []


def test_the_command_tells_the_same_as_the_api(
    farm: FarmCommand, client: FlaskClient, sweep_id: int
) -> None:
    shown = farm.json("status", str(sweep_id))
    answer = client.get(f"/api/v1/sweeps/{sweep_id}").get_json()
    assert shown["cells"] == answer["cells"]
    assert shown["sweep"]["max_job_count"] == answer["max_job_count"]
    assert shown["machine_hours_saved"] == answer["machine_hours_saved"]


def test_submitting_says_how_many_jobs_may_follow_and_what_for(
    farm: FarmCommand, tmp_path: Path
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'name = "precise"\nrepetitions = "auto"\nprecision_percent = 0.5\n[[case]]\n'
        'model = "mlp"\ndataset = "digits"\nstrategy = "single"\nworld_size = 1\n'
        "global_batch_size = 32\n"
    )
    more = "3 jobs, up to 10 until every step time is known to ± 0.5 %"
    assert farm.text("submit", str(file), "--dry-run").splitlines()[0] == f"precise: {more}"
    output = farm.text("submit", str(file))
    assert output == f"sweep 1: {more.replace('jobs,', 'jobs enqueued,')}\n"
    shown = farm.text("status", "precise").splitlines()[0]
    assert lacking(shown, "sweep 1 precise", "0 of 3", "up to 10", "no agent") == []
