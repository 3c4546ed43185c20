"""`farm export --to wandb` without a network, read back from the file that would be uploaded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.trackers.sending import send_sweep
from farm.trackers.wandb import WandbTracker
from tests.commands.farm_command import FarmCommand
from tests.services.wandb_run import items, records
from tests.stored.tracked_sweep import GO, NAME, add_tracked_sweep

pytest.importorskip("wandb", reason="needs the extra wandb")


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    for name in ("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def send(farm: FarmCommand, folder: Path) -> str:
    done = farm.run("export", NAME, "--to", "wandb", "--out", str(folder))
    assert done.exit_code == 0, done.output
    return done.stderr.splitlines()[-1]


def runs_of(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("*run-*"), key=lambda path: path.name.rpartition("-")[2])


def rows_with(history: list[dict[str, Any]], axis: str, name: str) -> list[tuple[float, ...]]:
    """Return (place, seconds after go, value) of each row that has the name."""
    return [
        (row[axis], row["_timestamp"] - GO.timestamp(), row[name]) for row in history if name in row
    ]


def test_a_folder_for_wandb_has_a_sweep(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    gang_id, _ = add_tracked_sweep(engine)
    assert send(farm, tmp_path) == "2 jobs sent to wandb"

    of_gang, _ = runs_of(tmp_path)
    read = list(records(of_gang))
    [run] = [record.run for record in read if record.HasField("run")]
    assert (run.display_name, run.run_group) == (f"job {gang_id}", NAME)
    config = items(run.config.update)
    assert (config["strategy"], config["one_way_delay_ms"]) == ("mwms_ring", 20)
    assert config["benchfarm.flags"] == "steal"

    history = [items(record.history.item) for record in read if record.HasField("history")]
    assert rows_with(history, "step", "step/time_s") == [
        (1, 1.5, 0.125),
        (2, 1.625, 0.25),
        (3, 1.875, 0.5),
    ]
    for node, percent in (("a1", 25.0), ("a2", 50.0)):
        cpu = rows_with(history, "second", f"system/{node}/cpu_utilization_percentage")
        assert cpu == [(tick, tick, percent) for tick in (1, 2, 4)]
    found: dict[str, Any] = {}
    for record in read:
        found |= items(record.summary.update)
    assert found["step_time_s"] == 0.25


def test_a_second_export_adds_nothing(engine: sa.Engine, farm: FarmCommand, tmp_path: Path) -> None:
    add_tracked_sweep(engine)
    send(farm, tmp_path)
    before = runs_of(tmp_path)
    assert send(farm, tmp_path) == "0 jobs sent to wandb, 2 jobs there already"
    assert runs_of(tmp_path) == before


@pytest.mark.parametrize("mode", ["disabled", "nonsense"])
def test_a_mode_in_which_nothing_would_be_written_is_refused(
    engine: sa.Engine,
    farm: FarmCommand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    add_tracked_sweep(engine)
    monkeypatch.setenv("WANDB_MODE", mode)
    done = farm.run("export", NAME, "--to", "wandb", "--out", str(tmp_path / "runs"))
    assert done.exit_code == 2
    assert done.stderr == f"farm: WANDB_MODE: expected offline or online, got '{mode}'\n"


def test_two_exports_at_once_leave_each_run_once(engine: sa.Engine, tmp_path: Path) -> None:
    add_tracked_sweep(engine)

    def export(_: int) -> int:
        tracker = WandbTracker(str(tmp_path))
        return send_sweep(engine, tracker, NAME, progress=lambda *_: None).sent_count

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(export, range(2)))
    assert len(runs_of(tmp_path)) == 2
    for run in runs_of(tmp_path):
        read = list(records(run))
        assert any(record.HasField("exit") for record in read)
    assert not list(tmp_path.glob(".*-attempt-*"))


def test_a_run_that_was_written_in_part_is_written_again(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    send(farm, tmp_path)
    first, second = runs_of(tmp_path)
    cut = tmp_path / f".{first.name.split('-', 3)[3]}" / "wandb"
    cut.mkdir(parents=True)
    first.rename(cut / first.name)
    assert send(farm, tmp_path) == "1 job sent to wandb, 1 job there already"
    assert runs_of(tmp_path)[1] == second
    assert len(runs_of(tmp_path)) == 2
    assert not cut.exists()
