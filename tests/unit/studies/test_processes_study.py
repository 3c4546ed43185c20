"""The processes study: what its page says of measurements whose truth is known."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from farm.charts.files.style import file_of, save
from farm.errors import FarmError
from farm.measuring.study_run import StudyRun
from farm.studies.contracts import LoopbackAgents
from farm.studies.orderings import judge
from farm.studies.processes import (
    ORDERINGS,
    PROCESSES,
    claimed_values,
    learning_bars,
    processes_page,
    set_ups,
    small,
    time_figures,
)
from farm.submission import plan, read_sweep_file
from tests.facts import lacking
from tests.stored.study_runs import changed, study_run

BATCHES = (32, 128, 512)
# What an example costs and what a step costs beside; a second process halves the one, and adds to
# the other.
EXAMPLE_S, STEP_S, EXCHANGE_S = 0.0001, 0.002, 0.010
EXAMPLES = 1440


def process_run(strategy: str, batch: int, **changes: Any) -> StudyRun:
    gang, replicas = strategy == "mwms_ring", 2 if strategy == "mirrored" else 1
    step_s = STEP_S * replicas + batch * EXAMPLE_S
    if gang:
        step_s = STEP_S + EXCHANGE_S + batch * EXAMPLE_S / 2
    steps = EXAMPLES // batch
    loss = 0.1 + batch / 500
    fields: dict[str, Any] = {
        "strategy": strategy,
        "world_size": 2 if gang else 1,
        "replicas_per_rank": replicas,
        "global_batch_size": batch,
        "epochs": 10,
        "steps_per_epoch": steps,
        "step_time_s": step_s,
        "time_per_epoch_s": steps * step_s,
        "training_loss": loss,
        "test_loss": loss * (1.01 if batch == 128 and strategy != "single" else 1.0),
        "accuracy": 1 - batch / 1000,
    }
    return study_run(**{**fields, **changes})


def whole_study() -> list[StudyRun]:
    """Five repetitions, which differ by hundredths."""
    runs: list[StudyRun] = []
    for repetition in range(5):
        for strategy in ("mwms_ring", "single", "mirrored"):
            for batch in BATCHES:
                run = process_run(strategy, batch, repetition=repetition, job_id=len(runs) + 1)
                assert run.test_loss is not None
                runs.append(
                    changed(
                        run,
                        time_per_epoch_s=run["time_per_epoch_s"] * (1 + 0.002 * repetition),
                        test_loss=run.test_loss * (1 + 0.005 * repetition),
                    )
                )
    return runs


def rows(text: str, title: str) -> list[list[str]]:
    below = text.split(f"## {title}\n", 1)[1]
    found = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert found, f"no table below {title}"
    lines = found[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_one_process_comes_first_and_the_others_are_told_in_its_terms() -> None:
    found = rows(processes_page(whole_study()).text, "Time")

    names = [
        "1 process (single)",
        "1 process with 2 replicas (mirrored)",
        "2 processes (mwms_ring)",
    ]
    assert [row[0] for row in found] == [name for name in names for _ in BATCHES]
    assert [row[1] for row in found] == ["32", "128", "512"] * 3
    # (2 + 51.2) / (12 + 25.6)
    assert found[-1][5] == "1.41"
    assert found[0][5] == "-"
    assert found[0][7:] == ["5", "0"]


def test_who_is_faster_at_which_batch_is_said() -> None:
    text = processes_page(whole_study()).text

    [finding] = re.findall(r"^.*\*\*2 processes \(mwms_ring\)\*\*(.*)$", text, re.MULTILINE)
    slower, faster = finding.split("faster than 1 process", 1)
    assert "slower than 1 process" in slower
    assert re.findall(r"([\d.]+) times", slower) == ["0.38", "0.80"]
    assert re.findall(r"([\d.]+) times", faster.partition("**")[0]) == ["1.41"]


def test_a_difference_within_the_noise_is_not_called_one() -> None:
    runs = [
        changed(run, time_per_epoch_s=[0.8, 0.9, 1.0, 1.1, 1.3][run.repetition])
        if run["world_size"] == 2
        else changed(run, time_per_epoch_s=1.0)
        for run in whole_study()
    ]
    text = processes_page(runs).text

    assert "as fast as 1 process" in text
    assert "faster than" not in text


def test_the_same_seed_is_held_against_the_same_seed() -> None:
    text = processes_page(whole_study()).text

    assert lacking(text, "1.0 % with a batch of 128", "0 with a batch of 512") == []
    assert [row[-1] for row in rows(text, "Loss and accuracy")][:6] == ["-"] * 3 + [
        "0",
        "1.0 %",
        "0",
    ]


def test_replicas_that_train_differently_are_told() -> None:
    runs = [changed(run, test_loss=2.0 if run["world_size"] == 2 else 1.0) for run in whole_study()]
    assert "differ by at most 50 %" in processes_page(runs).text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "0"), (3e-7, "less than 0.001 %"), (0.00052, "0.052 %"), (0.119, "12 %")],
)
def test_tiny_differences_keep_their_digits(ratio: float, text: str) -> None:
    assert small(ratio) == text


def test_every_claim_is_held_against_the_runs() -> None:
    values = claimed_values(set_ups(whole_study()))
    verdicts = [judge(claim, values[claim.of]) for claim in ORDERINGS]

    # Of one process only the two smaller batches are faster than the gang.
    assert [verdict.holds for verdict in verdicts] == [True, False, True, True, True, True]
    assert [verdict.agree for verdict in verdicts] == [6, 1, 2, 3, 6, 6]
    text = processes_page(whole_study()).text
    assert re.search(r"^\| 2\. .* \| 1 of 3 \|", text, re.MULTILINE)
    assert f"- 2: {ORDERINGS[1].because}" in text


def test_the_figures_have_a_line_or_bar_for_each_set_up() -> None:
    found = set_ups(whole_study())
    epochs, speed_ups = time_figures(found)

    assert [len(series.marks) for series in epochs.series] == [3, 3, 3]
    assert [series.name for series in speed_ups.series] == list(found.lines)
    assert speed_ups.series[2].marks[-1].y == pytest.approx(53.2 / 37.6)
    loss, accuracy = learning_bars(found)
    assert loss.groups == ["32", "128", "512"]
    assert [len(series.marks) for series in accuracy.series] == [3, 3, 3]


def test_every_figure_is_drawn_and_linked(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page = processes_page(whole_study())
    for drawing in page.drawings:
        assert f"(../images/{drawing.name}.png)" in page.text
        assert all(path.stat().st_size for path in save(drawing.draw(), tmp_path, drawing.name))


@pytest.mark.parametrize(
    "kept",
    [
        [process_run("single", 32)],
        [process_run("mwms_ring", 32)],
        [process_run("mirrored", 512, test_loss=None, accuracy=None, epochs=None)],
        [process_run("single", 32), process_run("mwms_ring", 128, time_per_epoch_s=None)],
        [
            *whole_study()[:4],
            process_run("mwms_ring", 512, status="out_of_memory", step_time_s=None, epochs=None),
        ],
    ],
    ids=["one", "no single", "little known", "no pair", "failed"],
)
def test_a_page_survives_few_runs_and_missing_values(kept: list[StudyRun]) -> None:
    pytest.importorskip("matplotlib")
    page = processes_page(kept)

    assert "$" not in page.text
    for drawing in page.drawings:
        assert file_of(drawing.draw(), "svg")


def test_without_a_measured_run_there_is_no_page() -> None:
    with pytest.raises(FarmError, match="no measured run"):
        processes_page([process_run("single", 32, status="stalled", step_time_s=None)])


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"model": "mlp"}, "model mlp, small_cnn"),
        ({"dataset": "mnist"}, "data set digits, mnist"),
        ({"epochs": 2}, "number of epochs 10, 2"),
    ],
)
def test_runs_of_other_work_are_refused(changes: dict[str, Any], value: str) -> None:
    with pytest.raises(FarmError) as refused:
        processes_page([*whole_study(), process_run("single", 32, **changes)])
    assert str(refused.value).endswith(f"got {value}")


def test_its_own_sweep_runs_on_two_agents() -> None:
    sweep = Path(str(files("farm.studies.processes") / "sweep.toml"))
    jobs = plan(read_sweep_file(sweep)).expansion.jobs

    assert PROCESSES.place == LoopbackAgents(2)
    assert max(job.agent_count for job in jobs) == 2
    assert all(job.network is None for job in jobs)
    by_strategy = {
        strategy: {job.global_batch_size for job in jobs if job.strategy == strategy}
        for strategy in ("single", "mirrored", "mwms_ring")
    }
    [batches] = {frozenset(found) for found in by_strategy.values()}
    assert set(BATCHES) <= batches
