"""A farm that the installer has put on three booted machines: a server and two agents.

Its trainers are the tests' fakes, unless FARM_TEST_TRAINERS is `tensorflow`, which takes minutes
more: all else is what a user has.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.deploy.booted_roots import Machine, network
from tests.e2e.deploy.booted_system import System, find_system
from tests.e2e.deploy.booted_wares import FAKE_AGENT, Release, make_release, trains_for_real
from tests.e2e.live_farm import wait_until
from tests.machine.beside import beside

FAKE_TRAINERS = {
    "AGENT_TRAINER": "/opt/benchfarm/bin/python -B /srv/1/tree/tests/fakes/trainer.py",
    "AGENT_TRAINER_ENVIRONMENT": "FAKE_TRAINER",
    "FAKE_TRAINER": "steps_s:0.02",
}
_SWEEP = """\
name = "booted"
repetitions = {count}

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = 32
steps = {steps}
"""
_AS_AGENT = (
    *("setpriv", "--reuid=benchfarm", "--regid=benchfarm", "--init-groups"),
    *("--inh-caps=+net_admin", "--ambient-caps=+net_admin"),
)
INSTALL_S = 1800.0
WAIT_S = 900.0
# Its column is a state's value; a job that has ended has one of the last three.
_ENDED = ("succeeded", "failed", "cancelled")


class BootedFarm:
    """`lines` has a line for each duration that was seen; `releases` can be installed.

    The machines have them at /srv/1, /srv/2 and so on.
    """

    def __init__(
        self, server: Machine, agents: tuple[Machine, ...], *, system: System, folder: Path
    ) -> None:
        self.server, self.agents = server, agents
        self.lines: list[str] = []
        self.releases: list[Release] = []
        self._system, self._folder = system, folder

    @property
    def machines(self) -> dict[Machine, str]:
        return {self.server: "server", **dict.fromkeys(self.agents, "agent")}

    def tell(self, line: str) -> None:
        self.lines.append(line)
        print(f"booted farm: {line}", flush=True)

    def make_release(self, suffix: str = "") -> Release:
        """Have another version of the project to install; they are numbered from 1."""
        folder = self._folder / str(len(self.releases) + 1)
        self.releases.append(make_release(folder, suffix, system=self._system))
        return self.releases[-1]

    @property
    def installer(self) -> str:
        """The latest release's, on every machine."""
        return f"/srv/{len(self.releases)}/tree/deploy/install.sh"

    def make_cluster(self) -> None:
        """Have a PostgreSQL where nothing of the system's own is kept.

        It is as its package makes it where the environment names no language, so that a database
        is SQL_ASCII unless it is asked to be something else.
        """
        version = max(self.server.do("ls", "/usr/lib/postgresql").split(), key=int)
        self.server.do("pg_createcluster", "--locale=C", version, "main")

    def database_service(self) -> str:
        """Return the unit of its PostgreSQL, which has the version in its name."""
        version, cluster, *_ = self.server.do("pg_lsclusters", "-h").split()
        return f"postgresql@{version}-{cluster}"

    def install(self) -> None:
        """Install the latest release everywhere, as deploy/README.md says it."""
        server = {
            # They share the cores of one host, so that each disturbs the others.
            "FARM_NOISE_POLICY": "flag",
            # All that strikes may strike one job.
            "FARM_MAX_ATTEMPTS": "20",
        }
        self.install_on(self.server, "--address", self.server.address, *_set(server))
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._install_agent, range(len(self.agents))))

    def _install_agent(self, number: int) -> None:
        agent = self.agents[number]
        lines = self.server.do("farm", "agent", "add", agent.name)
        (agent.root / "root/agent.env").write_text(f"{lines}\n")
        (agent.root / "root/agent.env").chmod(0o600)
        (agent.root / "root/packages.txt").write_text(FAKE_AGENT)
        cores = {"AGENT_CPUS": str(number % (os.cpu_count() or 1))}
        settings = cores if trains_for_real() else {**FAKE_TRAINERS, **cores}
        self.install_on(agent, "--settings", "/root/agent.env", *_set(settings))

    def install_on(self, machine: Machine, *options: str) -> None:
        """Install or upgrade a machine by the script and from the wheels of the latest release."""
        started = time.monotonic()
        role = self.machines[machine]
        if role == "agent" and not trains_for_real():
            options = ("--requirements", "/root/packages.txt", *options)
        release = len(self.releases)
        wheels = ("--wheels", f"/srv/{release}/wheels")
        output = machine.do("bash", self.installer, role, *wheels, *options, limit_s=INSTALL_S)
        self.tell(
            f"release {release} on {machine.name}: installed in {time.monotonic() - started:.0f} s"
        )
        print(output)

    def submit(self, count: int, *, steps: int) -> None:
        sweep = self.server.root / "var/lib/benchfarm/sweep.toml"
        sweep.write_text(_SWEEP.format(count=count, steps=steps))
        # Where the server is just being upgraded, the next look submits.
        self.server.tried("farm", "submit", "/var/lib/benchfarm/sweep.toml")

    def query(self, statement: str) -> list[str]:
        """Return the rows that the server's PostgreSQL has for a query; none while it is away."""
        as_farm = ("setpriv", "--reuid=benchfarm", "--regid=benchfarm", "--init-groups")
        output = self.server.run(*as_farm, "psql", "-qAt", "benchfarm", "-c", statement)
        return output.splitlines()

    def counts(self) -> Counter[str] | None:
        """Return how many jobs are in each state; None while the store is away."""
        rows = self.query("SELECT state, count(*) FROM jobs GROUP BY state UNION SELECT '', 1")
        found = {state.lower(): int(count) for state, count in (row.split("|") for row in rows)}
        return Counter({state: n for state, n in found.items() if state}) if found else None

    def ended_count(self) -> int:
        counts = self.counts()
        assert counts is not None
        return sum(counts[state] for state in _ENDED)

    def keep_running(self) -> None:
        """Wait for a running job, and have more of them wait than end meanwhile."""

        def is_running() -> bool:
            counts = self.counts()
            if counts is None:
                return False
            if counts["waiting"] < 2:
                self.submit(4, steps=300)
            return counts["running"] > 0

        wait_until(is_running, "a job runs", within_s=WAIT_S, every_s=0.5)

    @contextmanager
    def kept_busy(self) -> Iterator[None]:
        """For the length of a block have a job wait whenever one begins, however long that is."""

        def top_up(is_over: threading.Event) -> None:
            while not is_over.wait(2.0):
                counts = self.counts()
                if counts is not None and counts["waiting"] < 2:
                    self.submit(2, steps=600)

        self.keep_running()
        with beside(top_up):
            yield

    def running_through(self, service: str) -> int:
        """Return how many attempts had begun before the server's service did, and went on after."""
        since = self.server.do(
            *("systemctl", "show", "--property=ActiveEnterTimestamp", "--value"),
            *("--timestamp=unix", service),
        )
        instant = f"to_timestamp({since.removeprefix('@')})"
        rows = self.query(
            f"SELECT count(*) FROM attempts WHERE leased_at < {instant} "
            f"AND (ended_at IS NULL OR ended_at > {instant})"
        )
        return int(rows[0])

    def wait_for_the_end(self) -> None:
        wait_until(
            lambda: (counts := self.counts()) is not None and set(counts) <= set(_ENDED),
            "every job has ended",
            within_s=2 * WAIT_S,
            every_s=1.0,
        )

    @contextmanager
    def shaped(self, agent: Machine) -> Iterator[None]:
        """Have an agent's interface shaped as that agent does it, whatever the kernel lacks.

        An idle agent undoes at once what nobody has asked for, so that it may be gone by itself.
        """
        peer = next(machine for machine in self.machines if machine is not agent)
        shape = (*_AS_AGENT, "/opt/benchfarm/bin/python", "-B", "-m", "tests.fakes.shaper")
        with agent.started(
            *("env", f"PYTHONPATH=/srv/{len(self.releases)}/tree", *shape),
            *("/var/lib/benchfarm-agent", "host0", peer.address, str(WAIT_S)),
        ) as shaper:
            assert shaper.stdout is not None
            assert shaper.stdout.readline() == "shaped\n"
            yield

    def strike(self, machine: Machine, service: str) -> None:
        """Kill all of a service in the middle of a job, and wait until it is back by itself."""
        self.keep_running()
        former = pid_of(machine, service)
        started = time.monotonic()
        machine.do("systemctl", "kill", "--signal=KILL", service)
        wait_until(
            lambda: is_back(machine, service, former=former),
            f"{service} on {machine.name} is back",
            within_s=WAIT_S,
            every_s=0.2,
        )
        self.tell(f"{service} on {machine.name}: back {time.monotonic() - started:.1f} s after")


