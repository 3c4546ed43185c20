"""Answers from a published study, over the command line, with the real predictor."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from farm.cli.main import main
from farm.importers import IMPORTERS
from farm.importers.contracts import read_publication
from farm.recommend.calibrated import step_time_model

RESULTS = ["step_time_s", "low_s", "high_s", "low80_s", "high80_s", "basis", "speculative_because"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with the study of Anwar and others; the fit is made once."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FARM_DATABASE_URL", raising=False)
        patch.setenv("FARM_HOME", str(folder))
        patch.setenv("FARM_BROKER_URL", "redis://127.0.0.1:1/0")
        for command in (["db", "upgrade"], ["import", "anwar2021"]):
            assert run(*command).exit_code == 0
        yield folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def recommend(batch: int, delay_ms: float, *more: str) -> Any:
    options = ["--global-batch-size", str(batch), "--one-way-delay-ms", str(delay_ms), *more]
    result = run("recommend", "--origin", "anwar2021", *options, "--json")
    return json.loads(result.stdout)


def printed_epochs() -> dict[tuple[int, int], dict[int, float]]:
    """Time of an epoch by world size, for each batch size and delay in milliseconds."""
    [study] = [p for p in IMPORTERS if p.name == "anwar2021"]
    times: dict[tuple[int, int], dict[int, float]] = {}
    for row in read_publication(study).measurements:
        cell = (row["global_batch_size"], round(row["one_way_delay_s"] * 1000))
        if row["time_per_epoch_s"] is not None:
            times.setdefault(cell, {})[row["world_size"]] = row["time_per_epoch_s"]
    return times


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("delay_ms", "expected"), [(0, 4), (20, 3)])
def test_the_answers_of_the_paper_are_reproduced(delay_ms: int, expected: int) -> None:
    best = recommend(64000, delay_ms, "--world-sizes", "2,3,4")["recommended"]
    assert (best["world_size"], best["basis"]) == (expected, "measured")
    assert best["low_s"] < best["low80_s"] < best["time_per_epoch_s"] < best["high80_s"]
    assert best["cost_usd"] == pytest.approx(
        expected * best["time_per_epoch_s"] * best["price_usd_per_hour"] / 3600
    )


@pytest.mark.usefixtures("home")
def test_one_machine_wins_wherever_it_was_measured_to_be_the_fastest() -> None:
    times = printed_epochs()
    wins = 0
    for (batch, delay_ms), gangs in times.items():
        if batch in (192, 6400) and delay_ms in (0, 40, 100):
            known = {**gangs, 1: times[batch, 0][1]}
            fastest = min(known, key=lambda world_size: known[world_size])
            answer = recommend(batch, delay_ms)
            assert answer["recommended"]["world_size"] == fastest
            wins += fastest == 1
    assert wins


@pytest.mark.usefixtures("home")
def test_what_ran_out_of_memory_is_not_predicted_away() -> None:
    answer = recommend(64000, 40)
    assert 1 not in {option["world_size"] for option in answer["options"]}
    assert any("out_of_memory" in warning for warning in answer["warnings"])
    assert 1 not in {option["world_size"] for option in recommend(128_000, 40)["options"]}


@pytest.mark.usefixtures("home")
def test_what_was_not_measured_is_predicted_with_intervals_and_its_reasons() -> None:
    answer = recommend(1000, 30, "--world-sizes", "2,3,4,5,64")
    by_size = {option["world_size"]: option for option in answer["options"]}
    assert by_size[1]["basis"] == by_size[3]["basis"] == "interpolated"
    assert by_size[5]["basis"] == by_size[64]["basis"] == "extrapolated"
    assert by_size[3]["speculative_because"] is None
    for size in (5, 64):
        assert by_size[size]["speculative_because"].startswith(f"world size {size}: beyond")
    for option in answer["options"]:
        assert option["low_s"] < option["low80_s"] < option["time_per_epoch_s"]
        assert option["time_per_epoch_s"] < option["high80_s"] < option["high_s"]
        assert option["steps_per_epoch"] == 70
        assert option["measurement_ids"]
    assert answer["predictor"]
    assert answer["predictor_measurement_count"] == 113
    assert answer["measurement_count"] == 114


@pytest.mark.usefixtures("home")
def test_budget_deadline_and_machines_are_kept() -> None:
    highest = [option["cost_high_usd"] for option in recommend(64000, 0)["options"]]
    limit = min(highest) * 1.001
    tight = recommend(64000, 0, "--budget-usd", str(limit))["recommended"]
    assert tight["cost_high_usd"] <= limit < max(highest)
    assert recommend(64000, 0, "--machines", "2")["recommended"]["world_size"] == 2
    cheap = recommend(64000, 20, "--alpha", "0", "--beta", "1")["recommended"]
    assert cheap["world_size"] == 2
    assert (
        run(
            "recommend",
            "--origin",
            "anwar2021",
            "--global-batch-size",
            "64000",
            "--deadline-s",
            "1",
        ).exit_code
        == 1
    )


@pytest.mark.usefixtures("home")
def test_the_table_names_its_price_and_what_is_not_sure() -> None:
    result = run("recommend", "--origin", "anwar2021", "--global-batch-size", "6400")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Recommended: world size")
    assert "90 % prediction interval" in lines[1]
    assert any(
        line.startswith("price of t2.large: 0.0928 USD an hour in us-east-1") for line in lines
    )


@pytest.mark.usefixtures("home")
def test_the_least_time_cost_and_energy_are_told_or_why_not() -> None:
    shown = run("recommend", "--origin", "anwar2021", "--global-batch-size", "6400").stdout
    least = [line for line in shown.splitlines() if line.startswith("Least ")]
    assert [line.partition(":")[0] for line in least] == [
        "Least time",
        "Least cost",
        "Least energy",
    ]
    assert all("at most" in line for line in least[:2])
    assert least[2] == "Least energy: not known, since the energy of none was measured"


@pytest.mark.usefixtures("home")
def test_a_cost_of_less_than_a_cent_is_not_shown_as_nothing() -> None:
    [line] = run(
        *("recommend", "--origin", "anwar2021", "--global-batch-size", "192"),
        *("--world-sizes", "1"),
    ).stdout.splitlines()[2:3]
    assert float(line[: line.index(" USD")].split()[-1]) > 0


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("option", ["bandwidth-mbit-per-s", "packet-loss-percent", "alpha"])
def test_what_is_no_number_is_refused(option: str) -> None:
    result = run("recommend", "--global-batch-size", "64", f"--{option}", "nan")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_prices_of_a_file_replace_the_shipped_ones(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("instance_type,region,usd_per_hour,date,source\nt2.large,x,3600,2026-03-01,y\n")
    best = recommend(64000, 0, "--prices", str(file))["recommended"]
    assert best["cost_usd"] == pytest.approx(best["world_size"] * best["time_s"])
    refused = run("recommend", "--global-batch-size", "1", "--prices", str(home / "no.csv"))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_the_next_command_finds_the_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recommend(6400, 20)
    assert list((home / "fits").glob("*.npz"))
    monkeypatch.setattr(
        step_time_model, "fit_step_time_model", lambda *_: pytest.fail("fitted again")
    )
    assert recommend(6400, 20)["recommended"]


def predict(path: Path, *more: str, origin: str = "anwar2021") -> Result:
    return run("predict", str(path), "--origin", origin, *more)


QUERIES = """\
id,World_Size,global_batch_size,one_way_delay_ms,why
a,3,64000,20,"measured, once"

