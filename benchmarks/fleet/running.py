"""Starts processes of simulated agents, and collects the figures that they report."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import root
from benchmarks.fleet.server import FleetServer
from farm.errors import FarmError

_MOST_PROCESSES = 4


@dataclass(slots=True)
class FleetProcesses:
    """Simulated agents in some processes. `lines`: what they told, each with its process."""

    processes: list[subprocess.Popen[str]]
    lines: list[dict[str, Any]]

    def between(self, since_s: float, until_s: float) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if since_s <= line["at_s"] <= until_s]

    def all_of(self, name: str, since_s: float, until_s: float) -> list[Any]:
        """Return a list that each line has a part of, whole and in order."""
        return [item for line in self.between(since_s, until_s) for item in line[name]]

    def check(self) -> None:
        """Raises FarmError: one of the processes has ended."""
        ended = [process for process in self.processes if process.poll() is not None]
        if ended:
            with_status = ", ".join(str(process.returncode) for process in ended)
            raise FarmError(f"simulated agents ended by themselves, with status {with_status}")


@contextmanager
def running_fleet(
    server: FleetServer,
    *,
    count: int,
    roles: dict[str, int],
    first: int = 0,
    process_count: int = _MOST_PROCESSES,
) -> Iterator[FleetProcesses]:
    """Run `count` agents, numbered from `first`; `roles`: how many have another one than `bulk`."""
    process_count = max(1, min(process_count, count // 50))
    shares = [count // process_count + (i < count % process_count) for i in range(process_count)]
    fleet = FleetProcesses([], [])
    threads = []
    with ExitStack() as stack:
        for number, share in enumerate(shares):
            command = [sys.executable, "-P", "-m", "benchmarks.fleet"]
            command += ["--broker-url", server.broker_url]
            command += ["--first", str(first), "--count", str(share)]
            command += ["--lease-s", server.environ["FARM_LEASE_S"]]
            for role, wanted in roles.items():
                part = wanted // process_count + (number < wanted % process_count)
                command += ["--role", f"{role}:{part}"]
            # Another fleet of the same server has others.
            file = server.folder / f"agents-from-{first}.log"
            first += share
            log = stack.enter_context(file.open("wb"))
            process = subprocess.Popen(
                command,
                env=server.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=root(),
                text=True,
            )
            fleet.processes.append(process)
            thread = threading.Thread(target=_listen, args=(process, number, fleet.lines))
            thread.start()
            threads.append(thread)
        try:
            yield fleet
            fleet.check()
        finally:
            for process in fleet.processes:
                assert process.stdin is not None
                process.stdin.close()
            for process in fleet.processes:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for thread in threads:
                thread.join()
            for process in fleet.processes:
                assert process.stdout is not None
                process.stdout.close()


def _listen(process: subprocess.Popen[str], number: int, lines: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for text in process.stdout:
        lines.append({"process": number, **json.loads(text)})
