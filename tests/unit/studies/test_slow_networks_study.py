"""The slow-networks study: what its page says of measurements whose truth is known."""

from __future__ import annotations

from typing import Any

import pytest

from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.contracts import Page
from farm.studies.slow_networks import slow_networks_page
from tests.stored.study_runs import study_run


def run(strategy: str, delay_s: float, **changes: Any) -> StudyRun:
    fields: dict[str, Any] = {
        "strategy": strategy,
        "world_size": 2,
        "one_way_delay_s": delay_s,
        "steps_between_averages": 1 if strategy == "torch_ddp" else 8,
        "rtt_s": 0.0005 + 2 * delay_s,
        "step_time_s": 0.1,
        "time_per_epoch_s": 4.0,
        "epochs": 5,
        "accuracy": 0.95,
        "test_loss": 0.25,
        "sent_bytes_per_step": 300_000.0,
    }
    return study_run(**{**fields, **changes})


def whole_study() -> list[StudyRun]:
    rare = {"time_per_epoch_s": 1.0, "accuracy": 0.93, "sent_bytes_per_step": 37_500.0}
    return [
        run("torch_local_sgd", 0.1, **rare),
        run("torch_local_sgd", 0.0, **rare | {"accuracy": 0.90}),
        run("torch_ddp", 0.1),
        run("torch_ddp", 0.0, time_per_epoch_s=2.0),
    ]


def rows(page: Page) -> list[list[str]]:
    lines = [line for line in page.text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_training_is_held_against_the_synchronous_one_at_its_delay() -> None:
    found = rows(slow_networks_page(whole_study()))
    assert [row[1:4] for row in found] == [
        ["`torch_ddp`", "-", "0"],
        ["`torch_ddp`", "-", "100"],
        ["`torch_local_sgd`", "8", "0"],
        ["`torch_local_sgd`", "8", "100"],
    ]
    assert [row[7] for row in found] == ["-", "-", "50 %", "25 %"]
    assert [row[9:11] for row in found[2:]] == [["90.0 %", "-5.0"], ["93.0 %", "-2.0"]]
    assert [row[8] for row in found] == ["300", "300", "37.5", "37.5"]


def test_how_far_equal_trainings_are_apart_is_said() -> None:
    assert "at most 3.0 points" in slow_networks_page(whole_study()).text
    at_one_delay = slow_networks_page(whole_study()[::2])
    assert "none was repeated" in at_one_delay.text


def test_another_model_is_held_against_its_own_synchronous_training() -> None:
    other = run("torch_diloco", 0.1, model="gpt2_tiny", epochs=None, accuracy=0.5)
    page = slow_networks_page([*whole_study(), other])
    [row] = [row for row in rows(page) if row[0] == "`gpt2_tiny`"]
    assert (row[2], row[7], row[9], row[10]) == ("8", "-", "50.0 %", "-")
    assert "5 epochs of `small_cnn`" in page.text
    assert "10 steps of `gpt2_tiny`" in page.text


def test_what_failed_is_named_and_has_no_row() -> None:
    failed = run("torch_diloco", 0.0, status="not_a_number", step_time_s=None)
    page = slow_networks_page([*whole_study(), failed])
    assert "`torch_diloco`: not_a_number" in page.text
    assert len(rows(page)) == 4


def test_without_a_measured_run_there_is_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        slow_networks_page([run("torch_ddp", 0.0, status="out_of_memory", step_time_s=None)])
