"""The notebooks in `examples/notebooks`, executed at a real farm of two agents."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from nbformat import NotebookNode

import benchfarm
from benchfarm.client.handles import SweepHandle
from tests.notebooks import AGENT_COUNT, FOLDER, execute, notebook_farm, notebook_files

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < AGENT_COUNT, reason="two agents need two cores"
    ),
]
NUMBER = r"(-?[\d.]+|nan)"
INTERVAL = rf"\(90 %: {NUMBER}%? to {NUMBER}%?\)"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with notebook_farm(tmp_path_factory.mktemp("farm")) as address:
        yield address


def test_all_notebooks_are_executed_here() -> None:
    text = Path(__file__).read_text()
    assert [file.stem for file in notebook_files() if f'"{file.stem}"' not in text] == []


def test_a_sweep_becomes_a_table_and_a_figure_for_a_paper(url: str, tmp_path: Path) -> None:
    output, sweep = executed("paper_figure", url=url, folder=tmp_path / "paper")
    rows = (tmp_path / "paper" / "table.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [
        ["64", "1"],
        ["64", "2"],
        ["256", "1"],
        ["256", "2"],
    ]
    assert (tmp_path / "paper" / "step_time.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (tmp_path / "paper" / "step_time.svg").read_text()
    times = {(c["global_batch_size"], c["world_size"]): c for c in cells_of(sweep)}
    interval = rf"(?:{INTERVAL}|\(too few repetitions\))"
    found = re.findall(rf"Batch size (\d+): {NUMBER} times as fast {interval}: (.+)", output)
    assert [int(batch_size) for batch_size, *_ in found] == [64, 256]
    for batch_size, ratio, low, high, verdict in found:
        one, two = times[int(batch_size), 1], times[int(batch_size), 2]
        assert float(ratio) == pytest.approx(one["step_time_s"] / two["step_time_s"], abs=0.006)
        is_known = None not in (one["step_time_low_s"], two["step_time_low_s"])
        assert (bool(low), bool(high)) == (is_known, is_known)
        assert verdict in ("it pays", "it does not pay", "not known")
        assert is_known or verdict == "not known"


def test_a_script_of_ones_own_has_a_speed_up_with_its_interval(url: str, tmp_path: Path) -> None:
    output, sweep = executed("own_script", url=url, folder=tmp_path / "own")
    one, two = cells_of(sweep)
    assert [one["world_size"], two["world_size"]] == [1, 2]
    speed_up = one["step_time_s"] / two["step_time_s"]
    [(shown, low, high)] = re.findall(rf"Speed-up {NUMBER} {INTERVAL}", output)
    [(efficiency, *_)] = re.findall(rf"Efficiency {NUMBER}% {INTERVAL}", output)
    assert float(shown) == pytest.approx(speed_up, abs=0.006)
    assert float(efficiency) == pytest.approx(50 * speed_up, abs=0.6)
    is_known = None not in (one["step_time_low_s"], two["step_time_low_s"])
    assert is_known is (not math.isnan(float(low)) and float(low) < float(high))
    assert (tmp_path / "own" / "speed_up.pdf").read_bytes().startswith(b"%PDF")


def test_a_delay_costs_at_least_what_the_ring_has_to_wait(url: str, tmp_path: Path) -> None:
    output, sweep = executed("delay", url=url, folder=tmp_path / "delay")
    near, far = cells_of(sweep)
    assert [near["one_way_delay_s"], far["one_way_delay_s"]] == [0, 0.01]
    # Two ranks exchange halves, and then sums: each crosses the delay once.
    assert far["step_time_s"] > 2 * 0.01
    [(shown, low, _)] = re.findall(rf"costs {NUMBER} ms a step {INTERVAL}", output)
    cost = (far["step_time_s"] - near["step_time_s"]) / 0.01
    assert float(shown) == pytest.approx(cost, abs=0.06)
    is_known = None not in (near["step_time_low_s"], far["step_time_low_s"])
    assert is_known is not math.isnan(float(low))


def executed(name: str, *, url: str, folder: Path) -> tuple[str, SweepHandle]:
    """Execute a notebook; return what it printed, and its sweep, of which every job succeeded."""
    notebook = execute(FOLDER / f"{name}.py", url=url, folder=folder)
    with benchfarm.connect(url) as farm:
        sweep = next(farm.sweeps())
        sweep.refresh()
        failed = [
            farm.job(job.id).detail["story"] for job in sweep.jobs if job.state != "succeeded"
        ]
    assert failed == []
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    # What a line of progress has written over is gone.
    [progress] = [o["text"] for o in outputs(notebook) if o.get("name") == "stderr"]
    count = sweep.detail["job_count"]
    assert progress.strip() == f"sweep {sweep.id}: {count} of {count} jobs"
    kernels = [p for p in psutil.Process().children(recursive=True) if "ipykernel" in p.cmdline()]
    assert kernels == []
    return "".join(o["text"] for o in outputs(notebook) if o.get("name") == "stdout"), sweep


def outputs(notebook: NotebookNode) -> list[dict[str, Any]]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def cells_of(sweep: SweepHandle) -> list[dict[str, Any]]:
    """The cells of a sweep by axis and result, as the API has them."""
    return [{**cell["values"], **cell} for cell in sweep.detail["cells"]]
