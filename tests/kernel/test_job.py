"""A job of two ranks through tc_netem, from its submission to its measurement."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.machine.namespaces import two_hosts

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1500)
def test_a_job_of_two_ranks_stores_the_network_that_it_had(tmp_path: Path) -> None:
    with two_hosts() as (near, far):
        done = subprocess.run(
            near.command("tests.kernel.job", str(tmp_path), far.name),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        queues = [host.root_queue() for host in (near, far)]
    print(done.stderr)

    assert done.returncode == 0
    [found] = json.loads(done.stdout)
    assert (found["status"], found["network"]) == ("ok", "tc_netem")
    assert 0.04 <= found["rtt_s"] <= 0.06
    assert found["bytes_per_s"] == pytest.approx(1.25e6, rel=0.1)
    # The queue of 10 Mbit/s holds 50 ms; agents beside it are slow in an emulated processor.
    assert 0.045 <= found["loaded_rtt_s"] <= 0.12
    assert not any("bf10:" in queue for queue in queues)
