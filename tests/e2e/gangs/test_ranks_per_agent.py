"""Several ranks on one agent train what as many agents with one rank each would train."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import select

from farm.configuration.axes import AXES_BY_NAME
from farm.gang.lifecycle import JobState
from farm.store.engine import reading
from farm.store.reports.logs import log_stretch
from farm.store.tables import JobRow, RankRow
from tests.e2e.live_farm import REPOSITORY, LiveFarm, live_farm

pytestmark = [pytest.mark.tensorflow, pytest.mark.torch, pytest.mark.timeout(1700)]

# Four agents of one core, which they and their ranks share.
AGENT = {
    "AGENT_TRAINER": f"{sys.executable} -P -m farm.trainers",
    "AGENT_CPUS": "0",
    "AGENT_SHARES_CORES": "true",
}
SERVER = {
    "FARM_NOISE_POLICY": "flag",
    "FARM_PREPARE_TIMEOUT_S": "300",
    "FARM_START_TIMEOUT_S": "300",
}
GANG = """
world_size = 4
ranks_per_agent = [1, 2, 4]
global_batch_size = 64
"""
SWEEP = f"""
name = "ranks per agent"
[[case]]
model = "mlp"
dataset = "digits"
strategy = ["torch_ddp", "mwms_ring", "ps_sync", "ps_async", "local_sgd", "gossip",
            "torch_local_sgd", "torch_diloco"]
epochs = 1
{GANG}
[[case]]
script = "ddp_digits.py"
args = ["--batch-size", "{{per_rank_batch_size}}", "--epochs", "1"]
steps = "all"
{GANG}
"""
AVERAGING = ("local_sgd", "gossip", "torch_local_sgd", "torch_diloco")
# Every rank's own steps count, and updates may come in any order: losses differ by chance.
ASYNCHRONOUS = "ps_async"
RANKS_PER_AGENT = AXES_BY_NAME["ranks_per_agent"]


def test_ranks_of_one_agent_train_as_ranks_of_their_own_agents_do(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    script = (REPOSITORY / "examples" / "ddp_digits.py").read_text()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "ddp_digits.py").write_text(script)
    agent = {**AGENT, "AGENT_SCRIPT_DIR": str(tmp_path / "scripts")}
    with live_farm(tmp_path, agent_count=4, trainer=agent, server=SERVER) as farm:
        submitted = subprocess.run(
            [sys.executable, "-m", "farm.cli.main", "submit", str(tmp_path / "sweep.toml")],
            env=farm.server_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert submitted.returncode == 0, submitted.stderr
        jobs = farm.wait_for_end(1, within_s=1500)
        assert {job.state for job in jobs} == {JobState.SUCCEEDED}, farm.story(1)
        found: dict[str, dict[object, tuple[float, int]]] = {}
        counts: dict[str, set[tuple[int | None, int | None]]] = {}
        for job in jobs:
            each = RANKS_PER_AGENT.value_in(job.spec)
            found.setdefault(job.strategy, {})[each] = loss_and_agents(farm, job)
            kinds = {flag["kind"] for flag in farm.measurement(job.id).flags}
            assert ("shared_cores" in kinds) is (each != 1)
            measured = farm.measurement(job.id)
            counted = (measured.timed_step_count, measured.update_count)
            counts.setdefault(job.strategy, set()).add(counted)
            if job.strategy in AVERAGING:
                # Each rank makes its own, in 22 full steps.
                assert measured.update_count == 4 * 22
    assert len(found) == 9
    assert all(len(each) == 1 for each in counts.values()), counts
    for strategy, by_count in found.items():
        assert {each: agents for each, (_, agents) in by_count.items()} == {1: 4, 2: 2, 4: 1}
        losses = [loss for loss, _ in by_count.values()]
        is_exact = strategy != ASYNCHRONOUS
        assert not is_exact or all(math.isclose(x, losses[0], rel_tol=1e-5) for x in losses), found


def loss_and_agents(farm: LiveFarm, job: JobRow) -> tuple[float, int]:
    """Return the training loss at the end, and how many agents took part."""
    token = farm.attempts(job.id)[-1].id
    with reading(farm.engine) as session:
        rows = session.scalars(select(RankRow).where(RankRow.attempt_id == token)).all()
        [first] = [row for row in rows if row.rank == 0]
        assert first.ended is not None
        loss = first.ended["result"]["train_loss"]
        if loss is None:  # of a script, which prints it
            printed = re.findall(r"epoch 0: loss (\S+)", log_stretch(session, token, rank=0).text)
            loss = float(printed[-1])
        return loss, len({row.agent_id for row in rows})
