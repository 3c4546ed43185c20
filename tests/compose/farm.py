"""The compose file's farm, brought up in the order that its services ask for."""

from __future__ import annotations

import json
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.compose.images import ROOT
from tests.compose.podman import Podman

PROJECT = "benchfarm-test"
ENDING = ("migrate", "keys")
SERVERS = ("scheduler", "collector", "web")
# As long as a machine takes that is busy with other things.
_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class ComposeFarm:
    """One project. Its volumes outlive `down`, as an operator's do."""

    podman: Podman
    settings: Path
    passwords: tuple[str, ...] = field(repr=False)

    def up(self, *, agents: int) -> None:
        """Start what is not running, each service when those that it waits for are healthy.

        Podman-compose does that by itself with a podman of 4.6 or newer; Debian 12 has 4.3.
        """
        self._start("redis", "postgres")
        self._await_health("redis", "postgres")
        for service in ENDING:
            self._start(service)
            until(partial(self._has_succeeded, service), what=partial(self.logs, service))
        self._start(*SERVERS)
        self._start("agent", "--scale", f"agent={agents}")
        self._await_health(*SERVERS, "agent")

    def down(self) -> None:
        """Remove the containers and the network, and no volume."""
        self._compose("down")

    def containers(self, service: str) -> list[str]:
        """Return the names of a service's containers, those that have ended as well."""
        found = self.podman.run(
            *("ps", "--all", "--format", "{{.Names}}"),
            *("--filter", f"label=com.docker.compose.project={PROJECT}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
        )
        return found.split()

    def farm(self, *words: str, stdin: str | None = None, limit_s: float = _LIMIT_S) -> str:
        """Return what `farm WORDS` prints in the web server's container."""
        [web] = self.containers("web")
        return self.podman.run("exec", "-i", web, "farm", *words, stdin=stdin, limit_s=limit_s)

    def json(self, *words: str) -> Any:
        """Return what `farm WORDS --json` prints there."""
        return json.loads(self.farm(*words, "--json"))

    def logs(self, service: str) -> str:
        """Return the end of what a service has logged."""
        return "".join(
            self.podman.run("logs", "--tail", "30", container)
            for container in self.containers(service)
        )

    def live_agents(self) -> list[str]:
        """Return the names of the agents whose heartbeats arrive."""
        return sorted(row["id"] for row in self.json("agents") if row["is_alive"])

    def _start(self, *words: str) -> None:
        self._compose("up", "--detach", "--no-build", "--no-deps", *words)

    def _compose(self, *words: str) -> None:
        self.podman.call(
            *(sys.executable, "-m", "podman_compose", "--project-name", PROJECT),
            *("--env-file", str(self.settings), "--file", str(ROOT / "docker-compose.yml")),
            *words,
            limit_s=_LIMIT_S,
        )

    def _has_succeeded(self, service: str) -> bool:
        [container] = self.containers(service)
        state = "{{.State.Status}} {{.State.ExitCode}}"
        return self.podman.run("inspect", "--format", state, container).strip() == "exited 0"

    def _await_health(self, *services: str) -> None:
        """Run the checks that the files describe; without systemd podman itself runs none."""
        for service in services:
            for container in self.containers(service):
                until(
                    partial(self.podman.succeeds, "healthcheck", "run", container),
                    what=partial(self.logs, service),
                )


def until(is_so: Callable[[], bool], *, what: Callable[[], str]) -> None:
    """Wait for a condition. Raises AssertionError with `what` when it has taken too long."""
    deadline = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, what()
        time.sleep(1)


def new_farm(podman: Podman) -> ComposeFarm:
    """Return a farm with settings of its own, not yet up."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "FARM_API_TOKEN")
    passwords = tuple(secrets.token_hex(16) for _ in names)
    settings = podman.folder / "compose.env"
    lines = [f"{name}={value}" for name, value in zip(names, passwords, strict=True)]
    # The other values are those of the example.
    example = (ROOT / "deploy" / "env" / "compose.env.example").read_text().splitlines()
    others = [line for line in example if "=" in line and not line.startswith((*names, "#"))]
    others = [line for line in others if not line.startswith("DASHBOARD_PORT")]
    settings.write_text("\n".join([*lines, *others, f"DASHBOARD_PORT={port}"]) + "\n")
    return ComposeFarm(podman, settings, passwords)
