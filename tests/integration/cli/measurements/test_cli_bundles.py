"""Sweep bundles: `farm export --bundle`, and `farm import bundle` on another farm."""

from __future__ import annotations

import csv
import json
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import LogPart, Sample, StepTimes
from farm.messages.trainer_lines import Epoch, StepKind
from farm.store.engine import make_engine, writing
from farm.store.reports.logs import insert_log_parts
from farm.store.tables import AttemptRow, JobRow, SweepRow
from farm.sweep_bundle.manifest import files_in
from farm.values.codec import to_json
from tests.commands.farm_command import FarmCommand
from tests.factories import NOW, add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.integration.conftest import new_database
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps

pytest.importorskip("matplotlib", reason="needs the extra plot")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra server")

HOSTILE = "=<script>alert(1)</script>"
SWEEP = {"name": f"{HOSTILE}\u202e", "case": [{"model": "mlp", "world_size": [1, 2]}]}


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def measured(engine: sa.Engine) -> list[int]:
    """The jobs of sweep 1: one machine and two, and one that failed at last."""
    specs = [job_spec(), job_spec(world_size=2), job_spec(world_size=3)]
    with writing(engine) as session:
        add_agent(session, "a1")
        ids = add_sweep(session, *specs, name=HOSTILE)
        session.get_one(SweepRow, 1).spec = SWEEP
        for job_id, spec in zip(ids, specs, strict=True):
            is_ok = spec.world_size < 3
            state = AttemptState.SUCCEEDED if is_ok else AttemptState.FAILED
            token = add_attempt(session, job_id, ["a1"], state=state)
            samples = [
                Sample(tick=tick, cpu_ratio=0.25, extra={"celsius": 40.5}) for tick in range(1, 4)
            ]
            insert_samples(session, day=NOW.date(), token=token, rank=0, samples=samples)
            for first in (0, 250):
                steps = StepTimes(
                    kind=StepKind.TIMED, first_step=first, begun_s=first / 10, times_s=(0.1,) * 250
                )
                insert_steps(session, token=token, rank=0, steps=steps)
            epoch = Epoch(
                epoch=0,
                train_s=50.0,
                step_count=500,
                train_loss=0.5,
                val_loss=None,
                val_accuracy_ratio=0.9,
            )
            insert_epoch(session, token=token, rank=0, epoch=epoch)
            for n in range(300):
                part = LogPart(first_character=10 * n, text=f"line {n:4}\n")
                insert_log_parts(session, token=token, rank=0, parts=[part])
            add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                attempt_id=token,
                status="ok" if is_ok else "out_of_memory",
                strategy=spec.strategy,
                world_size=spec.world_size,
                instance_type=HOSTILE,
                step_time_s=0.1 / spec.world_size if is_ok else None,
                throughput_examples_per_s=310.0 * spec.world_size if is_ok else None,
                cpu_ratio=0.5 if is_ok else None,
                flags=[{"kind": "steal", "message": HOSTILE, "value": 0.3}] if is_ok else [],
            )
        session.get_one(JobRow, ids[2]).reason = HOSTILE
        session.get_one(JobRow, ids[2]).failure_kind = "out_of_memory"
        attempt = session.scalars(sa.select(AttemptRow).where(AttemptRow.job_id == ids[2])).one()
        attempt.reason = HOSTILE
    return ids


