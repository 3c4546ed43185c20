"""`farm history`: the cells of several days, and one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.store.engine import writing
from tests.commands.farm_command import FarmCommand
from tests.factories import job_spec
from tests.stored.histories import BEFORE, SLOWER, add_day, hardware


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    with writing(engine) as session:
        add_day(session, 0, *BEFORE)
        add_day(session, 1, *SLOWER, framework="torch 2.13.1")
        add_day(session, 1, *BEFORE, spec=job_spec(global_batch_size=64))
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def test_cells_of_several_days_are_listed(farm: FarmCommand) -> None:
    printed = farm.text("history", "day 0").splitlines()
    assert len(printed) == 3
    assert "global_batch_size=32" in printed[1]
    assert printed[2] == "`farm history --job 1` shows one of them"
    [cell] = farm.json("history", "2")
    assert (cell["job_id"], cell["day_count"], cell["measurement_count"]) == (4, 2, 6)
    assert cell["values"]["global_batch_size"] == 32
    assert farm.text("history", "3") == "no cell of it was measured on several days\n"


def test_the_history_of_a_cell_says_what_changed_and_how_sure_that_is(farm: FarmCommand) -> None:
    title, _, first, second, *_ = farm.text("history", "--job", "1").splitlines()
    assert title == "model=mlp dataset=digits strategy=single world_size=1 global_batch_size=32"
    assert first.endswith("first on these machines")
    assert "1.200 (1." in second
    assert second.endswith("slower                   torch 2.13.0 -> 2.13.1")
    found = farm.json("history", "--job", "1", "--last", "1")
    [newest] = found["items"]
    assert (newest["verdict"], newest["changes"]) == ("slower", ["torch 2.13.0 -> 2.13.1"])
    assert newest["ratio_low"] > 1
    assert newest["compared_with_sweep_id"] == 1
    assert newest["machine"] == "A CPU, 4 cores, 8.59 GB"
    assert found["next"] == "2"
    assert farm.text("history", "--job", "1", "--last", "1").startswith("older ones: --before 2\n")
    [oldest] = farm.json("history", "--job", "1", "--before", "2")["items"]
    assert (oldest["sweep_id"], oldest["verdict"]) == (1, None)


def test_machines_are_named_where_there_are_several(engine: sa.Engine, farm: FarmCommand) -> None:
    with writing(engine) as session:
        add_day(session, 2, *BEFORE, ranks=[hardware(cpu_model="Another")], fingerprint="b")
    printed = farm.text("history", "--job", "1")
    assert "Another, 4 cores, 8.59 GB" in printed


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 2),
        (("1", "--job", "1"), 2),
        (("--job", "0"), 2),
        (("--job", "1", "--last", "101"), 2),
        (("--job", "1", "--before", "x"), 2),
        (("--job", str(2**63)), 2),
        (("--job", "99"), 1),
        (("absent",), 1),
        (("\udc80",), 2),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    farm: FarmCommand, arguments: tuple[str, ...], status: int
) -> None:
    farm.refusal("history", *arguments, status=status)
