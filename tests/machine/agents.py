"""Real agent processes for tests, with the fake trainer, on the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from farm.configuration.spec import JobSpec
from farm.messages.agents import AgentState, Heartbeat
from tests.fakes.server import FakeGang, FakeServer, wait_until
from tests.services.redis_server import RedisServer
from worker_agent.trainer_process.orphans import find_marked

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "tests" / "fakes" / "trainer.py"
# Ports of its own for each process of a parallel test run, below the kernel's ephemeral ones.
FIRST_PORT = 24000 + os.getpid() % 60 * 100


def is_template(pid: int) -> bool:
    """Whether it listens to a socket and leads a group; trainers and half-made forks do not."""
    try:
        listens = str(Path(f"/proc/{pid}/fd/0").readlink()).startswith("socket:")
        return listens and os.getpgid(pid) == pid
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended meanwhile


class AgentProcess:
    """One agent; its state survives from one `start` to the next."""

    def __init__(self, agent_id: str, *, folder: Path, broker_url: str, number: int) -> None:
        self.agent_id = agent_id
        self.state_dir = folder / agent_id
        self.log = folder / f"{agent_id}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.umask = -1  # that of the tests
        self.settings = {
            "FARM_BROKER_URL": broker_url,
            "AGENT_ID": agent_id,
            "AGENT_STATE_DIR": str(self.state_dir),
            "AGENT_PORT_RANGE": f"{FIRST_PORT + 20 * number}-{FIRST_PORT + 20 * number + 19}",
            "AGENT_HEARTBEAT_S": "0.5",
        }

    def start(self, behaviour: str = "", *, template: str | None = None) -> None:
        """Start it; `behaviour` is what its trainers do wrong, and `template` what theirs does.

        Without a template trainers start cold.
        """
        env = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_")}
        trainer = f"{sys.executable} {TRAINER} {behaviour}"
        env |= {"AGENT_TRAINER": trainer, "PYTHONPATH": str(ROOT), **self.settings}
        command = ["-m", "worker_agent"]
        if template is not None:
            command = ["-m", "tests.fakes.agent", *template.split()]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=env, stderr=log, umask=self.umask
            )

    def signal(self, number: int) -> None:
        assert self.process
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 60.0) -> int:
        assert self.process
        return self.process.wait(timeout=timeout_s)

    def broker_client(self) -> psutil.Process:
        assert self.process
        children = psutil.Process(self.process.pid).children()
        [broker_client] = [
            child for child in children if "worker_agent.broker.broker_client" in child.cmdline()
        ]
        return broker_client

    def trainers(self) -> list[int]:
        """Return every process that the agent started for ranks and that still lives."""
        template = self.template()
        return [pid for pid in find_marked(self.state_dir) if pid != template]

    def template(self) -> int | None:
        """Return the process that its warm trainers are forked from; None without one."""
        return next((pid for pid in find_marked(self.state_dir) if is_template(pid)), None)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


class AgentFarm:
    """A Redis, a fake server and some agents; leaving the `with` stops all of them."""

    def __init__(self, folder: Path, *, start_limit_s: float = 60.0) -> None:
        self.folder = folder
        self.start_limit_s = start_limit_s  # what an agent has to be idle
        self.redis = RedisServer(folder)
        self.agents: list[AgentProcess] = []
        self.umask = -1  # of agents that are started from now on; -1: that of the tests

    def __enter__(self) -> AgentFarm:
        self.redis.start()
        self.server = FakeServer(self.redis.url)
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self.agents:
            agent.stop()
        self.server.stop()
        self.redis.kill()

    def agent(
        self,
        behaviour: str = "",
        *,
        template: str | None = None,
        **settings: str,
    ) -> AgentProcess:
        """Start an agent and wait until the server has heard that it is idle."""
        number = len(self.agents)
        agent = AgentProcess(
            f"agent-{number}", folder=self.folder, broker_url=self.redis.url, number=number
        )
        agent.settings |= settings
        agent.umask = self.umask
        self.agents.append(agent)
        agent.start(behaviour, template=template)
        self.await_state(agent, AgentState.IDLE, timeout_s=self.start_limit_s)
        return agent

    def beat(self, agent: AgentProcess) -> Heartbeat | None:
        beats = self.server.beats[agent.agent_id]
        return beats[-1] if beats else None

    def await_state(
        self, agent: AgentProcess, state: AgentState, *, timeout_s: float = 60.0
    ) -> Heartbeat:
        return self.await_beat(
            agent, lambda beat: beat.state is state, what=state.value, timeout_s=timeout_s
        )

    def await_beat(
        self,
        agent: AgentProcess,
        is_meant: Callable[[Heartbeat], bool],
        *,
        what: str,
        timeout_s: float = 60.0,
    ) -> Heartbeat:
        """Wait until the last heartbeat that has arrived is the one meant; return it."""

        def matching() -> Heartbeat | None:
            beat = self.beat(agent)
            return beat if beat is not None and is_meant(beat) else None

        return wait_until(matching, f"{agent.agent_id} {what}", timeout_s=timeout_s)

    def gang(self, token: int, *agents: AgentProcess, **fields: object) -> FakeGang:
        spec = {
            "model": "cnn_small",
            "dataset": "digits",
            "strategy": "mwms_ring",
            "world_size": len(agents),
            "global_batch_size": 32,
            "steps": 10,
            **fields,
        }
        return FakeGang(
            self.server,
            token,
            agent_ids=tuple(agent.agent_id for agent in agents),
            spec=JobSpec(**spec),  # type: ignore[arg-type] # a test's own fields
        )