def rows_of(file: Path) -> list[dict[str, Any]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_bundle_has_all_that_is_known_of_a_sweep(
    farm: FarmCommand, measured: list[int], tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    farm.text("export", "1", "--bundle", "--out", str(folder))
    assert tomllib.loads((folder / "sweep.toml").read_text()) == SWEEP
    rows = rows_of(folder / "measurements.csv")
    assert [row["status"] for row in rows] == ["ok", "ok", "out_of_memory"]
    assert parquet.read_table(folder / "measurements.parquet").num_rows == 3
    assert (
        parquet.read_table(folder / "samples.parquet").column("tick").to_pylist() == [1, 2, 3] * 3
    )
    jobs = rows_of(folder / "jobs.csv")
    assert [job["state"] for job in jobs] == ["succeeded", "succeeded", JobState.FAILED.value]
    assert jobs[2]["reason"] == f"'{HOSTILE}"  # no formula of a spreadsheet
    assert json.loads(jobs[1]["specification"])["world_size"] == 2
    attempts = rows_of(folder / "attempts.csv")
    assert [attempt["agents"] for attempt in attempts] == ['["a1"]'] * 3
    assert [int(attempt["job_id"]) for attempt in attempts] == measured
    epochs = rows_of(folder / "epochs.csv")
    assert [(row["job_id"], row["val_accuracy_ratio"]) for row in epochs] == [
        (str(job_id), "0.9") for job_id in measured
    ]
    steps = parquet.read_table(folder / "steps.parquet").to_pylist()
    assert [row["step"] for row in steps] == [*range(500)] * 3
    assert {str(row["process"]) for row in steps} == {"0"}  # a whole number
    assert max(abs(row["begun_s"] - row["step"] / 10) for row in steps) < 1e-6
    logs = parquet.read_table(folder / "logs.parquet").to_pylist()
    assert len(logs) == 900
    first = "".join(row["text"] for row in logs if row["job_id"] == measured[0])
    assert first == "".join(f"line {n:4}\n" for n in range(300))
    [agent] = json.loads((folder / "environment.json").read_text())["agents"]
    assert (agent["agent_id"], agent["hardware"]["kernel"]) == ("a1", "6.1.0")
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".svg", ".png"}
    report = (folder / "report.html").read_text()
    assert "<script" not in report
    assert "Recommended for mlp on digits, batch 32: " in report
    assert report.count("data:image/svg+xml") == len(list((folder / "figures").glob("*.svg"))) > 0
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert listed.keys() == contents(folder).keys() - {"manifest.json"}


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
@pytest.mark.usefixtures("measured")
def test_the_same_sweep_gives_the_same_bytes(farm: FarmCommand, tmp_path: Path) -> None:
    for name in ("one", "two"):
        farm.text("export", "1", "--bundle", "--out", str(tmp_path / name))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_sweep_that_has_not_begun_is_written_too(
    farm: FarmCommand, engine: sa.Engine, tmp_path: Path
) -> None:
    with writing(engine) as session:
        add_sweep(session, name="waiting")
    farm.text("export", "waiting", "--bundle", "--out", str(tmp_path / "out"))
    report = (tmp_path / "out" / "report.html").read_text()
    assert "nothing of this sweep was measured" in report
    assert rows_of(tmp_path / "out" / "measurements.csv") == []


@pytest.mark.usefixtures("measured")
def test_a_bundle_is_refused_where_it_cannot_be_written(farm: FarmCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, message in (("file", "is there already"), ("file/bundle", "Not a directory")):
        arguments = ("export", "1", "--bundle", "--out", str(tmp_path / name))
        assert message in farm.refusal(*arguments, status=1)
    assert "--out FOLDER" in farm.run("export", "1", "--bundle").stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("database_kind", ["sqlite", "postgresql"])
@pytest.mark.usefixtures("measured")
def test_a_sweep_is_the_same_on_another_farm(
    farm: FarmCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    folder, exported = tmp_path / "bundle", tmp_path / "again.csv"
    farm.text("export", "1", "--bundle", "--out", str(folder))
    own = os.environ["FARM_DATABASE_URL"]
    with other_farm(request, monkeypatch, tmp_path) as other:
        url = os.environ["FARM_DATABASE_URL"]
        answer = other.json("import", "bundle", str(folder), "--dry-run")
        assert (answer["origin"], answer["added_count"]) == ("farm-unknown-sweep-1", 3)
        assert other.json("origins") == []
        for added, present in ((3, 0), (0, 3)):
            answer = other.json("import", "bundle", str(folder))
            assert (answer["added_count"], answer["present_count"]) == (added, present)
        [origin] = other.json("origins")
        assert origin["source"] == f"sweep 1, {HOSTILE!r}, of farm unknown"
        other.text("export", "--origin", origin["origin"], "--out", str(exported))
        assert exported.read_text() == (folder / "measurements.csv").read_text()
        other.text("export", "--origin", origin["origin"], "--samples", "--out", str(exported))
        monkeypatch.setenv("FARM_DATABASE_URL", own)
        farm.text("export", "1", "--samples", "--out", str(tmp_path / "own.csv"))
        monkeypatch.setenv("FARM_DATABASE_URL", url)
        assert exported.read_text() == (tmp_path / "own.csv").read_text()
        assert exported.read_text().count("\n") == 10
        command = ("recommend", "--origin", origin["origin"], "--global-batch-size", "32")
        best = other.json(*command)["recommended"]
        assert (best["world_size"], best["step_time_s"], best["basis"]) == (2, 0.05, "measured")
        assert best["disturbed_by"] == ["steal"]
        other.text("origins", "--remove", origin["origin"])
        other.text("export", "--origin", origin["origin"], "--samples", "--out", str(exported))
        assert exported.read_text().count("\n") == 1


@contextmanager
def other_farm(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[FarmCommand]:
    kind = request.getfixturevalue("database_kind")
    with new_database(request, kind, is_migrated=True) as url:
        engine = make_engine(url)
        yield FarmCommand(engine, tmp_path / "other", monkeypatch)
        engine.dispose()


@pytest.mark.usefixtures("measured")
def test_a_bundle_that_was_changed_adds_nothing(farm: FarmCommand, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    farm.text("export", "1", "--bundle", "--out", str(folder))
    with (folder / "samples.parquet").open("ab") as file:
        file.write(b"x")
    refused = farm.refusal("import", "bundle", str(folder), status=2)
    assert refused.startswith("farm: samples.parquet: expected the file of ")
    assert [origin["origin"] for origin in farm.json("origins")] == ["farm"]
    refused = farm.refusal("import", "bundle", str(tmp_path), status=2)
    assert refused.startswith("farm: manifest.json: expected a file of a benchfarm sweep bundle")


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("value", ["nan", "1e999", "-1", "=1+1", "9" * 5000])
def test_a_measurement_that_cannot_be_adds_nothing(
    farm: FarmCommand, tmp_path: Path, value: str
) -> None:
    """Whoever writes the measurements can write the manifest, too."""
    folder = tmp_path / "bundle"
    farm.text("export", "1", "--bundle", "--out", str(folder))
    rows = rows_of(folder / "measurements.csv")
    with (folder / "measurements.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows([*rows[:-1], {**rows[-1], "status": "ok", "step_time_s": value}])
    manifest = read_whole(folder / "manifest.json")
    files = {name: to_json(file) for name, file in files_in(folder).items()}
    files.pop("manifest.json")
    (folder / "manifest.json").write_text(json.dumps({**manifest, "files": files}))
    refused = farm.refusal("import", "bundle", str(folder), status=2)
    assert refused.startswith("farm: row 4, column step_time_s")
    assert [origin["origin"] for origin in farm.json("origins")] == ["farm"]


def read_whole(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_an_origin_is_exported_or_said_to_be_none(farm: FarmCommand, tmp_path: Path) -> None:
    farm.text("import", "graur2019")
    rows = list(csv.DictReader(farm.text("export", "--origin", "graur2019").splitlines()))
    assert len(rows) == farm.json("origins")[0]["measurement_count"]
    out = tmp_path / "rows.csv"
    refused = farm.refusal("export", "--origin", "nowhere", "--out", str(out), status=1)
    assert "origin 'nowhere': nothing of it is in this store" in refused
    assert not out.exists()
    for wrong in ((), ("1", "--origin", "graur2019"), ("--origin", "graur2019", "--bundle")):
        assert farm.run("export", *wrong).exit_code == 2
