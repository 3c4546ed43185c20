"""What the agent may do and its trainers may not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

ROOT = Path(__file__).parents[4]
PROGRAM = """
import subprocess
from worker_agent.trainer_process import privilege

def effective_of_a_child():
    child = ["grep", "-h", "CapEff", "/proc/self/status"]
    print(subprocess.run(child, check=True, capture_output=True, text=True).stdout.split()[1])

privilege.drop_capabilities()
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
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert [int(line, 16) for line in done.stdout.split()] == [0, 1 << CAP_NET_ADMIN, 0]


WITHOUT_ANY = """
import os
from worker_agent.trainer_process.privilege import missing_for_another_user

if os.geteuid() == 0:
    os.setuid(65534)
print(*missing_for_another_user())
"""


def test_the_agents_unit_grants_what_an_agent_needs_and_no_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ANY], cwd=ROOT, capture_output=True, text=True, check=True
    )
    needed = {"CAP_NET_ADMIN", *done.stdout.split()}
    assert len(needed) > 1

    unit = (ROOT / "deploy" / "systemd" / "farm-agent.service").read_text()
    for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
        [granted] = re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)
        assert set(granted.split()) == needed
