"""A disturbed measurement is marked wherever one measurement is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState, RankPhase
from farm.store.engine import reading, writing
from farm.store.tables import JobRow, RankRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.web.web_client import client_of

FLAG = {"kind": "steal", "message": "agent a1, rank 0: 5 % of its cores was stolen (limit 2 %)"}


@pytest.fixture
def disturbed(engine: sa.Engine) -> int:
    """Two measured jobs; returns the id of the second, which was disturbed."""
    with writing(engine) as session:
        quiet, job_id = add_sweep(session, job_spec(), job_spec(repetition=1))
        add_agent(session, "a1")
        token = 0
        for one in (quiet, job_id):
            token = add_attempt(
                session, one, ["a1"], state=AttemptState.SUCCEEDED, phase=RankPhase.ENDED
            )
        session.get_one(RankRow, (token, 0)).control_s = 0.0205
        add_measurement(session, "quiet", job_id=quiet, outlier_step_count=0)
        add_measurement(
            session,
            "disturbed",
            job_id=job_id,
            step_time_s=0.00209,
            step_time_low_s=0.00205,
            step_time_high_s=0.0022,
            timed_step_count=100,
            outlier_step_count=3,
            control_ratio=1.07,
            flags=[FLAG],
            details={"largest_outlier_s": 0.009},
        )
    return job_id


def test_the_page_of_the_job_has_reason_interval_outliers_and_control_run(
    engine: sa.Engine, disturbed: int
) -> None:
    page = client_of(engine).get(f"/jobs/{disturbed}").get_data(as_text=True)
    assert f"Disturbed (steal): {FLAG['message']}" in page
    assert "2.05 ms to 2.20 ms" in page
    assert "(longest 9.00 ms)" in page
    assert "107 %" in page
    assert "20.5 ms" in page
    quiet = client_of(engine).get(f"/jobs/{disturbed - 1}").get_data(as_text=True)
    assert "Disturbed (" not in quiet
    # Once: beside the other repetition, with which it is compared.
    assert quiet.count("isturbed") == 1


def test_the_page_of_the_sweep_marks_its_line_and_no_other(
    engine: sa.Engine, disturbed: int
) -> None:
    with reading(engine) as session:
        sweep_id = session.get_one(JobRow, disturbed).sweep_id
    page = client_of(engine).get(f"/sweeps/{sweep_id}").get_data(as_text=True)
    assert page.count(f'title="{FLAG["message"]}"') == 1
    assert "! was disturbed" in page


def test_the_api_has_them_with_the_measurement_and_with_the_job(
    engine: sa.Engine, disturbed: int
) -> None:
    client = client_of(engine)
    story = client.get(f"/api/v1/jobs/{disturbed}").get_json()
    _, listed = client.get("/api/v1/measurements").get_json()["items"]
    for row in (listed, story["measurement"]):
        assert row["flags"] == [FLAG]
        assert (row["outlier_step_count"], row["control_ratio"]) == (3, 1.07)
        assert (row["step_time_low_s"], row["step_time_high_s"]) == (0.00205, 0.0022)
    [rank] = story["attempts"][0]["ranks"]
    assert (rank["control_s"], rank["disturbed_by"]) == (0.0205, None)


def test_the_command_line_marks_it_and_says_why_below(
    engine: sa.Engine, disturbed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = FarmCommand(engine, tmp_path / "home", monkeypatch)
    listed = farm.text("jobs").splitlines()
    assert [" succeeded ! " in line for line in listed[1:3]] == [False, True]
    assert listed[3:] == [f"! job {disturbed} was disturbed: {FLAG['message']}"]
    output = farm.text("job", str(disturbed))
    assert "step_time_s = 0.00209 !\n" in output
    assert output.endswith(f"! disturbed: {FLAG['message']}\n")
    assert "!" not in farm.text("job", str(disturbed - 1))
    items = farm.json("jobs")["items"]
    assert [job["flags"] for job in items] == [[], [FLAG]]
