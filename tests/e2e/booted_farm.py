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
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.booted_roots import Machine, network
from tests.e2e.booted_wares import Release, base_root, releases
from tests.e2e.live_farm import wait_until

# What an agent needs beside its trainers, which are fake.
_AGENT_PACKAGES = """\
celery[redis]>=5.7,<5.8
click>=8.1,<9
numpy>=2,<3
psutil>=7,<8
pyroute2>=0.9.7,<0.10
rich>=14,<16
"""
_FAKE = {
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
INSTALL_S = 1800.0
WAIT_S = 900.0
# Its column is a state's value; a job that has ended has one of the last three.
_ENDED = ("succeeded", "failed", "cancelled")


class BootedFarm:
    """`told` has a line for each duration that was seen."""

    def __init__(self, server: Machine, agents: tuple[Machine, Machine]) -> None:
        self.server, self.agents = server, agents
        self.told: list[str] = []

    @property
    def machines(self) -> dict[Machine, str]:
        return {self.server: "server", **dict.fromkeys(self.agents, "agent")}

    def tell(self, line: str) -> None:
        self.told.append(line)
        print(f"booted farm: {line}", flush=True)

    def install(self) -> None:
        """Install everything, as deploy/README.md says it."""
        server = {
            # They share the cores of one host, so that each disturbs the others.
            "FARM_NOISE_POLICY": "flag",
            # All that strikes may strike one job.
            "FARM_MAX_ATTEMPTS": "20",
        }
        self.install_on(self.server, 1, "--address", self.server.address, *_set(server))
        for number, agent in enumerate(self.agents):
            lines = self.server.do("farm", "agent", "add", agent.name)
            (agent.root / "root/agent.env").write_text(f"{lines}\n")
            (agent.root / "root/agent.env").chmod(0o600)
            (agent.root / "root/packages.txt").write_text(_AGENT_PACKAGES)
            cores = {"AGENT_CPUS": str(number % (os.cpu_count() or 1))}
            settings = cores if trains_for_real() else {**_FAKE, **cores}
            self.install_on(agent, 1, "--settings", "/root/agent.env", *_set(settings))

    def install_on(self, machine: Machine, release: int, *options: str) -> None:
        """Install or upgrade a machine by the script and from the wheels of a release."""
        started = time.monotonic()
        role = self.machines[machine]
        if role == "agent" and not trains_for_real():
            options = ("--requirements", "/root/packages.txt", *options)
        installer = ("bash", f"/srv/{release}/tree/deploy/install.sh")
        wheels = ("--wheels", f"/srv/{release}/wheels")
        said = machine.do(*installer, role, *wheels, *options, limit_s=INSTALL_S)
        self.tell(
            f"release {release} on {machine.name}: installed in {time.monotonic() - started:.0f} s"
        )
        print(said)

    def submit(self, count: int, *, steps: int) -> None:
        sweep = self.server.root / "var/lib/benchfarm/sweep.toml"
        sweep.write_text(_SWEEP.format(count=count, steps=steps))
        # Where the server is just being upgraded, the next look submits.
        self.server.tried("farm", "submit", "/var/lib/benchfarm/sweep.toml")

    def asked(self, query: str) -> list[str]:
        """Return the rows that the server's PostgreSQL has for a query; none while it is away."""
        as_farm = ("setpriv", "--reuid=benchfarm", "--regid=benchfarm", "--init-groups")
        said = self.server.run(*as_farm, "psql", "-qAt", "benchfarm", "-c", query)
        return said.splitlines()

    def counts(self) -> Counter[str] | None:
        """Return how many jobs are in each state; None while the store is away."""
        rows = self.asked("SELECT state, count(*) FROM jobs GROUP BY state UNION SELECT '', 1")
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
        is_over = threading.Event()

        def top_up() -> None:
            while not is_over.wait(2.0):
                counts = self.counts()
                if counts is not None and counts["waiting"] < 2:
                    self.submit(2, steps=600)

        self.keep_running()
        thread = threading.Thread(target=top_up)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def running_through(self, service: str) -> int:
        """Return how many attempts had begun before the server's service did, and went on after."""
        since = self.server.do(
            *("systemctl", "show", "--property=ActiveEnterTimestamp", "--value"),
            *("--timestamp=unix", service),
        )
        instant = f"to_timestamp({since.removeprefix('@')})"
        rows = self.asked(
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


def trains_for_real() -> bool:
    return os.environ.get("FARM_TEST_TRAINERS") == "tensorflow"


def pid_of(machine: Machine, service: str) -> str:
    return machine.run("systemctl", "show", "--property=MainPID", "--value", service)


def is_back(machine: Machine, service: str, *, former: str) -> bool:
    is_active = machine.run("systemctl", "is-active", service) == "active"
    return is_active and pid_of(machine, service) not in (former, "0", "")


def _set(settings: dict[str, str]) -> list[str]:
    return [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]


@contextmanager
def booted_farm(folder: Path) -> Iterator[tuple[BootedFarm, tuple[Release, ...]]]:
    """Three machines with nothing on them yet, and two releases, at /srv/1 and /srv/2 there."""
    base, made = base_root(), tuple(releases(folder, "", "+next"))
    binds = [f"{release.tree.parent}:/srv/{n}" for n, release in enumerate(made, start=1)]
    with ExitStack() as stack:
        wire = stack.enter_context(network(f"bfr{os.getpid()}"))
        machines = []
        for number, name in enumerate(("bfr-server", "bfr-one", "bfr-two"), start=1):
            address = f"10.78.0.{number}"
            machine = Machine(
                name, base=base, folder=folder, network=wire, address=address, binds=binds
            )
            stack.callback(machine.throw_away)
            machine.mount()
            machines.append(machine)
        farm = BootedFarm(machines[0], (machines[1], machines[2]))
        for machine in machines:
            farm.tell(f"{machine.name}: booted in {machine.boot():.1f} s")
        yield farm, made
