"""What the agent may do and its trainers may not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

PROGRAM = """
import subprocess
from worker_agent.trainer_process import privilege

def effective_of_a_child():
    child = ["grep", "-h", "CapEff", "/proc/self/status"]
    print(subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()[1])

privilege.withhold()
effective_of_a_child()
with privilege.handed_on():
    effective_of_a_child()
effective_of_a_child()
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give privileges up")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_child_may_administer_the_network_only_where_that_is_handed_on() -> None:
    kinds = ("inh-caps", "ambient-caps", "bounding-set")
    granted = [f"--{kind}=-all,+net_admin" for kind in kinds]
    done = subprocess.run(
        ["setpriv", "--securebits=+noroot", *granted, sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert [int(line, 16) for line in done.stdout.split()] == [0, 1 << CAP_NET_ADMIN, 0]
