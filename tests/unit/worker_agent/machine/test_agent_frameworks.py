"""Which frameworks an agent offers, found out without importing any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml
from worker_agent.config import load_config
from worker_agent.machine.hardware import offers_tensorflow, read_facts

_ROOT = Path(__file__).parents[4]
_WITHOUT = (
    "import sys\n"
    "sys.modules['tensorflow'] = None  # as where it is not installed\n"
    "from worker_agent.__main__ import main\n"
    "status = main(['--check'])\n"
    "assert not {'keras', 'torch'} & set(sys.modules)\n"
    "sys.exit(status)\n"
)


def test_without_tensorflow_it_is_not_offered_and_the_log_says_what_that_means(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        env={"PATH": os.environ["PATH"], "AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never"},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(done.stdout)
    assert "tensorflow" not in facts["capabilities"]
    assert facts["hardware"]["tensorflow_version"] is None
    assert f"TensorFlow is not installed for {sys.executable}" in done.stderr
    assert "pip install 'benchfarm[agent]'" in done.stderr


@pytest.mark.parametrize("trainer", [None, "/bin/true"])
def test_a_trainer_of_ones_own_is_taken_to_have_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str | None
) -> None:
    given = {"AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never"}
    config = load_config(given | ({} if trainer is None else {"AGENT_TRAINER": trainer}))
    assert ("tensorflow" in read_facts(config).capabilities) is offers_tensorflow(config)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert offers_tensorflow(config) is (trainer is not None)


@pytest.mark.parametrize(
    ("also", "ranks"),
    [
        ({"AGENT_CPUS": "0"}, []),
        ({"AGENT_CPUS": "0", "AGENT_SHARES_CORES": "true"}, list(range(2, 17))),
    ],
)
def test_an_agent_takes_no_more_ranks_than_it_has_cores_unless_they_may_share(
    tmp_path: Path, also: dict[str, str], ranks: list[int]
) -> None:
    config = load_config({"AGENT_STATE_DIR": str(tmp_path), "AGENT_CLOUD": "never", **also})
    able = [name for name in read_facts(config).capabilities if name.startswith("ranks:")]
    assert able == [f"ranks:{count}" for count in ranks]


@pytest.mark.parametrize("gpu_count", [1, 0])
def test_a_framework_that_cannot_use_the_gpus_that_are_there_is_named(
    tmp_path: Path, gpu_count: int
) -> None:
    packages = tmp_path / "packages"
    for name, version in (("torch", "2.13.0+cpu"), ("tensorflow_cpu", "2.21.0")):
        folder = packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    fake = FakeNvml(tmp_path, gpu_count=gpu_count)
    done = subprocess.run(
        [sys.executable, "-m", "worker_agent", "--check"],
        env={
            **{"PATH": os.environ["PATH"], "AGENT_STATE_DIR": str(tmp_path)},
            **{"AGENT_CLOUD": "never", "PYTHONPATH": str(packages)},
            "LD_LIBRARY_PATH": str(fake.path.parent),
        },
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(json.loads(done.stdout)["gpus"]) == gpu_count
    warnings = [
        "tensorflow-cpu 2.21.0 cannot use this machine's GPUs: pip uninstall tensorflow-cpu",
        "torch 2.13.0+cpu cannot use this machine's GPUs: pip uninstall torch && pip install",
    ]
    assert [text in done.stderr for text in warnings] == [gpu_count > 0] * 2
