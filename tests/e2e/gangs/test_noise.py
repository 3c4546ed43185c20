"""Another program on a rank's core: its measurement is void or flagged, and a quiet one is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from farm.gang.lifecycle import AttemptState, JobState
from farm.measuring.noise import NoiseKind
from tests.e2e.live_farm import LiveFarm, live_farm

pytestmark = pytest.mark.alone

TRAINER = {"FAKE_TRAINER": "steps_s:0.05"}
CORE = 0  # of agent-1
QUIET_TRIES = 4
# The control run and the start of a trainer are on the core as well, but not while it is timed.
QUIET_IDLE_RATIO = 0.85

needs_the_core = pytest.mark.skipif(
    CORE not in os.sched_getaffinity(0), reason="the agent's core is not ours to burn"
)


@contextmanager
def burner() -> Iterator[None]:
    """Keep the agent's core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, {CORE})
        yield
    finally:
        process.kill()
        process.wait()


def submit(farm: LiveFarm) -> int:
    return farm.submit(strategy="single", world_size=1, steps=60)


def disturbances(farm: LiveFarm) -> set[str]:
    """Run a job and return the kinds of its flags."""
    (job,) = farm.wait_for_end(submit(farm))
    return {flag["kind"] for flag in farm.measurement(job.id).flags}


def quiet_run(farm: LiveFarm) -> set[str] | None:
    """Run a job and return the kinds of its flags; None if the core was busy meanwhile."""
    before = psutil.cpu_times(percpu=True)[CORE]
    kinds = disturbances(farm)
    after = psutil.cpu_times(percpu=True)[CORE]
    spans = [end - begin for begin, end in zip(before, after, strict=True)]
    idle = after.idle - before.idle + after.iowait - before.iowait
    return kinds if idle > QUIET_IDLE_RATIO * sum(spans) else None


@needs_the_core
def test_a_busy_core_flags_the_measurement_and_a_quiet_one_does_not(tmp_path: Path) -> None:
    with live_farm(tmp_path, agent_count=1, trainer=TRAINER) as farm:
        with burner():
            assert NoiseKind.FOREIGN_LOAD in disturbances(farm)
        runs = (quiet_run(farm) for _ in range(QUIET_TRIES))
        kinds = next((kinds for kinds in runs if kinds is not None), None)
    if kinds is None:
        pytest.skip("other programs keep this machine busy")
    assert NoiseKind.FOREIGN_LOAD not in kinds


@needs_the_core
def test_a_farm_that_voids_fails_the_job_with_the_reason(tmp_path: Path) -> None:
    server = {"FARM_NOISE_POLICY": "void", "FARM_MAX_ATTEMPTS": "2"}
    with live_farm(tmp_path, agent_count=1, trainer=TRAINER, server=server) as farm:
        with burner():
            (job,) = farm.wait_for_end(submit(farm))
        assert (job.state, job.failure_kind) == (JobState.FAILED, "disturbed")
        assert job.reason is not None
        assert "agent agent-1, rank 0: " in job.reason
        assert "of its cores was used by other programs (limit 30 %)" in job.reason
        assert {a.state for a in farm.attempts(job.id)} == {AttemptState.VOID}
        assert farm.measurement_count(job.id) == 0
