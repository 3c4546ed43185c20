"""The environment of a script's rank, against that of the framework's own launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from farm.messages.trainer_lines import Assignment, GoLine
from farm.trainers.script.launchers import SCRIPT_LAUNCHERS
from tests.integration.trainers.script.test_script_rank import job_of

TELL = "import json, os, sys\nwith open(sys.argv[1], 'w') as f: json.dump(dict(os.environ), f)"
OF_ITS_OWN = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
WORKERS = ("127.0.0.1:3001", "127.0.0.1:3002")


@pytest.mark.torch
def test_a_rank_of_torch_has_each_variable_that_torchrun_sets(tmp_path: Path) -> None:
    script, file = tmp_path / "tell.py", tmp_path / "environment.json"
    script.write_text(TELL)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run([*launcher, str(script), str(file)], check=True, capture_output=True)
    seen = json.loads(file.read_text())
    by_torchrun = {
        name
        for name in seen
        if name.startswith(("TORCH", "MASTER_")) or name.endswith(("RANK", "WORLD_SIZE"))
        if os.environ.get(name) != seen[name] and name not in OF_ITS_OWN
    }
    assert {"RANK", "TORCHELASTIC_RUN_ID"} <= by_torchrun

    [torch] = [one for one in SCRIPT_LAUNCHERS if one.facts.framework == "torch"]
    job = job_of(launcher="torch", world_size=2)
    go = GoLine(cluster={"worker": WORKERS}, task_index=1)
    environment = torch.environment(Assignment(job=job, rank=1, cpus=(0,)), go)
    assert by_torchrun - environment.keys() == set()