b,3,1000,30,between
c,1,64000,50,out of memory
d,2,192,0,
e,1,6400,100,no network
"""


@pytest.mark.usefixtures("home")
def test_a_column_in_another_unit_asks_the_same_and_others_are_named() -> None:
    def answer(columns: str, cells: str) -> Result:
        queries = f"{columns}\n{cells}\n"
        result = CliRunner().invoke(main, ["predict", "-", "--origin", "anwar2021"], input=queries)
        assert result.exit_code == 0
        return result

    plain = answer("world_size,global_batch_size,one_way_delay_ms,step_time_s", "2,64000,20,1")
    converted = answer("world_size;per_replica_batch_size;delay (s);step_time_s", "2;32000;0.02;1")
    assert converted.stderr == (
        "farm: converted: global_batch_size = per_replica_batch_size x world_size x "
        "replicas_per_rank\n"
        "farm: kept but not used: delay (s) (a delay: name it one_way_delay_ms or "
        "one_way_delay_s, if it is of one way (half of a round trip)), step_time_s\n"
    )
    converted = answer("world_size;per_replica_batch_size;one-way delay [s];x", "2;32000;0.02;1")
    assert (
        converted.stdout.splitlines()[1].split(",")[4:]
        == (plain.stdout.splitlines()[1].split(",")[4:])
    )


@pytest.mark.usefixtures("home")
def test_each_column_of_the_results_is_there_once(tmp_path: Path) -> None:
    file = tmp_path / "queries.csv"
    file.write_text('sep=;\nworld_size;global_batch_size;step_time_s\n2;64000;"1"\n')
    header, row = csv.reader(io.StringIO(predict(file).stdout))
    assert header == ["world_size", "global_batch_size", "given_step_time_s", *RESULTS]
    assert row[2] == "1"
    [item] = json.loads(predict(file, "--json").stdout)["items"]
    assert item["given_step_time_s"] == "1"


@pytest.mark.usefixtures("home")
def test_a_jitter_above_the_delay_is_refused() -> None:
    command = ("recommend", "--origin", "anwar2021", "--global-batch-size", "6400")
    refused = run(*command, "--one-way-delay-ms", "1", "--jitter-ms", "5")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "farm: --jitter-ms: expected at most --one-way-delay-ms, got 5.0\n"


@pytest.mark.usefixtures("home")
def test_every_query_is_answered_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "queries.csv"
    file.write_text("\ufeff" + QUERIES)
    result = predict(file)
    assert result.exit_code == 0
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["id", "World_Size", "global_batch_size", "one_way_delay_ms", "why", *RESULTS]
    assert [row[0] for row in rows[1:]] == list("abcde")
    assert rows[1][:5] == ["a", "3", "64000", "20", "measured, once"]
    by_id = {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[1:]}
    assert {row["id"]: row["basis"] for row in by_id.values() if row["id"] != "c"} == {
        "a": "measured",
        "b": "interpolated",
        "d": "measured",
        "e": "measured",
    }
    assert float(by_id["a"]["step_time_s"]) == pytest.approx(524 / 70)
    assert by_id["c"]["basis"] == "unknown: it does not work: out_of_memory"
    assert by_id["c"]["step_time_s"] == by_id["c"]["high80_s"] == ""
    assert {row["speculative_because"] for row in by_id.values()} == {""}
    assert "kept but not used: id, why" in result.stderr
    out = tmp_path / "out.csv"
    assert predict(file, "--out", str(out)).stdout == ""
    assert out.read_text() == result.stdout
    items = json.loads(predict(file, "--json").stdout)["items"]
    assert [item["id"] for item in items] == list("abcde")
    assert items[2]["step_time_s"] is None


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("world_size\n2\n", "column global_batch_size: expected this column"),
        (
            "strategy,gpus,batch size\nddp,4,32\n",
            "column world_size: expected this column: it is required, and so is global_batch_size "
            "(gpus: devices: name it world_size",
        ),
        (
            "world_size,global_batch_size,one_way_delay_ms,jitter_ms\n2,64,1,5\n",
            "row 2, column jitter_ms: expected at most one_way_delay_ms, 1, got 5.0",
        ),
        ('[{"world_size": 2}]', "the table: expected comma-separated values: save it as CSV"),
        (
            "world_size,global_batch_size\n2,64\n2,many\n",
            "row 3, column global_batch_size: expected",
        ),
        ("world_size,global_batch_size\n,64\n", "row 2, column world_size: expected a value"),
        (
            "world_size,global_batch_size\n4,3\n",
            "row 2, column global_batch_size: expected at least",
        ),
        ("world_size,global_batch_size\n2\n", "row 2: expected 2 cells as in row 1"),
    ],
)
def test_a_query_that_cannot_be_read_is_named_by_row_and_column(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "queries.csv"
    file.write_text(text)
    result = predict(file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"farm: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("home")
def test_an_origin_that_is_not_there_is_one_line_and_status_1(tmp_path: Path) -> None:
    file = tmp_path / "queries.csv"
    file.write_text("world_size,global_batch_size\n2,64\n")
    result = predict(file, origin="nowhere")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert predict(file, origin="farm").stdout.splitlines()[1].startswith("2,64,,,,,,unknown: ")


@pytest.mark.usefixtures("home")
def test_whole_numbers_are_taken_as_the_api_takes_them() -> None:
    command = ("recommend", "--origin", "anwar2021", "--global-batch-size")
    plain = run(*command, "64000", "--world-sizes", "2,3", "--json")
    assert plain.exit_code == 0
    assert run(*command, "6.4e4", "--world-sizes", "2.0,3", "--json").stdout == plain.stdout
    refused = run(*command, "64.5")
    assert refused.exit_code == 2
    assert "expected a whole number from 1 to 100000000, got '64.5'" in refused.stderr
