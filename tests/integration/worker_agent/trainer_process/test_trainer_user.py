"""A trainer that runs as another user: what it may, and what of its agent it cannot reach."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from farm.configuration.bundle import ScriptBundle
from farm.messages.agents import AgentState
from farm.messages.commands import StopAttempt
from farm.messages.reports import RankEnded
from tests.fakes.server import wait_until
from tests.machine.agents import ROOT, TRAINER, AgentFarm, AgentProcess
from worker_agent.rank.bundles import BundleFolder
from worker_agent.trainer_process.orphans import find_marked

PYTHON = shutil.which("python3", path="/usr/bin")
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes as another user"),
    pytest.mark.skipif(PYTHON is None, reason="there is no Python that everybody may run"),
]
USER = "nobody"
UID = pwd.getpwnam(USER).pw_uid
START_LIMIT_S = 60.0  # it tries first whether the user can run the trainer
LIMITS = "memory_mib=2048,processes=300,open_files=512,file_mib=1"


def agent_of(
    farm: AgentFarm, behaviour: str = "hang", *, is_warm: bool = False, **settings: str
) -> AgentProcess:
    """An agent whose trainers run as USER, in the system's Python: this one's may be private."""
    return farm.agent(
        template="" if is_warm else None,
        AGENT_TRAINER=f"{PYTHON} {TRAINER} {behaviour}",
        AGENT_TRAINER_USER=USER,
        AGENT_TRAINER_LIMITS=LIMITS,
        PYTHONPATH=os.pathsep.join([str(ROOT), *(p for p in sys.path if "site-packages" in p)]),
        **settings,
    )


def status(pid: int, name: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{name}:"))


def limits(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): line[26:].split()[1] for line in lines}


def as_user(*command: str) -> subprocess.CompletedProcess[str]:
    become = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    return subprocess.run(
        [*become, *command], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "forked from the template"])
def test_a_trainer_has_another_user_no_capability_and_limits(
    tmp_path: Path, *, is_warm: bool
) -> None:
    with AgentFarm(tmp_path, start_limit_s=START_LIMIT_S) as farm:
        agent = agent_of(farm, is_warm=is_warm)
        gang = farm.gang(1, agent)
        gang.start()
        gang.addresses()
        for pid in find_marked(agent.state_dir):
            assert status(pid, "Uid") == [str(UID)] * 4
            assert status(pid, "CapEff") == ["0000000000000000"]
            assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        [trainer] = agent.trainers()
        assert status(trainer, "NoNewPrivs") == ["1"]
        held = limits(trainer)
        assert held["Max data size"] == str(2048 * 2**20)
        assert held["Max processes"] == "300"
        assert held["Max open files"] == "512"
        assert held["Max file size"] == str(2**20)
        assert held["Max core file size"] == "0"
        cores = len(os.sched_getaffinity(0))
        assert held["Max cpu time"] == str(int((gang.spec.time_limit_s + 600) * cores))


def test_the_trainers_user_reads_neither_the_agents_files_nor_its_environment(
    tmp_path: Path,
) -> None:
    with AgentFarm(tmp_path, start_limit_s=START_LIMIT_S) as farm:
        agent = agent_of(farm)
        assert agent.process is not None
        for folder in (tmp_path, *tmp_path.parents):  # pytest's own are private
            if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
                folder.chmod(folder.stat().st_mode | 0o055)
        files = ("spool", "highest_token", "lock")
        for path in (agent.state_dir, *(agent.state_dir / name for name in files)):
            assert "Permission denied" in as_user("ls", str(path / ".")).stderr
        for pid in (agent.process.pid, agent.broker_client().pid):
            done = as_user("cat", f"/proc/{pid}/environ")
            assert (done.stdout, "Permission denied" in done.stderr) == ("", True)


def test_the_trainers_user_may_read_its_scripts_bundle_and_nobody_change_it(
    tmp_path: Path,
) -> None:
    def copies() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("benchfarm-*-*"))

    bundle = ScriptBundle({"train.py": b"print(1)"})
    before = copies()
    with AgentFarm(tmp_path, start_limit_s=START_LIMIT_S) as farm:
        agent = agent_of(farm, AGENT_SCRIPTS="submitted")
        BundleFolder(agent.state_dir / "bundles").put(bundle.archive)
        model = f"bundle:train.py@{bundle.sha256[:12]}"
        gang = farm.gang(1, agent, model=model, dataset="script")
        gang.start()
        gang.addresses()
        [folder] = copies() - before
        script = str(folder / "train.py")
        assert as_user("cat", script).stdout == "print(1)"
        assert "Permission denied" in as_user("touch", script, str(folder / "new")).stderr
        become = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups"]
        stranger = subprocess.run([*become, "cat", script], capture_output=True, check=False)
        assert stranger.returncode != 0
        farm.server.send(agent.agent_id, StopAttempt(token=1, reason="enough"))
        wait_until(lambda: not folder.exists(), "the copy is removed with its rank")


def test_a_rank_of_another_user_ends_well_and_leaves_nothing(tmp_path: Path) -> None:
    with AgentFarm(tmp_path, start_limit_s=START_LIMIT_S) as farm:
        agents = (agent_of(farm, "child"), farm.agent())
        gang = farm.gang(1, *agents)
        gang.lead_to_go()
        assert [ended.failure for ended in gang.wait_for(RankEnded)] == [None, None]
        farm.await_state(agents[0], AgentState.IDLE)
        assert agents[0].trainers() == []


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "forked from the template"])
def test_it_dies_with_its_agent(tmp_path: Path, *, is_warm: bool) -> None:
    with AgentFarm(tmp_path, start_limit_s=START_LIMIT_S) as farm:
        agent = agent_of(farm, is_warm=is_warm)
        gang = farm.gang(1, agent)
        gang.lead_to_go()
        assert agent.trainers()
        agent.signal(signal.SIGKILL)
        agent.wait()
        wait_until(lambda: not find_marked(agent.state_dir), "no process is left")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"AGENT_TRAINER_USER": "no-such-user"}, "expected a user of this machine"),
        ({"AGENT_TRAINER_USER": "root"}, "expected neither root nor"),
        ({"AGENT_TRAINER": "/nonexistent/python"}, "expected a user who may run"),
        ({"FARM_DATA_DIR": "STATE/data"}, "expected a folder outside of"),
        ({"AGENT_TRAINER_LIMITS": "memory=1"}, "expected pairs such as memory_mib=4096"),
    ],
)
def test_a_user_that_does_not_serve_is_refused_at_the_start(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    given = {
        "AGENT_STATE_DIR": str(tmp_path),
        "AGENT_TRAINER_USER": USER,
        "AGENT_TRAINER": f"{PYTHON} {TRAINER}",
        **{name: value.replace("STATE", str(tmp_path)) for name, value in settings.items()},
    }
    done = subprocess.run(
        [sys.executable, "-m", "worker_agent", "--check"],
        env={"PATH": os.environ["PATH"], **given},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr
