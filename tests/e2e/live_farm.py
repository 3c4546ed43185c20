"""A whole farm of real processes for tests that break it: each part can be killed and restarted.

Only the trainers are fake (`tests/fakes/trainer.py`), unless a test says otherwise; Redis, the
store, the scheduler, the collector and the agents are the real ones, started as systemd would
start them.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
from sqlalchemy import Engine, func, select

from farm.gang.lifecycle import FINAL_JOB_STATES, JobState
from farm.store.agents.agents import live_agents
from farm.store.engine import make_engine, reading, writing
from farm.store.result_tables import MeasurementRow
from farm.store.schema import upgrade
from farm.store.tables import AttemptRow, JobEvent, JobRow, RankRow
from farm.submission import plan, submit
from tests.services.redis_server import RedisServer

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
FAKE_TRAINER = f"{sys.executable} {REPOSITORY / 'tests/fakes/trainer.py'}"
LEASE_S = 4.0
DEADLINE_S = 240.0  # below what pytest gives a test; a busy machine takes long


def wait_until(
    condition: Callable[[], T], what: str, *, within_s: float = DEADLINE_S, every_s: float = 0.05
) -> T:
    """Return the first true value of `condition`; fail, saying `what`, after the deadline."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        time.sleep(every_s)


class LiveFarm:
    """The processes of one farm, by name: "scheduler", "collector", "agent-1", ..."""

    def __init__(
        self,
        home: Path,
        *,
        server: Mapping[str, str] | None = None,
        agents: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`server`: settings of scheduler and collector that differ from a test's usual ones.

        `agents`: the same of single agents, by name.
        """
        self.home = home
        self._agents = agents or {}
        self._server = server or {}
        self.redis = RedisServer(home)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environments: dict[str, dict[str, str]] = {}
        self.engine: Engine = make_engine(self.database_url)

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.home}/farm.db"

    def start(self, *, agent_count: int, trainer: Mapping[str, str] | None = None) -> None:
        """Start everything and wait until every agent may be leased."""
        upgrade(self.engine)
        self.redis.start()
        self.start_server("scheduler")
        self.start_server("collector")
        for number in range(1, agent_count + 1):
            self.start_agent(number, trainer=trainer)
        self.wait_for_idle_agents(agent_count)

    def start_server(self, name: str) -> None:
        """Start (again) the scheduler, the collector or a second one, such as "scheduler-2"."""
        command = [sys.executable, "-m", "farm.cli.main", "run", name.split("-")[0]]
        self._spawn(name, command, self.server_environment())

    def start_agent(self, number: int, *, trainer: Mapping[str, str] | None = None) -> None:
        """Start (again) an agent; each has a core of its own in name only, for the fakes."""
        name = f"agent-{number}"
        environment = self._environments.get(name) or {
            **_clean_environment(),
            "FARM_BROKER_URL": self.redis.url,
            "AGENT_ID": name,
            "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
            "AGENT_INTERFACE": "lo",
            "AGENT_STATE_DIR": str(self.home / name),
            "AGENT_PORT_RANGE": f"{21000 + 100 * number}-{21099 + 100 * number}",
            "AGENT_CPUS": str(_core(number)),
            "AGENT_TRAINER": FAKE_TRAINER,
            "AGENT_TRAINER_ENVIRONMENT": "FAKE_TRAINER",
            "AGENT_HEARTBEAT_S": "1",
            "FARM_LEASE_S": str(LEASE_S),
            **(trainer or {}),
            **self._agents.get(name, {}),
        }
        self._environments[name] = environment
        self._spawn(name, [sys.executable, "-m", "worker_agent"], environment)

    def start_former_agent(self, **settings: str) -> None:
        """Start an agent `former` of an older version, with the settings of `agent-1`."""
        environment = {
            **self._environments["agent-1"],
            "AGENT_ID": "former",
            "AGENT_STATE_DIR": str(self.home / "former"),
            "AGENT_PORT_RANGE": "22900-22999",
            "AGENT_HEARTBEAT_S": "0.5",
            **settings,
        }
        self._spawn("former", [sys.executable, "-m", "tests.fakes.former_agent"], environment)

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal; after SIGKILL the process has been waited for."""
        process = self.processes[name]
        process.send_signal(number)
        if number == signal.SIGKILL:
            process.wait(timeout=60)

    def submit(self, **axes: object) -> int:
        """Submit one case of the given axes over small defaults; return the sweep's id."""
        case = {
            "model": "small_cnn",
            "dataset": "digits",
            "strategy": "mwms_ring",
            "world_size": 2,
            "global_batch_size": 32,
            "steps": 50,
            **axes,
        }
        repetitions = case.pop("repetitions", 1)
        sweep = {"name": "test", "repetitions": repetitions, "case": [case]}
        with writing(self.engine) as session:
            return submit(session, plan(sweep), now=dt.datetime.now(dt.UTC)).sweep_id

    def jobs(self, sweep_id: int) -> list[JobRow]:
        with reading(self.engine) as session:
            query = select(JobRow).where(JobRow.sweep_id == sweep_id).order_by(JobRow.id)
            return list(session.scalars(query))

    def attempts(self, job_id: int) -> list[AttemptRow]:
        with reading(self.engine) as session:
            query = select(AttemptRow).where(AttemptRow.job_id == job_id).order_by(AttemptRow.id)
            return list(session.scalars(query))

    def measurement_count(self, job_id: int) -> int:
        with reading(self.engine) as session:
            query = select(func.count()).where(MeasurementRow.job_id == job_id)
            return session.scalar(query) or 0

    def measurement(self, job_id: int) -> MeasurementRow:
        with reading(self.engine) as session:
            return session.scalars(
                select(MeasurementRow).where(MeasurementRow.job_id == job_id)
            ).one()

    def agent_of(self, token: int, rank: int) -> str:
        with reading(self.engine) as session:
            row = session.get_one(RankRow, (token, rank))
            return row.agent_id

    def wait_for_state(self, sweep_id: int, state: JobState) -> JobRow:
        """Wait until some job of the sweep is in `state`, and return it."""

        def found() -> JobRow | None:
            return next((j for j in self.jobs(sweep_id) if j.state is state), None)

        job = wait_until(found, f"a job of sweep {sweep_id} is {state.value}")
        assert job is not None
        return job

    def wait_for_end(self, sweep_id: int, *, within_s: float = DEADLINE_S) -> list[JobRow]:
        """Wait until every job of the sweep has its outcome, and return them."""

        def ended() -> list[JobRow]:
            jobs = self.jobs(sweep_id)
            return jobs if all(j.state in FINAL_JOB_STATES for j in jobs) else []

        try:
            return wait_until(ended, f"sweep {sweep_id} is over", within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(sweep_id)}") from None

    def wait_for_idle_agents(self, count: int, *, within_s: float = DEADLINE_S) -> None:
        def idle() -> bool:
            with reading(self.engine) as session:
                now = dt.datetime.now(dt.UTC)
                agents = live_agents(session, now=now, live_within_s=LEASE_S)
            return sum(a.is_idle for a in agents) == count

        wait_until(idle, f"{count} agents are alive and idle", within_s=within_s)

    def trainers_of(self, name: str) -> list[psutil.Process]:
        """Return the living trainer processes of an agent, whoever their parent is now."""
        state_dir = str(self.home / name)
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("BENCHFARM_AGENT_STATE") == state_dir and "trainer" in (
                    " ".join(process.cmdline())
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def story(self, sweep_id: int) -> str:
        """Tell what happened, for the message of a failed test."""
        with reading(self.engine) as session:
            events = session.scalars(
                select(JobEvent)
                .join(JobRow, JobRow.id == JobEvent.job_id)
                .where(JobRow.sweep_id == sweep_id)
            ).all()
        lines = [f"{e.at:%X} job {e.job_id} {e.event} {e.reason or ''}" for e in events]
        for log in sorted((self.home / "logs").glob("*.log")):
            lines += [f"--- {log.name}", *log.read_text().splitlines()[-15:]]
        return "\n".join(lines)

    def stop(self) -> None:
        """Stop everything, gently first, and leave no process."""
        for name, process in reversed(self.processes.items()):
            del name
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=60)
        self.redis.kill()
        self.engine.dispose()

    def server_environment(self) -> dict[str, str]:
        return {
            **_clean_environment(),
            "FARM_DATABASE_URL": self.database_url,
            "FARM_BROKER_URL": self.redis.url,
            "FARM_HOME": str(self.home),
            "FARM_LEASE_S": str(LEASE_S),
            "FARM_RETRY_WAIT_S": "0.2",
            "FARM_PREPARE_TIMEOUT_S": "20",
            "FARM_START_TIMEOUT_S": "20",
            # The test and the servers share the agents' cores.
            "FARM_NOISE_POLICY": "flag",
            **self._server,
        }

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        logs = self.home / "logs"
        logs.mkdir(exist_ok=True)
        with (logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def live_farm(
    home: Path,
    *,
    agent_count: int,
    trainer: Mapping[str, str] | None = None,
    server: Mapping[str, str] | None = None,
    agents: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[LiveFarm]:
    """Run a farm for the length of a block."""
    farm = LiveFarm(home, server=server, agents=agents)
    try:
        farm.start(agent_count=agent_count, trainer=trainer)
        yield farm
    finally:
        farm.stop()


def _clean_environment() -> dict[str, str]:
    """This environment without settings that a developer's shell may carry."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}


def _core(number: int) -> int:
    """A core for each agent. Beyond the machine's, made-up ones: fake trainers need none."""
    return number - 1
