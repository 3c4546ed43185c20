"""The strategies study: what its page says of measurements whose truth is known."""

from __future__ import annotations

import re
from typing import Any

import pytest

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.contracts import Page
from farm.studies.strategies import strategies_page, strategy_rows
from tests.stored.study_runs import GRADIENT_BYTES, study_run


def run(strategy: str, **changes: Any) -> StudyRun:
    """A run that sends 1 % more than its theory says, unless told otherwise."""
    world_size = changes.get("world_size", 2)
    fields: dict[str, Any] = {
        "strategy": strategy,
        "world_size": world_size,
        "global_batch_size": 32,
        "server_count": 0,
        "server_placement": "collocated",
        "replicas_per_rank": 1,
        "steps_between_averages": 1,
        "epochs": 1,
        "accuracy": 0.9,
        "sent_bytes_per_step": 1.01 * GRADIENT_BYTES if world_size > 1 else 0.0,
        "received_bytes_per_step": 1.02 * GRADIENT_BYTES,
        "idle_ratio": 0.25,
        "framework": "tensorflow 2.21.0",
    }
    return study_run(**{**fields, **changes})


def whole_study() -> list[StudyRun]:
    alone = {"world_size": 1, "idle_ratio": 0.0}
    runs = []
    for repetition, step_time_s in enumerate((0.010, 0.011, 0.012)):
        again: dict[str, Any] = {"repetition": repetition, "step_time_s": step_time_s}
        runs += [
            run("ps_async", server_count=1, staleness_mean=0.5, staleness_max=3, **again),
            run("mwms_ring", **again | {"step_time_s": step_time_s / 2}),
            run("single", **alone, **again),
        ]
    return runs


def rows(page: Page, title: str) -> list[list[str]]:
    below = page.text.split(f"## {title}\n", 1)[1]
    found = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert found, f"no table below {title}"
    lines = found[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_one_machine_comes_first_and_servers_last_with_the_median_of_their_runs() -> None:
    found = rows(strategies_page(whole_study()), "Time, idleness, accuracy")

    assert [row[0] for row in found] == ["`single`", "`mwms_ring`", "`ps_async`"]
    assert found[1][1:] == ["2 ranks", "5.50", "5.00 to 6.00", "0.24", "25 %", "90 %", "-"]
    assert found[2][1] == "2 ranks, 1 server collocated"
    assert found[2][-1] == "0.50 (at most 3)"


def test_bytes_are_held_against_the_theory_of_each_strategy() -> None:
    page = strategies_page(whole_study())
    found = rows(page, "Bytes")

    assert [row[0] for row in found] == ["`mwms_ring`", "`ps_async`"]  # one machine sends nothing
    assert [row[2:5] for row in found] == [["300", "303", "+1.0 %"]] * 2
    assert "within 1.0 %" in page.text


def test_a_gang_is_said_to_win_only_where_it_does() -> None:
    assert "1 of 2 gangs" in strategies_page(whole_study()).text


def test_what_failed_is_named_and_has_no_row() -> None:
    failed = run("gossip", status="out_of_memory", step_time_s=None)
    page = strategies_page([*whole_study(), failed])

    assert "`gossip`: out_of_memory" in page.text
    assert "`gossip`" not in [row.first["strategy"] for row in strategy_rows([failed])]


def test_without_a_measured_run_there_is_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        strategies_page([run("gossip", status="out_of_memory", step_time_s=None)])


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"model": "resnet18"}, "model resnet18, small_cnn"),
        ({"dataset": "cifar10"}, "data set cifar10, digits"),
        ({"global_batch_size": 64}, "batch 32, 64"),
        ({"one_way_delay_s": 0.005}, "delay 0.0, 0.005"),
        ({"epochs": 2}, "number of epochs 1, 2"),
    ],
)
def test_runs_of_other_work_are_refused_and_never_pooled(
    changes: dict[str, Any], value: str
) -> None:
    with pytest.raises(FarmError, match="compares strategies at one model") as refused:
        strategies_page([*whole_study(), run("gossip", **changes)])
    assert str(refused.value).endswith(f"got {value}")


def test_a_delay_is_one_of_gangs_alone() -> None:
    runs = [run("single", world_size=1), run("gossip", one_way_delay_s=0.005)]
    assert len(rows(strategies_page(runs), "Time, idleness, accuracy")) == 2


def test_a_run_that_failed_need_not_tell_its_epochs() -> None:
    failed = run("gossip", status="out_of_memory", step_time_s=None, epochs=None)
    assert "`gossip`: out_of_memory" in strategies_page([*whole_study(), failed]).text


def test_runs_that_something_else_disturbed_are_counted() -> None:
    runs = [*whole_study(), run("gossip", flags=("foreign_load", "steal"))]
    text = strategies_page(runs).text
    assert "1 of 10 runs were disturbed" in text
    assert "`foreign_load` 1 and `steal` 1" in text
    assert "runs were disturbed" not in strategies_page(whole_study()).text
