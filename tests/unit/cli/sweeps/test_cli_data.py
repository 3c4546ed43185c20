"""`farm data`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from click.testing import CliRunner

from farm.cli.main import main
from farm.submission import plan
from tests.own_data_files import name_of, write_npz


def test_what_is_printed_is_a_line_of_a_sweep_file(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz")
    done = CliRunner().invoke(main, ["data", str(path)])
    assert done.exit_code == 0
    case = tomllib.loads(done.stdout)
    assert case == {"dataset": name_of(path)}
    case |= {"model": "mlp", "strategy": "single", "world_size": 1, "global_batch_size": 60}
    assert plan({"name": "n", "case": [case]}).expansion.jobs
    assert done.stderr == "put mine.npz into FARM_DATA_DIR of every agent\n"


def test_programs_get_its_facts(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mine.npz")
    answer = json.loads(CliRunner().invoke(main, ["data", "--json", str(path)]).stdout)
    assert answer["dataset"] == name_of(path)
    assert answer["sha256"].startswith(answer["dataset"].partition("@")[2][:12])
    assert (answer["kind"], answer["example_shape"], answer["class_count"]) == (
        "images",
        [8, 8, 3],
        4,
    )
    assert (answer["train_examples_count"], answer["test_examples_count"]) == (60, 12)


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["data", str(tmp_path / "mine.npz")])
    assert (done.exit_code, done.stderr) == (
        1,
        f"farm: {tmp_path}/mine.npz: there is no such file\n",
    )
