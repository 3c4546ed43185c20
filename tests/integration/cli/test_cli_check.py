"""`farm check` and `farm baseline`: what they print, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.gang.lifecycle import JobState
from farm.store.engine import writing
from farm.store.tables import JobRow
from tests.factories import add_measurement, add_sweep, job_spec
from tests.farm_command import FarmCommand


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def _measured(session: Session, name: str, *times_s: float) -> None:
    """Store a sweep of one cell, each repetition with its step time."""
    specs = [job_spec(repetition=n) for n in range(len(times_s))]
    for spec, job_id, time_s in zip(
        specs, add_sweep(session, *specs, name=name), times_s, strict=True
    ):
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
    assert "nothing can be said" in found.stdout


def test_the_json_has_the_interval_and_null_where_nothing_is_known(farm: FarmCommand) -> None:
    farm.text("baseline", "set", "before")
    found = farm.json("check", "alike")
    assert (found["sweep_id"], found["baseline_sweep_id"], found["is_slower"]) == (3, 1, False)
    [cell] = found["cells"]
    assert cell["low"] < cell["ratio"] < cell["high"]
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
    assert "baseline 'main': there is none" in gone
    assert "sweep 'none'" in farm.refusal("baseline", "set", "none", status=1)
    refused = farm.run("baseline", "set", "before", "--name", "")
    assert refused.exit_code == 2
