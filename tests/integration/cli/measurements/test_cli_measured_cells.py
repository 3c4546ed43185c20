"""`farm status` and `farm recommend` have the same numbers of a measured cell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState
from farm.store.engine import writing
from farm.store.tables import JobRow
from tests.commands.farm_command import FarmCommand
from tests.factories import add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.web.web_client import client_of
from tests.web.web_reading import page_of


def flag(value: float) -> dict[str, Any]:
    return {"kind": "foreign_load", "message": "other programs", "value": value}


# By world size: the repetitions of a cell. The disturbed ones count in the second cell alone.
REPETITIONS: dict[int, list[dict[str, Any]]] = {
    1: [
        {"step_time_s": 0.10, "time_per_epoch_s": 6.0, "step_time_spread_s": 0.01},
        {"step_time_s": 0.11, "time_per_epoch_s": 8.0, "step_time_spread_s": 0.02},
        {"step_time_s": 0.12, "step_time_spread_s": 0.04},  # of a job by steps
        {"step_time_s": 0.50, "time_per_epoch_s": 30.0, "flags": [flag(0.9)]},
        {"step_time_s": 0.02, "time_per_epoch_s": 2.0, "flags": [flag(0.9)]},
        {"step_time_s": 0.03, "time_per_epoch_s": 3.0, "flags": [flag(0.9)]},
    ],
    2: [
        {"step_time_s": 0.07, "step_time_spread_s": 0.001, "flags": [flag(0.31)]},
        {"step_time_s": 0.20, "step_time_spread_s": 0.03, "flags": [flag(0.9)]},
        {"step_time_s": 0.30, "step_time_spread_s": 0.05, "flags": [flag(0.8)]},
    ],
}


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path, monkeypatch)


@pytest.fixture
def sweep(engine: sa.Engine) -> str:
    specs = [
        job_spec(world_size=size, repetition=n)
        for size, of_cell in REPETITIONS.items()
        for n in range(len(of_cell))
    ]
    measured = [columns for of_cell in REPETITIONS.values() for columns in of_cell]
    with writing(engine) as session:
        agents = [add_agent(session, name) for name in ("a1", "a2")]
        job_ids = add_sweep(session, *specs)
        for job_id, spec, columns in zip(job_ids, specs, measured, strict=True):
            token = add_attempt(
                session, job_id, agents[: spec.world_size], state=AttemptState.SUCCEEDED
            )
            add_measurement(
                session,
                f"job {job_id}",
                job_id=job_id,
                attempt_id=token,
                strategy=spec.strategy,
                world_size=spec.world_size,
                steps_per_epoch=45,
                details={"quantities": {"energy_per_step_j": 5.0 + job_id}},
                **{"flags": [], **columns},
            )
        return str(session.get_one(JobRow, job_ids[0]).sweep_id)


def test_both_have_the_same_numbers_of_each_cell(
    farm: FarmCommand, sweep: str, engine: sa.Engine
) -> None:
    cells = farm.json("status", sweep)["cells"]
    answer = farm.json("recommend", "--global-batch-size", "32")
    served = client_of(engine).get("/api/v1/recommendation?global_batch_size=32").get_json()
    for options in (answer["options"], served["options"]):
        by_size = {option["world_size"]: option for option in options}
        for cell in cells:
            option, quantities = by_size[cell["values"]["world_size"]], cell["quantities"]
            assert option["step_time_s"] == cell["step_time_s"] == quantities["step_time_s"]
            assert option["step_time_spread_s"] == quantities["step_time_spread_s"]
            assert option["repetition_count"] == cell["repetition_count"]
            assert len(option["set_aside_ids"]) == cell["set_aside_count"]
            assert option["power_w"] == quantities["energy_per_step_j"] / quantities["step_time_s"]
    one, two = ({c["values"]["world_size"]: c for c in cells}[size] for size in (1, 2))
    assert (one["step_time_s"], one["repetition_count"], one["set_aside_count"]) == (0.11, 3, 3)
    assert (two["step_time_s"], two["repetition_count"], two["set_aside_count"]) == (0.07, 3, 0)
    assert by_size[1]["time_per_epoch_s"] == one["quantities"]["time_per_epoch_s"] == 7.0


def table_of(printed: str) -> list[dict[str, str]]:
    """Return the rows of the table in what a command printed, by the names of the columns."""
    lines = iter(printed.splitlines())
    header = next(line for line in lines if "step time" in line)
    titles = re.split(r"  +", header.strip())
    texts = (re.split(r"  +", line.strip()) for line in lines)
    # The last column, remarks, may be empty.
    return [
        dict(zip(titles, [*row, ""], strict=False)) for row in texts if len(row) >= len(titles) - 1
    ]


def test_both_print_the_same_texts_under_the_same_names(farm: FarmCommand, sweep: str) -> None:
    of_cells = farm.text("status", sweep)
    of_options = farm.text("recommend", "--global-batch-size", "32")
    cells, options = (
        {row["world size"]: row for row in table_of(printed)} for printed in (of_cells, of_options)
    )
    assert cells.keys() == options.keys() == {"1", "2"}
    # No epoch of two was measured; an option's is made of its steps.
    assert cells["2"].pop("time per epoch") == "-"
    for size, cell in cells.items():
        shared = cell.keys() & options[size].keys()
        assert {"batch", "strategy", "world size", "repetitions", "step time"} <= shared
        assert {name: cell[name] for name in shared} == {
            name: options[size][name] for name in shared
        }
    assert options["1"]["time per epoch"] == "7.00 s"
    assert "±" in options["1"]["step time"]
    assert options["2"]["repetitions"] == "3!"
    assert "90 % prediction interval" in options["1"]
    notes = [line for line in of_cells.splitlines() if line.startswith(("±: ", "!: "))]
    assert len(notes) == 2
    assert set(notes) <= set(of_options.splitlines())


def test_the_page_of_an_answer_has_these_texts_too(
    farm: FarmCommand, sweep: str, engine: sa.Engine
) -> None:
    printed = farm.text("recommend", "--global-batch-size", "32")
    page = page_of(client_of(engine), "/advice?origin=farm&global_batch_size=32")
    for option in table_of(printed):
        assert f">{option['repetitions']}</td>" in page
        assert f">{option['step time']}</td>" in page
    [note] = [line for line in printed.splitlines() if line.startswith("!: ")]
    assert note in page


def test_an_option_of_two_sweeps_has_no_figures_of_one_cell(
    farm: FarmCommand, sweep: str, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        spec = job_spec(world_size=2)
        agents = [add_agent(session, name) for name in ("a3", "a4")]
        [job_id] = add_sweep(session, spec)
        token = add_attempt(session, job_id, agents, state=AttemptState.SUCCEEDED)
        add_measurement(
            session,
            "another sweep",
            job_id=job_id,
            attempt_id=token,
            strategy=spec.strategy,
            world_size=2,
            step_time_s=0.3,
            flags=[flag(0.9)],
        )
    rows = table_of(farm.text("recommend", "--global-batch-size", "32"))
    [two] = [row for row in rows if row["world size"] == "2"]
    assert two["repetitions"] == "4"
    assert "±" not in two["step time"]
