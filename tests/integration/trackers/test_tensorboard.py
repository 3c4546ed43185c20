"""`farm export --to tensorboard`, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.commands.farm_command import FarmCommand
from tests.stored.tracked_sweep import GO, NAME, add_tracked_sweep

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def scalars(events: Any, tag: str) -> list[tuple[int, float, float]]:
    return [(one.step, one.wall_time - GO.timestamp(), one.value) for one in events.Scalars(tag)]


def test_tensorboard_reads_a_sweep(engine: sa.Engine, farm: FarmCommand, tmp_path: Path) -> None:
    gang_id, alone_id = add_tracked_sweep(engine)
    done = farm.run("export", NAME, "--to", "tensorboard", "--out", str(tmp_path / "events"))
    assert (done.exit_code, done.stderr) == (0, "2 jobs sent to tensorboard\n")

    [sweep] = (tmp_path / "events").iterdir()
    assert {one.name for one in sweep.iterdir()} == {f"job-{gang_id}", f"job-{alone_id}"}
    gang = read(sweep / f"job-{gang_id}")
    assert scalars(gang, "step/time_s") == [(1, 1.5, 0.125), (2, 1.625, 0.25), (3, 1.875, 0.5)]
    assert scalars(gang, "summary/step_time_s") == [(0, 60.0, 0.25)]
    for node, percent in (("a1", 25.0), ("a2", 50.0)):
        cpu = scalars(gang, f"system/{node}/cpu_utilization_percentage")
        assert cpu == [(tick, float(tick), percent) for tick in (1, 2, 4)]
    from tensorboard.plugins.hparams import metadata

    content = gang.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    parameters = metadata.parse_session_start_info_plugin_data(content).hparams
    assert parameters["strategy"].string_value == "mwms_ring"
    assert parameters["world_size"].number_value == 2


def test_a_second_export_changes_no_file(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    command = ("export", NAME, "--to", "tensorboard", "--out", str(tmp_path / "events"))
    farm.text(*command)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "events").rglob("*")}
    assert farm.run(*command).stderr.endswith("0 jobs sent to tensorboard, 2 jobs there already\n")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "events").rglob("*")} == before


def test_a_job_that_is_not_there_is_sent_again(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    command = ("export", NAME, "--to", "tensorboard", "--out", str(tmp_path / "events"))
    farm.text(*command)
    [first, _] = sorted((tmp_path / "events").glob("*/*/*"))
    first.unlink()
    assert farm.run(*command).stderr.endswith("1 job sent to tensorboard, 1 job there already\n")
    assert first.exists()


def test_a_folder_that_is_a_file_is_refused_in_one_line(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    (tmp_path / "file").write_text("")
    command = ("export", NAME, "--to", "tensorboard", "--out", str(tmp_path / "file"))
    assert "cannot be made: Not a directory" in farm.refusal(*command, status=1)


def test_a_folder_is_asked_for(engine: sa.Engine, farm: FarmCommand) -> None:
    line = farm.refusal("export", NAME, "--to", "tensorboard", status=2)
    assert "--out FOLDER" in line
