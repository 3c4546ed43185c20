"""A farm that is installed by hand on booted machines, by the lines of the documents alone.

It is thorough, so that `make roots` has it and CI does not. The server's packages are real, as are
its PostgreSQL and its Redis; an agent's are fewer where its trainers are fake.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.e2e.deploy.booted_farm import FAKE_TRAINERS, WAIT_S, BootedFarm, booted_farm
from tests.e2e.deploy.booted_roots import Machine, missing_programs
from tests.e2e.deploy.booted_wares import FAKE_AGENT, trains_for_real
from tests.e2e.documents.documents import DOCS, ROOT, block_with
from tests.e2e.live_farm import wait_until

OBSTACLE = missing_programs()
pytestmark = [
    pytest.mark.booted,
    pytest.mark.thorough,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(OBSTACLE is not None, reason=f"no root can be booted: {OBSTACLE}"),
]
DEPLOY = ROOT / "deploy/README.md"
OPERATIONS = DOCS / "operations.md"
PIP = "/opt/benchfarm/bin/pip install"
# There is no sudo, and no terminal at which a password could be typed.
SUDO = """sudo() {
    shift 2
    printf 'PASSWORD\\nPASSWORD\\n' | setpriv --reuid=postgres --regid=postgres --init-groups "$@"
}"""
SHARED = """
requirepass CHANGE-ME
bind 127.0.0.1 {address}
appendonly yes
maxmemory-policy noeviction
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedFarm]:
    with booted_farm(tmp_path_factory.mktemp("hands")) as farm:
        farm.make_release()
        for machine in farm.machines:
            machine.do("cp", "-r", "/srv/1/tree", "/root/tree")
        yield farm


def type_on(machine: Machine, lines: Sequence[str], *, folder: str = "/root/tree") -> str:
    """Run lines as one shell of root's does that ends at the first that fails."""
    index = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/srv/1/wheels", "PATH=/opt/benchfarm/bin:$PATH")
    script = [f"export {' '.join(index)}", f"cd {folder}", *lines]
    return machine.do("bash", "-xeo", "pipefail", "-c", "\n".join(script), limit_s=900)


def after(lines: Sequence[str], beginning: str, *more: str) -> list[str]:
    """The lines, with more behind the one with this beginning."""
    [place] = [n for n, line in enumerate(lines) if line.startswith(beginning)]
    return [*lines[: place + 1], *more, *lines[place + 1 :]]


def edited(file: str, settings: dict[str, str]) -> list[str]:
    """What somebody does who is told to edit a file of settings."""
    return [
        line
        for name, value in settings.items()
        for line in (
            f"sed -i '/^{name}=/d' {file}",
            f"echo {shlex.quote(f'{name}={value}')} >>{file}",
        )
    ]


def test_a_server_is_installed_as_the_documents_say(farm: BootedFarm) -> None:
    server = farm.server
    server.do("systemctl", "start", "postgresql")
    with (server.root / "etc/redis/redis.conf").open("a") as settings:
        settings.write(SHARED.format(address=server.address))
    server.do("systemctl", "restart", "redis-server")
    first = block_with(DEPLOY, "python3 -m venv")
    lines = block_with(DEPLOY, f"{PIP} '.[server,ml]'")
    pinned = [line.replace("-agent", "-server") for line in block_with(DEPLOY, f"{PIP} --require")]
    database = [line.replace("HOST", "127.0.0.1") for line in block_with(OPERATIONS, "sudo -u")]
    own = {
        "FARM_DATABASE_URL": "postgresql://benchfarm:PASSWORD@127.0.0.1/benchfarm",
        "FARM_BROKER_URL": f"redis://:CHANGE-ME@{server.address}:6379/0",
        "FARM_PLAINTEXT": "broker",
        "FARM_API_TOKEN": "CHANGE-ME",
    }
    there = edited("/etc/benchfarm/server.env", own)
    lines = after(lines, "install -m 0600", *there)
    lines = after(lines, PIP, *pinned, SUDO, *database)
    output = type_on(server, [*first, *lines])
    (farm.agents[0].root / "root/printed.env").write_text(output)
    for unit in ("farm-scheduler", "farm-collector", "farm-web", "farm-prune.timer"):
        assert server.run("systemctl", "is-active", unit) == "active"


def test_an_agent_is_installed_as_the_documents_say(farm: BootedFarm) -> None:
    agent = farm.agents[0]
    printed = (agent.root / "root/printed.env").read_text().splitlines()
    own = dict(line.split("=", 1) for line in printed if line.startswith("AGENT_"))
    own |= {
        "FARM_BROKER_URL": f"redis://:CHANGE-ME@{farm.server.address}:6379/0",
        "FARM_PLAINTEXT": "broker",
    }
    lines = block_with(DEPLOY, f"{PIP} '.[agent]'")
    if not trains_for_real():
        (agent.root / "root/packages.txt").write_text(FAKE_AGENT)
        place = lines.index(f"{PIP} '.[agent]'")
        lines[place : place + 1] = [f"{PIP} -r /root/packages.txt", f"{PIP} --no-deps ."]
        own |= FAKE_TRAINERS
    there = edited("/etc/benchfarm/agent.env", own)
    first = block_with(DEPLOY, "python3 -m venv")
    type_on(agent, [*first, *after(lines, "install -m 0600", *there)])
    wait_until(lambda: is_alive(farm), "the agent is alive", within_s=WAIT_S, every_s=1.0)


def is_alive(farm: BootedFarm) -> bool:
    return [row["id"] for row in farm_json(farm.server, "agents") if row["is_alive"]] == ["vm-1"]


def farm_json(server: Machine, *words: str) -> Any:
    """What the farm's command prints as JSON, with the server's settings."""
    settings = "--property=EnvironmentFile=/etc/benchfarm/server.env"
    command = ("systemd-run", "--quiet", "--wait", "--pipe", "--uid=benchfarm", settings)
    return json.loads(server.do(*command, "/opt/benchfarm/bin/farm", *words, "--json"))


def test_postgresqls_own_means_back_it_up_as_the_documents_say(farm: BootedFarm) -> None:
    lines = block_with(OPERATIONS, "pg_dump")
    script = "\n".join(["cd ~postgres", "umask 077", "mkdir -p dump", "cd dump", *lines])
    as_postgres = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")
    farm.server.do(*as_postgres, "bash", "-xec", script)
    ask = ("psql", "-qAt", "benchfarm_new", "-c", "SELECT id FROM agents")
    assert farm.server.do(*as_postgres, *ask) == "vm-1"
