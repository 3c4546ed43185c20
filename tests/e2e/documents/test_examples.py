"""The scripts in `examples`, which know nothing of the farm, on one and on two ranks of it."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.start.test_measure import measure

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 12
RANK = "--batch-size {per_rank_batch_size}"
# The framework that is more than what all tests have, the launcher, and the arguments.
RUNS = {
    "ddp_digits.py": ("torch", "torch", f"{RANK} --workers 1"),
    "fsdp.py": ("torch", "torch", RANK),
    "hf_trainer.py": ("transformers", "torch", f"{RANK} --accumulate 2"),
    "lightning_module.py": ("lightning", "torch", RANK),
    "tf_keras_fit.py": ("tf_keras", "tensorflow", "--global-batch-size {global_batch_size}"),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores"),
]


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == RUNS.keys()


@pytest.mark.parametrize("name", RUNS)
def test_an_example_is_measured_on_one_and_two_ranks(name: str, tmp_path: Path) -> None:
    package, launcher, words = RUNS[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make test-all` installs it")
    options = ("--global-batch-size", "32", "--launcher", launcher, "--steps", str(STEPS), "--json")
    status, output, errors = measure(tmp_path / "home", EXAMPLES / name, *options, words)
    assert status == 0, errors
    answer: dict[str, Any] = json.loads(output)
    jobs = {job["world_size"]: job for job in answer["jobs"]}
    assert jobs.keys() == {1, 2}
    for job in jobs.values():
        assert (job["state"], job["timed_step_count"]) == ("succeeded", STEPS)
        assert job["step_time_s"] > 0
    assert not [warning for warning in answer["warnings"] if "sent each other nothing" in warning]