def pid_of(machine: Machine, service: str) -> str:
    return machine.run("systemctl", "show", "--property=MainPID", "--value", service)


def is_back(machine: Machine, service: str, *, former: str) -> bool:
    is_active = machine.run("systemctl", "is-active", service) == "active"
    return is_active and pid_of(machine, service) not in (former, "0", "")


def _set(settings: dict[str, str]) -> list[str]:
    return [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]


@contextmanager
def booted_farm(folder: Path) -> Iterator[BootedFarm]:
    """Machines with nothing on them yet."""
    system = find_system()
    releases = folder / "releases"
    releases.mkdir()
    with ExitStack() as stack:
        wire = stack.enter_context(network(f"bfr{os.getpid()}"))
        machines = []
        for number, name in enumerate(("bfr-server", "bfr-agent-1", "bfr-agent-2"), start=1):
            machine = Machine(
                name,
                system=system,
                folder=folder,
                network=wire,
                address=f"10.78.0.{number}",
                binds=[f"{releases}:/srv"],
            )
            stack.callback(machine.throw_away)
            machine.mount()
            machines.append(machine)
        farm = BootedFarm(machines[0], tuple(machines[1:]), system=system, folder=releases)
        for machine in machines:
            farm.tell(f"{machine.name}: booted in {machine.boot():.1f} s")
        if system.is_own:
            farm.make_cluster()
        yield farm
