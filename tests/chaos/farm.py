"""The farm under test: the real programs, each in a process that can be killed and started again.

Six agents, a scheduler, a collector and a web server over PostgreSQL and Redis. Only the trainers
are fakes, and every party reaches Redis by a link of its own (`tests.chaos.links`).
"""

from __future__ import annotations

import datetime as dt
import enum
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from farm.configuration.bundle import ScriptBundle
from farm.embedded.redis import free_port
from farm.keys.signing_key import make_signing_key
from farm.messages.agent_keys import derive_key, key_text
from farm.processes.marked import EMBEDDED_MARK
from farm.store.agents.agent_keys import add_agent_key
from farm.store.engine import make_engine, writing
from farm.store.sweeps.bundles import add_bundle
from farm.submission import plan, submit
from tests.chaos.links import Link, Links
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer
from worker_agent.trainer_process.orphans import find_marked

REPOSITORY = Path(__file__).parents[2]
AGENT_COUNT = 6
TRAINING_AGENT_COUNT = 4
# Less than half of the default, and so is all that goes by it; a slow machine needs a longer one.
LEASE_S = float(os.environ.get("FARM_CHAOS_LEASE_S", "8"))
HEARTBEAT_S = LEASE_S / 4
PROGRESS_TIMEOUT_S = LEASE_S
TRAINING_S = 3.0
LIAR = "liar"  # an agent whose key was stolen
_STEP_S = 0.05
_STOP_LIMIT_S = 15.0
# Alembic keeps what it migrates in globals.
_MIGRATING = threading.Lock()


_SCRIPT = ScriptBundle(
    {
        # Its children, one of them in a session of its own, live for longer than it does.
        "train.py": f"""
import subprocess, sys, time
import benchfarm
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
for is_apart in (False, True):
    subprocess.Popen(sleep, start_new_session=is_apart)
while True:
    time.sleep({_STEP_S})
    benchfarm.step(loss=0.5)
""".encode()
    }
)


class Trainers(enum.StrEnum):
    """Which trainers a campaign's agents start."""

    FAKE = "fake"
    TENSORFLOW = "tensorflow"
    SCRIPT = "script"  # a script of a user's own, which starts children


