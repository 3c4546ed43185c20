"""A farm that the installer has put on machines that have a systemd of their own each.

One story, in the order of its tests. It takes many minutes and a root that debootstrap makes, so it
is not for every day: `make roots`, as root. `make roots-brief`, which CI runs, lays the machines
over the system that it runs on, and leaves out what is marked as thorough.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.e2e.deploy.booted_farm import WAIT_S, BootedFarm, booted_farm, is_back, pid_of
from tests.e2e.deploy.booted_roots import Machine, missing_programs
from tests.e2e.live_farm import wait_until

OBSTACLE = missing_programs()
pytestmark = [
    pytest.mark.booted,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(OBSTACLE is not None, reason=f"no root can be booted: {OBSTACLE}"),
]
SERVICES = ("farm-scheduler", "farm-collector", "farm-web", "redis-server")
WATCHDOG_S = 20
# What the farm has on a machine beside its packages of Debian and its database.
PLACES = (
    *("/opt/benchfarm", "/opt/benchfarm-releases", "/etc/benchfarm", "/usr/local/bin/farm"),
    *("/var/lib/benchfarm", "/var/lib/benchfarm-agent", "/var/lib/benchfarm-data"),
    *("/var/log/benchfarm", "/var/log/benchfarm-agent", "/etc/redis/benchfarm.conf"),
    *("/etc/redis/benchfarm.pem", "/etc/redis/benchfarm.key", "/var/lib/redis/benchfarm.acl"),
    *("/var/lib/redis/benchfarm", "/etc/systemd/system/redis-server.service.d"),
    "/etc/systemd/system/postgresql@.service.d",
)
KEPT = {
    "server": ("/etc/benchfarm/server.env", "/var/lib/benchfarm/signing.key"),
    "agent": ("/etc/benchfarm/agent.env", "/var/lib/benchfarm-agent"),
}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedFarm]:
    with booted_farm(tmp_path_factory.mktemp("roots")) as farm:
        farm.make_release()
        farm.install()
        yield farm


def test_each_service_says_itself_that_it_is_up_and_is_held_in(farm: BootedFarm) -> None:
    for machine, role in farm.machines.items():
        for unit in UNITS[role]:
            state = machine.do("systemctl", "show", "-p", "Type,ActiveState", unit)
            assert set(state.splitlines()) == {"Type=notify", "ActiveState=active"}
            machine.do("systemd-analyze", "security", f"--threshold={EXPOSURES[role]}", unit)


UNITS = {"server": ("farm-scheduler", "farm-collector", "farm-web"), "agent": ("farm-agent",)}
EXPOSURES = {"server": 25, "agent": 40}  # tenths, of 10


def test_what_goes_between_the_machines_is_encrypted_and_for_few_to_read(farm: BootedFarm) -> None:
    url = farm.agents[0].run("grep", "^FARM_BROKER_URL=", "/etc/benchfarm/agent.env")
    assert url.startswith("FARM_BROKER_URL=rediss://agent.bfr-agent-1:")
    assert url.endswith(f"@{farm.server.address}:6379/0?ssl_ca_certs=/etc/benchfarm/authority.pem")
    modes = farm.server.do("stat", "-c", "%a %U:%G %n", *TIGHT).splitlines()
    assert [mode.split()[:2] for mode in modes] == list(map(list, TIGHT.values()))
    listening = farm.server.do("ss", "-Hltn", "src", farm.server.address)
    assert [line.split()[3] for line in listening.splitlines()] == [f"{farm.server.address}:6379"]


TIGHT = {
    "/etc/benchfarm/server.env": ("600", "root:root"),
    "/etc/benchfarm/authority.key": ("600", "root:root"),
    "/etc/benchfarm/authority.pem": ("644", "root:root"),
    "/etc/redis/benchfarm.key": ("640", "root:redis"),
    "/var/lib/redis/benchfarm.acl": ("640", "redis:redis"),  # Redis writes it anew
    "/var/lib/benchfarm/signing.key": ("600", "benchfarm:benchfarm"),
}


def test_it_survives_a_kill_of_each_service_in_the_middle_of_a_sweep(farm: BootedFarm) -> None:
    for service in (*SERVICES, farm.database_service()):
        farm.strike(farm.server, service)
    for agent in farm.agents:
        farm.strike(agent, "farm-agent")
    farm.keep_running()


@pytest.mark.thorough
def test_it_survives_a_reboot_of_an_agents_machine(farm: BootedFarm) -> None:
    farm.keep_running()
    agent = farm.agents[0]
    farm.tell(f"{agent.name}: up again {agent.reboot():.1f} s after `systemctl reboot`")
    assert agent.run("systemctl", "is-active", "farm-agent") == "active"
    farm.keep_running()


@pytest.mark.thorough
def test_it_survives_an_upgrade_in_the_middle_of_a_sweep(farm: BootedFarm) -> None:
    upgraded = farm.make_release("+next")
    for machine in farm.machines:
        ended = farm.ended_count()
        with farm.kept_busy():
            farm.install_on(machine)
            if machine is farm.server:
                spanning = farm.running_through("farm-scheduler")
                farm.tell(f"attempts that ran on through the server's upgrade: {spanning}")
        farm.keep_running()
        # Of a quick one the only trace may be a job that was lost and is tried again.
        wait_until(
            partial(more_have_ended, farm, ended),
            "a job has ended since",
            within_s=WAIT_S,
            every_s=0.5,
        )
    # The last one says so with its first heartbeat.
    wait_until(
        lambda: farm.query(VERSIONS) == [upgraded.version],
        "every agent is of the new version",
        within_s=WAIT_S,
        every_s=0.5,
    )
    for machine in farm.machines:
        assert len(machine.do("ls", "/opt/benchfarm-releases").split()) == 2
        program = machine.do(
            "/opt/benchfarm/bin/python", "-c", "import farm; print(farm.__version__)"
        )
        assert program == upgraded.version


def more_have_ended(farm: BootedFarm, before: int) -> bool:
    return farm.ended_count() > before


def test_each_job_has_one_outcome_and_all_succeeded(farm: BootedFarm) -> None:
    farm.wait_for_the_end()
    counts = farm.counts()
    farm.tell(f"jobs: {counts}; attempts: {farm.query(ATTEMPTS)}")
    assert counts is not None
    assert set(counts) == {"succeeded"}
    assert farm.query(NOT_MEASURED_ONCE) == []


VERSIONS = "SELECT DISTINCT facts->'hardware'->>'benchfarm_version' FROM agents"
ATTEMPTS = "SELECT state, count(*) FROM attempts GROUP BY state"
NOT_MEASURED_ONCE = """
SELECT jobs.id FROM jobs
LEFT JOIN attempts ON attempts.job_id = jobs.id AND lower(attempts.state) = 'succeeded'
LEFT JOIN measurements ON measurements.job_id = jobs.id
GROUP BY jobs.id
HAVING count(DISTINCT attempts.id) <> 1 OR count(DISTINCT measurements.attempt_id) <> 1
"""


@pytest.mark.thorough
def test_a_scheduler_that_hangs_is_started_anew_by_its_watchdog(farm: BootedFarm) -> None:
    service = "farm-scheduler"
    folder = farm.server.root / f"etc/systemd/system/{service}.service.d"
    folder.mkdir(exist_ok=True)
    (folder / "short.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_S}\n")
    farm.server.do("systemctl", "daemon-reload")
    farm.server.do("systemctl", "restart", service)
    former = pid_of(farm.server, service)
    started = time.monotonic()
    farm.server.do("systemctl", "kill", "--kill-who=main", "--signal=STOP", service)
    wait_until(
        lambda: is_back(farm.server, service, former=former),
        "the scheduler turns again",
        within_s=600,
        every_s=0.5,
    )
    farm.tell(f"{service}, stopped: anew {time.monotonic() - started:.0f} s after")
    assert "Watchdog timeout" in farm.server.do("journalctl", "--no-pager", "-u", service)
    farm.submit(1, steps=50)
    farm.wait_for_the_end()


def test_what_is_stopped_leaves_nothing_that_runs(farm: BootedFarm) -> None:
    farm.keep_running()
    for agent in farm.agents:
        with farm.shaped(agent):
            agent.do("systemctl", "stop", "farm-agent")
            assert "noqueue" in agent.run("tc", "qdisc", "show", "dev", "host0")
        wait_until(partial(nothing_runs, agent), "nothing runs")
        assert agent.run("nft", "list", "ruleset") == ""


def nothing_runs(machine: Machine) -> bool:
    return processes_of_the_farm(machine) == []


def processes_of_the_farm(machine: Machine) -> list[str]:
    return machine.run("ps", "-u", "benchfarm,benchfarm-trainer", "-o", "pid=,args=").splitlines()


def test_a_removal_keeps_data_and_a_purge_leaves_nothing(farm: BootedFarm) -> None:
    for machine, role in farm.machines.items():
        installer = ("bash", farm.installer, "remove", role)
        machine.do(*installer)
        assert processes_of_the_farm(machine) == []
        machine.do("ls", *KEPT[role])
        machine.do(*installer, "--purge")
        assert machine.run("find", *PLACES, "-maxdepth", "0") == ""
        assert machine.run("find", "/etc/systemd/system", "-name", "farm-*") == ""
        assert machine.run("getent", "passwd", "benchfarm", "benchfarm-trainer") == ""
        assert machine.run("systemctl", "list-units", "--all", "--no-legend", "farm-*") == ""
    assert farm.server.run("grep", "-c", "benchfarm", "/etc/redis/redis.conf") == "0"
    wait_until(
        lambda: farm.server.run("redis-cli", "ping") == "PONG",
        "Redis is as its package has it",
        every_s=0.5,
    )
    tables = farm.server.do("runuser", "-u", "postgres", "--", "psql", "-qAtl")
    assert "benchfarm" in tables  # the database stays
