"""`farm check` and `farm baseline`: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import JobState
from farm.store.engine import writing
from farm.store.tables import JobRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_measurement, add_sweep, job_spec


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def _measured(
    session: Session,
    name: str,
    *times_s: float,
    batches: tuple[int, ...] = (32,),
    left_in: JobState | None = None,
) -> None:
    """Store a sweep: of the first batch size each repetition with its step time, of others one.

    `left_in`: one more job of the first, which is in that state.
    """
    measured = [(job_spec(repetition=n), time_s) for n, time_s in enumerate(times_s)]
    measured += [(job_spec(global_batch_size=batch), 0.1) for batch in batches[1:]]
    specs = [spec for spec, _ in measured]
    if left_in is not None:
        specs.append(job_spec(repetition=len(times_s)))
    job_ids = add_sweep(session, *specs, name=name)
    for (spec, time_s), job_id in zip(measured, job_ids, strict=False):
        session.get_one(JobRow, job_id).state = JobState.SUCCEEDED
        add_measurement(
            session,
            f"job {job_id}",
            job_id=job_id,
            step_time_s=time_s,
            global_batch_size=spec.global_batch_size,
            strategy=spec.strategy,
            fingerprint="a kind",
        )
    if left_in is not None:
        session.get_one(JobRow, job_ids[-1]).state = left_in


@pytest.fixture(autouse=True)
def _sweeps(engine: sa.Engine) -> None:
    with writing(engine) as session:
        _measured(session, "before", 0.100, 0.101, 0.099)
        _measured(session, "slower", 0.120, 0.121, 0.119)
        _measured(session, "alike", 0.101, 0.099, 0.100)
        _measured(session, "few", 0.120)


def test_a_slower_sweep_fails_the_check_and_shows_where(farm: FarmCommand) -> None:
    assert farm.text("baseline", "set", "before") == "baseline default: sweep 1, before\n"
    found = farm.run("check", "slower")
    assert found.exit_code == 1
    assert "1.200 (1." in found.stdout
    assert found.stdout.endswith("1 cell is slower than in sweep 1\n")
    for arguments in (("slower", "--tolerance", "25"), ("alike",)):
        assert farm.text("check", *arguments).endswith("no cell is slower than in sweep 1\n")


def test_a_check_that_can_say_nothing_fails_and_says_so(farm: FarmCommand) -> None:
    farm.text("baseline", "set", "before")
    found = farm.run("check", "few")
    assert found.exit_code == 1
    assert "too few repetitions" in found.stdout
    assert "not known: no cell" in found.stdout


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (
            JobState.FAILED,
            "failed or cancelled: 1 job of sweep 5, see `farm jobs --sweep 5 --state failed`\n",
        ),
        (
            JobState.CANCELLED,
            "failed or cancelled: 1 job of sweep 5, see `farm jobs --sweep 5 --state cancelled`\n",
        ),
        (JobState.WAITING, "not ended: 1 of 4 jobs of sweep 5; --wait waits for them\n"),
    ],
)
def test_a_sweep_that_is_not_whole_fails_the_check(
    engine: sa.Engine, farm: FarmCommand, state: JobState, line: str
) -> None:
    with writing(engine) as session:
        _measured(session, "broken", 0.100, 0.101, 0.099, left_in=state)
    farm.text("baseline", "set", "before")
    found = farm.run("check", "broken")
    assert found.exit_code == 1
    assert f"no cell is slower than in sweep 1\n{line}" in found.stdout
    assert f"within noise  1 {state.value}\n" in found.stdout
    done = farm.run("check", "broken", "--json")
    assert (done.exit_code, json.loads(done.stdout)["is_passed"]) == (1, False)
    assert json.loads(done.stdout)["is_slower"] is False
    assert json.loads(done.stdout)["cells"][0]["jobs_by_state"][state.value] == 1


def test_a_check_waits_for_the_sweep_if_asked(engine: sa.Engine, farm: FarmCommand) -> None:
    with writing(engine) as session:
        _measured(session, "coming", 0.100, 0.101, 0.099, left_in=JobState.WAITING)
    farm.text("baseline", "set", "before")
    assert farm.run("check", "alike", "--wait").exit_code == 0
    left = farm.run("check", "coming", "--wait", "--patience", "0")
    assert left.exit_code == 1
    assert "1 job waits for agents that are not there" in left.stderr


def test_cells_that_cannot_be_judged_are_counted(engine: sa.Engine, farm: FarmCommand) -> None:
    with writing(engine) as session:
        for name in ("two", "two again"):
            _measured(session, name, 0.100, 0.101, 0.099, batches=(32, 64))
    farm.text("baseline", "set", "two")
    assert farm.text("check", "two again").endswith("1 of 2 cells could not be judged\n")


def test_a_cell_that_the_baseline_alone_has_fails_the_check(
    engine: sa.Engine, farm: FarmCommand
) -> None:
    with writing(engine) as session:
        _measured(session, "both cells", 0.100, 0.101, 0.099, batches=(32, 64))
    farm.text("baseline", "set", "both cells")
    found = farm.run("check", "alike")
    assert found.exit_code == 1
    assert "missing: 1 cell of sweep 5 in sweep 3; see --allow-missing\n" in found.stdout
    answer = json.loads(farm.run("check", "alike", "--json").stdout)
    assert (answer["is_passed"], answer["is_slower"], answer["missing_cell_count"]) == (
        False,
        False,
        1,
    )
    lacking = answer["cells"][1]
    assert (lacking["verdict"], lacking["values"]["global_batch_size"]) == ("missing", 64)
    assert "missing: 1 cell" in farm.text("check", "alike", "--allow-missing")
    farm.text("baseline", "set", "alike")
    assert "1 cell is not in sweep 3" in farm.text("check", "both cells")  # a new one passes


def test_a_name_that_is_no_text_is_refused_by_one_line(farm: FarmCommand) -> None:
    for command in (("check", "\udcff"), ("status", "\udcff"), ("agent", "remove", "a\udcff")):
        assert "expected a text in UTF-8, got" in farm.refusal(*command, status=2)


def test_the_json_has_the_interval_and_null_where_nothing_is_known(farm: FarmCommand) -> None:
    farm.text("baseline", "set", "before")
    found = farm.json("check", "alike")
    assert (found["sweep_id"], found["baseline_sweep_id"], found["is_slower"]) == (3, 1, False)
    [cell] = found["cells"]
    assert cell["ratio_low"] < cell["ratio"] < cell["ratio_high"]
    assert cell["verdict"] == "within noise"
    assert cell["values"]["global_batch_size"] == 32


def test_a_baseline_stands_for_one_sweep_until_it_is_set_again(farm: FarmCommand) -> None:
    assert "there is none" in farm.text("baseline", "list")
    farm.text("baseline", "set", "before", "--name", "main")
    farm.text("baseline", "set", "slower", "--name", "main")
    [one] = farm.json("baseline", "list")
    assert (one["name"], one["sweep_id"]) == ("main", 2)
    assert farm.run("check", "slower", "--baseline", "main").exit_code == 0
    farm.text("baseline", "remove", "main")
    gone = farm.refusal("check", "few", "--baseline", "main", status=1)
    assert "baseline 'main' does not exist" in gone
    assert "sweep 'none'" in farm.refusal("baseline", "set", "none", status=1)
    refused = farm.run("baseline", "set", "before", "--name", "")
    assert refused.exit_code == 2
