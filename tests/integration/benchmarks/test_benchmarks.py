"""The cheap benchmarks in a quick run: they work, and print what they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import BenchmarkFigure

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "command",
    [
        ["server.placement"],
        ["training.sampler"],
        ["server.ingest", "--database", "SQLite"],
        ["web.pages"],
    ],
    ids=lambda command: command[0],
)
def test_a_quick_run_prints_both_figures(command: list[str]) -> None:
    name, *options = command
    run = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    figures = [BenchmarkFigure(**fields) for fields in json.loads(run.stdout)]
    assert figures[0].ours
    assert figures[0].baseline
    assert all(figure.reached is None for figure in figures), "a quick run is held to nothing"
