"""`farm plan` against a real store: from measurements to a sweep file that `farm submit` takes."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.store.engine import writing
from tests.commands.farm_command import FarmCommand
from tests.factories import add_measurement
from tests.facts import lacking
from web.api.schema.answers import Plan

GRID = ("--strategy", "mwms_ring", "--world-sizes", "1,2,4", "--global-batch-sizes", "64,256")


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


@pytest.fixture
def measured(engine: sa.Engine) -> None:
    """Two kinds of hardware; on the first a gang, one machine, and a failure."""
    with writing(engine) as session:
        for i, (world_size, batch) in enumerate([(1, 64), (2, 64), (4, 256), (2, 256)]):
            add_measurement(
                session,
                f"job {i}",
                model="small_cnn",
                dataset="digits",
                strategy="single" if world_size == 1 else "mwms_ring",
                world_size=world_size,
                global_batch_size=batch,
                one_way_delay_s=0.02 * (world_size > 1),
                step_time_s=0.01 * world_size if i < 3 else None,
                status="ok" if i < 3 else "diverged",
                fingerprint="f" * 64,
            )
        add_measurement(session, "job 9", model="mlp", dataset="digits", fingerprint="e" * 64)


@pytest.mark.usefixtures("measured")
def test_a_plan_is_a_sweep_that_submit_takes(farm: FarmCommand, tmp_path: Path) -> None:
    file = tmp_path / "next.toml"
    options = ("--model", "small_cnn", "--one-way-delays-ms", "0,20", "--next", "3")
    output = farm.text("plan", *options, "--out", str(file))
    assert output == f"3 measurements in {file}: farm submit {file}\n"
    keys = ("strategy", "world_size", "global_batch_size")
    cells = {
        (*(case[key] for key in keys), case.get("one_way_delay_ms", 0))
        for case in tomllib.loads(file.read_text())["case"]
    }
    submitted = farm.json("submit", "--dry-run", str(file))
    assert submitted["job_count"] == 3
    assert {
        (
            *(job[key] for key in keys),
            round(1000 * (job["network"] or {"one_way_delay_s": 0})["one_way_delay_s"]),
        )
        for job in submitted["jobs"]
    } == cells
    known = {("single", 1, 64, 0), ("mwms_ring", 2, 64, 20), ("mwms_ring", 4, 256, 20)}
    assert not cells & {*known, ("mwms_ring", 2, 256, 20)}


@pytest.mark.usefixtures("measured")
def test_the_json_has_the_regret_the_cost_and_the_file(farm: FarmCommand) -> None:
    # With fewer questions one measurement may answer all of them, which differs between processors.
    delays = ("--one-way-delays-ms", "0,20")
    answer = farm.json("plan", "--model", "small_cnn", *delays, "--next", "2")
    assert [set(p) for p in answer["proposals"]] == 2 * [
        {"configuration", "cost", "reason", "regret_before_ratio", "regret_after_ratio"}
    ]
    assert answer["regret_before_ratio"] > answer["regret_after_ratio"] >= 0
    assert set(answer) == set(Plan.__annotations__)  # as the API
    assert answer["cost_unit"] == "machine hours"
    assert len(tomllib.loads(answer["sweep"])["case"]) == 2


@pytest.mark.usefixtures("measured")
def test_a_kind_of_hardware_is_named_by_its_first_characters(farm: FarmCommand) -> None:
    result = farm.run("plan", "--next", "1")
    named = re.findall(r"(f{12}|e{12})\b", result.stderr)
    assert named == [12 * "f", 12 * "e"]  # the one that was planned for, and the other
    refused = farm.refusal("plan", "--fingerprint", "abc", status=2)
    assert "--fingerprint: expected the beginning of one of ffffffffffff, eeeeeeeeeeee" in refused


def test_an_empty_farm_is_planned_for_where_the_grid_is_named(farm: FarmCommand) -> None:
    workload = ("--model", "small_cnn", "--dataset", "digits")
    assert farm.json("plan", *workload, *GRID)["proposals"]
    refused = farm.refusal("plan", *workload, status=2)
    assert refused.startswith("farm: strategy: expected a value, since nothing is measured yet")


def test_an_imported_study_says_which_names_to_map(farm: FarmCommand) -> None:
    farm.text("import", "anwar2021")
    text = farm.text("plan", "--origin", "anwar2021", "--global-batch-sizes", "3000", "--next", "2")
    [to_map] = [line for line in text.splitlines() if line.startswith("# map")]
    assert lacking(to_map, "strategy", '"mwms"') == []
    assert len(tomllib.loads(text)["case"]) == 2
    # Each cell of its own grid was measured once, so close rivals may be measured again.
    again = farm.json("plan", "--origin", "anwar2021")["proposals"]
    assert {proposal["reason"].split(",")[0] for proposal in again} == {"again"}
    reached = farm.run("plan", "--origin", "anwar2021", "--until-regret", "3", "--json")
    assert (reached.exit_code, json.loads(reached.stdout)["proposals"]) == (0, [])


def test_what_does_not_fit_is_refused_by_name(farm: FarmCommand) -> None:
    assert "origin 'nowhere'" in farm.refusal("plan", "--origin", "nowhere", status=1)
    expected = "--world-sizes: expected whole numbers from 1 to 4096, such as 1,2,4, got"
    for sizes in ("two", "0", "1,4097"):
        assert f"{expected} '{sizes}'" in farm.refusal("plan", "--world-sizes", sizes, status=2)
    refused = farm.refusal("plan", "--global-batch-sizes", 20 * "9", status=2)
    assert "--global-batch-sizes: expected whole numbers from 1 to 100000000" in refused
    refused = farm.refusal("plan", "--one-way-delays-ms", "0,-1", status=2)
    assert "--one-way-delays-ms: expected a number of milliseconds from 0 to 10000" in refused
    assert "--until-regret" in farm.refusal("plan", "--until-regret", "nan", status=2)
    assert "--seed" in farm.refusal("plan", "--seed", "-5", status=2)
    assert "alpha: expected" in farm.refusal("plan", "--alpha", "0", status=2)
    assert "alpha: expected" in farm.refusal("plan", "--alpha", "-1", status=2)
    for command in (("plan",), ("recommend", "--global-batch-size", "64")):
        for option in ("--alpha", "--beta"):
            refused = farm.refusal(*command, option, "1e308", status=2)
            assert f"{option}: expected a number from 0 to 1e+12, got 1e+308" in refused