class ChaosFarm:
    """Processes go by name: "scheduler", "collector", "web", "agent-1", ..., or a second of one."""

    def __init__(
        self,
        home: Path,
        *,
        database_url: str,
        plant: str | None = None,
        number: int = 0,
        trainers: Trainers = Trainers.FAKE,
    ) -> None:
        """`plant`: the bug that every process has; see `tests.chaos.planted`.

        `number`: which of several farms at once this is; each has ports of its own.
        `trainers`: real ones are of fewer agents.
        """
        self.home = home
        self.database_url = database_url
        self.engine = make_engine(database_url)
        self.redis = RedisServer(home, keeps_file=True)
        self.links = Links(self.redis.port)
        self.web_port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.keys: dict[str, str] = {}  # of those whose messages count
        self._key_file = home / "signing.key"
        self._plant = plant
        self._number = number
        self._trainers = trainers
        self._trains = trainers is not Trainers.FAKE
        self._agent_count = TRAINING_AGENT_COUNT if self._trains else AGENT_COUNT
        self._step_count = round(TRAINING_S / _STEP_S)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that belong to the farm, whether they live or not."""
        return tuple(f"agent-{number}" for number in range(1, self._agent_count + 1))

    @property
    def demanded_agents(self) -> int:
        """How many agents jobs ask for at a time; the others are for those that are tried again."""
        return self._agent_count - 2

    def start(self) -> None:
        (self.home / "logs").mkdir()
        (self.home / "tmp").mkdir()
        self.redis.start()
        self._make_keys()
        self.set_clock("server", wrong_by_s=0.0)
        for name in ("scheduler", "collector", "web"):
            self.start_server(name)
        for name in self.agents:
            self.start_agent(name)

    def start_server(self, name: str) -> None:
        """Start (again) one of the server's programs, or a second one, such as "scheduler-2"."""
        environment = {
            **self._environment("server"),
            "FARM_DATABASE_URL": self.database_url,
            "FARM_HOME": str(self.home),
            "FARM_LEASE_S": str(LEASE_S),
            # Jobs are struck again and again, and each time it is a machine that fails.
            "FARM_MAX_ATTEMPTS": "100",
            "FARM_RETRY_WAIT_S": "0",
            # How long a wide job waits for agents says nothing of how it recovered.
            "FARM_RESERVE_AFTER_S": "1",
            # A trainer that is stopped then is missed by nothing else. Real ones may start cold.
            "FARM_PREPARE_TIMEOUT_S": "60" if self._trains else str(LEASE_S + 2),
            "FARM_START_TIMEOUT_S": "60" if self._trains else str(LEASE_S + 2),
            "FARM_WEB_PORT": str(self.web_port),
            # All of it shares the agents' cores.
            "FARM_NOISE_POLICY": "flag",
            "FARM_SIGNING_KEY_FILE": str(self._key_file),
            **self._with_clock("server"),
        }
        self._spawn(name, ["tests.chaos.server", name.split("-")[0]], environment)

    def start_agent(
        self, name: str, *, agent_id: str | None = None, wire_version: int | None = None
    ) -> None:
        """Start (again) an agent; `agent_id`: another one's, of which it then is a twin."""
        number = self.home_of(name)
        environment = {
            **self._environment(agent_id or name),
            "AGENT_ID": agent_id or name,
            "AGENT_ADVERTISE_ADDRESS": "127.0.0.1",
            "AGENT_INTERFACE": "lo",
            "AGENT_STATE_DIR": str(self.state_dir(name)),
            "AGENT_PORT_RANGE": "{}-{}".format(*self.ports_of(name)),
            "AGENT_CPUS": str(number % (os.cpu_count() or 1)),
            "AGENT_HEARTBEAT_S": str(HEARTBEAT_S),
            "AGENT_PROGRESS_TIMEOUT_S": str(PROGRESS_TIMEOUT_S),
            "FARM_LEASE_S": str(LEASE_S),
            "CHAOS_MACHINE_ID": f"machine of {name}",
            **self._with_clock(name),
        }
        if (agent_id or name) in self.keys:
            environment["AGENT_KEY"] = self.keys[agent_id or name]
        if self._trains:
            environment["CHAOS_TRAINS"] = "1"
            if self._trainers is Trainers.SCRIPT:
                environment["AGENT_SCRIPTS"] = "submitted"
                environment["AGENT_WARM_TRAINERS"] = "false"  # no script is forked from one
                environment[EMBEDDED_MARK] = "campaign"
        else:
            environment["AGENT_TRAINER"] = f"{sys.executable} {REPOSITORY}/tests/fakes/trainer.py"
            environment["AGENT_TRAINER_ENVIRONMENT"] = "FAKE_TRAINER"
            environment["FAKE_TRAINER"] = f"steps_s:{_STEP_S},talk"
        if wire_version is not None:
            environment["CHAOS_WIRE_VERSION"] = str(wire_version)
        self.set_clock(name, wrong_by_s=0.0)
        self._spawn(name, ["tests.chaos.agent"], environment)

    def link(self, name: str) -> Link:
        """Return the way of an agent, or of the "server", to Redis."""
        return self.links[name]

    def state_dir(self, name: str) -> Path:
        return self.home / name

    def clock_file(self, name: str) -> Path:
        return self.home / f"{name}.clock"

    def set_clock(self, name: str, *, wrong_by_s: float) -> None:
        """Make the clock of an agent, or of the "server", wrong from one moment to the next."""
        with self.clock_file(name).open("r+b" if self.clock_file(name).exists() else "wb") as file:
            file.write(struct.pack("<d", wrong_by_s))

    def start_liar(self) -> None:
        """Start the program that has stolen an agent's key; see `tests.attacks.liar`."""
        environment = {
            **self._environment(LIAR),
            "LIAR_BROKER_URL": self.redis.url,  # a link would hold it back
            "LIAR_NAME": LIAR,
            "LIAR_KEY": self.keys[LIAR],
            "PYTHONPATH": str(REPOSITORY),
        }
        self._spawn(LIAR, ["tests.attacks.liar"], environment)

    def home_of(self, name: str) -> int:
        """Return an agent's number; those that do not belong to the farm come after."""
        return self._homes.index(name)

    @property
    def _homes(self) -> tuple[str, ...]:
        return (*self.agents, *(f"{name}-twin" for name in self.agents), "old")

    def ports_of(self, name: str) -> tuple[int, int]:
        first = 26000 + 40 * (len(self._homes) * self._number + self.home_of(name))
        return first, first + 39

    def is_running(self, name: str) -> bool:
        return self.processes[name].poll() is None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal; after SIGKILL the process has been waited for."""
        process = self.processes[name]
        process.send_signal(number)
        if number is signal.SIGKILL:
            process.wait(timeout=10)

    def broker_client_of(self, name: str) -> psutil.Process | None:
        return next(
            (p for p in self._children(name) if "worker_agent.broker.broker_client" in _line(p)),
            None,
        )

    def template_of(self, name: str) -> psutil.Process | None:
        return next((p for p in self._children(name) if _leads_its_group(p, "template")), None)

    def trainers_of(self, name: str) -> list[psutil.Process]:
        """Return an agent's trainers, whoever their parent is now."""
        template = self.template_of(name)
        spared = () if template is None else (template.pid,)
        found = [pid for pid in find_marked(self.state_dir(name)) if pid not in spared]
        return [psutil.Process(pid) for pid in found if psutil.pid_exists(pid)]

    def submit(self, *, world_size: int) -> int:
        """Submit one job of some seconds; return the sweep's id."""
        case: dict[str, object] = {
            "world_size": world_size,
            "global_batch_size": 32,
            "steps": self._step_count,
            "time_limit_s": 120 if self._trains else 30,
        }
        if self._trainers is Trainers.SCRIPT:
            case |= {"script": "train.py", "bundle_sha256": _SCRIPT.sha256, "launcher": "none"}
        else:
            strategy = "mwms_ring" if world_size > 1 else "single"
            case |= {"model": "small_cnn", "dataset": "digits", "strategy": strategy}
        with writing(self.engine) as session:
            if self._trainers is Trainers.SCRIPT:
                add_bundle(session, _SCRIPT, now=dt.datetime.now(dt.UTC))
            planned = plan({"name": "campaign", "case": [case]})
            return submit(session, planned, now=dt.datetime.now(dt.UTC)).sweep_id

    def stop(self) -> None:
        """Stop everything, gently first, and leave no process."""
        for process in reversed(self.processes.values()):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + _STOP_LIMIT_S
        for process in self.processes.values():
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
        self.redis.kill()
        self.links.close()
        self.engine.dispose()

    def _children(self, name: str) -> list[psutil.Process]:
        try:
            return psutil.Process(self.processes[name].pid).children()
        except psutil.NoSuchProcess:
            return []

    def _make_keys(self) -> None:
        farm_key = make_signing_key(self._key_file)
        with writing(self.engine) as session:
            for name in (*self.agents, LIAR):
                number = add_agent_key(session, name, now=dt.datetime.now(dt.UTC)).number
                self.keys[name] = key_text(derive_key(farm_key, name, number))

    def _with_clock(self, name: str) -> dict[str, str]:
        path = f"{Path(__file__).with_name('clock')}:{REPOSITORY}"
        return {"CHAOS_CLOCK_FILE": str(self.clock_file(name)), "PYTHONPATH": path}

    def _environment(self, link: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
        plant = {} if self._plant is None else {"CHAOS_PLANT": self._plant}
        tmp = str(self.home / "tmp")
        return {**kept, **plant, "FARM_BROKER_URL": self.link(link).url, "TMPDIR": tmp}

    def _spawn(self, name: str, module: list[str], environment: dict[str, str]) -> None:
        with (self.home / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@contextmanager
def chaos_farm(
    home: Path,
    server: PostgresServer,
    *,
    plant: str | None = None,
    number: int = 0,
    trainers: Trainers = Trainers.FAKE,
) -> Iterator[ChaosFarm]:
    """Run a farm on a database of its own for the length of a block."""
    with ExitStack() as stack:
        with _MIGRATING:
            url = stack.enter_context(server.database(is_migrated=True))
        farm = ChaosFarm(home, database_url=url, plant=plant, number=number, trainers=trainers)
        try:
            farm.start()
            yield farm
        finally:
            farm.stop()


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _leads_its_group(process: psutil.Process, word: str) -> bool:
    """A template does; of its forks, which look the same, none is a direct child that does."""
    try:
        listens = str(Path(f"/proc/{process.pid}/fd/0").readlink()).startswith("socket:")
        return word in _line(process) and listens and os.getpgid(process.pid) == process.pid
    except OSError:
        return False
