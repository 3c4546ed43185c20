"""What a real trainer finds in its environment, and what of its agent it can look into."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine.agents import AgentFarm, is_template
from worker_agent.trainer_process.environment import PASSED, PASSED_PREFIXES
from worker_agent.trainer_process.orphans import find_marked

SECRET = "hunter2"
SECRETS = {
    "FARM_API_TOKEN": SECRET,
    "FARM_DATABASE_URL": f"postgresql://u:{SECRET}@h/d",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "PGPASSWORD": SECRET,
    "HTTPS_PROXY": f"http://u:{SECRET}@proxy:3128",
    "SOMETHING_ELSE": SECRET,
}
OWN = ("BENCHFARM_AGENT_STATE", "PYTHONUNBUFFERED")


def environment_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "forked from the template"])
def test_no_secret_is_in_the_environment_of_a_trainer(tmp_path: Path, *, is_warm: bool) -> None:
    with AgentFarm(tmp_path) as farm:
        agent = farm.agent("hang", template="hang" if is_warm else None, **SECRETS)
        gang = farm.gang(1, agent)
        gang.start()
        gang.addresses()
        pids = find_marked(agent.state_dir)
        assert {is_template(pid) for pid in pids} == ({True, False} if is_warm else {False})
        for pid in pids:
            environment = environment_of(pid)
            assert SECRET not in str(environment)
            assert farm.redis.url not in str(environment)
            others = {name for name in environment if not name.startswith(PASSED_PREFIXES)}
            assert others <= {*PASSED, *OWN}


PROGRAM = """
import os, subprocess, sys
from worker_agent.trainer_process import privilege
if sys.argv[1] == "hidden":
    privilege.hide()
done = subprocess.run(["grep", "-c", "xxxxx", f"/proc/{os.getpid()}/environ"],
                      capture_output=True, text=True, check=False)
print(done.stdout, done.stderr)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
@pytest.mark.parametrize(
    ("state", "output"),
    [("open", "1"), ("hidden", "Permission denied")],
    ids=["open", "hidden"],
)
def test_a_trainer_of_the_agents_own_user_cannot_read_the_agents_environment(
    *, state: str, output: str
) -> None:
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("there is no Python that everybody may run")
    become = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    done = subprocess.run(
        [*become, python, "-S", "-c", PROGRAM, state],
        cwd=Path(__file__).parents[4],
        env={"PASSWORD": "xxxxx", "PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert output in done.stdout, done.stderr
