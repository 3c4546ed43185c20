"""`farm reproduce` as far as it goes without a lab: refusals, resuming, and the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.start.reproduce import begin
from farm.gang.lifecycle import JobState
from farm.store.engine import reading, writing
from farm.store.tables import JobRow
from farm.studies.publishing import write_runs
from farm.submission import plan, read_sweep_file
from tests.commands.farm_command import FarmCommand
from tests.factories import add_measurement
from tests.stored.study_runs import whole_study

SWEEP = """
name = "a tiny study"

[[case]]
model = "mlp"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = 32
one_way_delay_ms = [0, 20]
"""


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    # So that a lab is refused even where the tests have root.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(SWEEP)
    return file


def finish_jobs(engine: sa.Engine, *, count: int) -> None:
    """Let the first jobs that wait be measured."""
    with writing(engine) as session:
        waiting = sa.select(JobRow).where(JobRow.state == JobState.WAITING).order_by(JobRow.id)
        for job in session.scalars(waiting.limit(count)).all():
            job.state = JobState.SUCCEEDED
            delay_s = (job.spec["network"] or {"one_way_delay_s": 0.0})["one_way_delay_s"]
            add_measurement(
                session,
                f"job {job.id}",
                job_id=job.id,
                strategy="mwms_ring",
                world_size=2,
                one_way_delay_s=delay_s,
                rtt_s=2 * delay_s,
            )


def test_a_lab_needs_root_and_says_so(farm: FarmCommand, sweep: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = farm.refusal("reproduce", "latency", "--sweep", str(sweep), "--out", str(out), status=1)

    assert line == "farm: a lab needs root, to make network namespaces: run it with sudo\n"
    assert not out.exists()


def test_a_complete_study_is_not_measured_again(
    farm: FarmCommand, sweep: Path, tmp_path: Path, engine: sa.Engine
) -> None:
    begin(engine, plan(read_sweep_file(sweep)))
    finish_jobs(engine, count=2)
    out = tmp_path / "out"

    printed = farm.text("reproduce", "latency", "--sweep", str(sweep), "--out", str(out))

    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert files == [
        "images/latency-epoch-time.png",
        "images/latency-epoch-time.svg",
        "images/latency-round-trips.png",
        "images/latency-round-trips.svg",
        "latency-study.md",
        "studies/latency.csv",
        "studies/latency.toml",
    ]
    assert printed.splitlines()[0] == str(out / "latency-study.md")
    assert (out / "studies/latency.toml").read_text() == SWEEP
    # The page alone is the same, and needs no store.
    before = (out / "latency-study.md").read_text()
    (out / "latency-study.md").unlink()
    farm.text("reproduce", "latency", "--page-only", "--out", str(out))
    assert (out / "latency-study.md").read_text() == before


def test_a_script_learns_where_everything_is(
    farm: FarmCommand, sweep: Path, tmp_path: Path, engine: sa.Engine
) -> None:
    begin(engine, plan(read_sweep_file(sweep)))
    finish_jobs(engine, count=2)
    out = tmp_path / "out"

    printed = farm.json("reproduce", "latency", "--sweep", str(sweep), "--out", str(out))

    assert (printed["study"], printed["run_count"]) == ("latency", 2)
    assert printed["page"] == str(out / "latency-study.md")
    written = {printed["page"], *printed["figures"], printed["data"], printed["sweep"]}
    assert written == {str(path) for path in out.rglob("*") if path.is_file()}
    again = farm.json("reproduce", "latency", "--page-only", "--out", str(out))
    assert again == {**printed, "sweep": None}


def test_a_study_needs_no_checkout(
    farm: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    # Its sweep is read, and only then the lab is missed.
    assert "a lab needs root" in farm.refusal("reproduce", "latency", status=1)


def test_a_study_goes_on_where_it_was_left(engine: sa.Engine, sweep: Path) -> None:
    planned = plan(read_sweep_file(sweep))
    sweep_id = begin(engine, planned)
    finish_jobs(engine, count=1)
    with writing(engine) as session:
        session.scalars(
            sa.select(JobRow).where(JobRow.state == JobState.WAITING)
        ).one().state = JobState.CANCELLED

    assert begin(engine, planned) == sweep_id

    with reading(engine) as session:
        states = [job.state for job in session.scalars(sa.select(JobRow).order_by(JobRow.id))]
    assert states == [JobState.SUCCEEDED, JobState.WAITING]


def test_another_sweep_file_is_another_sweep(engine: sa.Engine, sweep: Path) -> None:
    first = begin(engine, plan(read_sweep_file(sweep)))
    sweep.write_text(SWEEP.replace("[0, 20]", "[0, 40]"))

    assert begin(engine, plan(read_sweep_file(sweep))) != first


def test_an_incomplete_study_has_no_page(
    farm: FarmCommand, sweep: Path, tmp_path: Path, engine: sa.Engine
) -> None:
    begin(engine, plan(read_sweep_file(sweep)))
    finish_jobs(engine, count=1)

    farm.refusal("reproduce", "latency", "--sweep", str(sweep), "--out", str(tmp_path), status=1)

    assert not (tmp_path / "latency-study.md").exists()


def test_a_page_is_made_of_the_data_file_alone(farm: FarmCommand, tmp_path: Path) -> None:
    data = tmp_path / "studies" / "latency.csv"
    missing = farm.refusal("reproduce", "latency", "--page-only", "--out", str(tmp_path), status=2)
    assert "measurements: expected a readable file" in missing
    data.parent.mkdir()
    data.write_text(write_runs(whole_study()))

    farm.text("reproduce", "latency", "--page-only", "--out", str(tmp_path))

    assert "2.00 (2.00 to 2.00)" in (tmp_path / "latency-study.md").read_text()


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["latency", "--page-only", "--sweep", "x.toml"], []],
    ids=["unknown", "both", "none"],
)
def test_wrong_usage_is_refused(farm: FarmCommand, arguments: list[str]) -> None:
    farm.refusal("reproduce", *arguments, status=2)
