"""`farm up` as a user runs it: everything comes up, and whatever ends it, nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.broker.health_records import find_idle_reason
from farm.embedded.farm import end_marked, find_marked
from farm.embedded.home import read_endpoints
from farm.embedded.redis import free_port
from farm.store.engine import make_engine, reading
from farm.store.tables import AgentRow

_ROOT = Path(__file__).parents[3]
_DEADLINE_S = 240.0
# Redis, scheduler, collector, one agent with what it starts itself, and the web server's two.
_FEWEST_PROCESSES = 6


class Up:
    """A `farm up` of one agent in a folder of its own."""

    def __init__(self, home: Path, *, web_port: int | None = None) -> None:
        self.home = home
        self.output = home.with_name("output")
        self.settings = {"FARM_WEB_PORT": str(web_port or free_port())}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with self.output.open("wb") as output:
            process = subprocess.Popen(
                self._command("up", "--agents", "1"),
                env=self._environ(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Leave nothing of it, whatever has failed."""
        for process in self._started:
            process.kill()
            process.wait()
        end_marked(str(self.home), grace_s=0)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments),
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )

    def processes(self) -> list[int]:
        return find_marked(str(self.home))

    def schedulers(self) -> list[int]:
        """Return those that have become schedulers.

        Their launcher has the same words at its end, and becomes one by replacing itself: at that
        moment it has neither a command line nor an environment by which it could be found.
        """
        wanted = "\0".join((sys.executable, "-P", "-m", "farm.cli.main", "run", "scheduler", ""))
        return [p for p in self.processes() if _command_line(p) == wanted.encode()]

    def output_text(self) -> str:
        return self.output.read_text()

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {what}\n{self.output_text()}"
            time.sleep(0.05)

    def wait_until_up(self) -> str:
        """Return the dashboard's address."""
        self.wait_until(lambda: "Dashboard: " in self.output_text(), "the dashboard's address")
        return self.output_text().partition("Dashboard: ")[2].split()[0]

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "farm.cli.main", *arguments]

    def _environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FARM_", "AGENT_"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, [kept.get("PYTHONPATH"), str(_ROOT)])),
            "FARM_HOME": str(self.home),
            "AGENT_WARM_TRAINERS": "false",  # nothing is trained here
            **self.settings,
        }


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path / "home")
    yield up
    up.end()


def _command_line(pid: int) -> bytes:
    """Return a process' words, each with a zero byte after it; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_listening(url: str) -> bool:
    host, _, port = url.rpartition("/")[0].removeprefix("http://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _started_at_s(pid: int) -> float:
    """Return the Unix time at which a process was started, to hundredths of a second."""
    booted_at_s = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return booted_at_s + int(ticks) / os.sysconf("SC_CLK_TCK") + 0.02  # both are rounded down


def test_the_farm_comes_up_serves_commands_and_ends_at_ctrl_c(up: Up) -> None:
    process = up.start()
    dashboard = up.wait_until_up()
    with urllib.request.urlopen(f"{dashboard}health/live", timeout=60) as answer:
        assert answer.status == 200
    agents = json.loads(up.run("agents", "--json").stdout)
    assert [(a["id"], a["is_alive"]) for a in agents] == [("local-1", True)]
    assert agents[0]["facts"]["address"] == "127.0.0.1"
    assert agents[0]["facts"]["interface"] == "lo"

    second = up.run("up")
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"already running in {up.home} (process {process.pid})" in second.stderr

    endpoints = read_endpoints(up.home)
    assert endpoints is not None
    assert find_idle_reason(endpoints.broker_url) is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=_DEADLINE_S) == 0
    assert up.processes() == []
    assert not _is_listening(dashboard)
    assert not _is_listening(endpoints.broker_url.replace("redis://", "http://"))


def test_a_web_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        up = Up(tmp_path / "home", web_port=taken)
        process = up.start()
        try:
            port = int(up.wait_until_up().rpartition(":")[2].rstrip("/"))
            assert taken < port < taken + 50
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=_DEADLINE_S) == 0
        assert up.processes() == []


def test_a_web_address_of_another_machine_is_named(
    up: Up,
) -> None:
    up.settings["FARM_PLAINTEXT"] = "web"
    up.settings["FARM_WEB_HOST"] = "192.0.2.1"  # kept for documents; no machine has it
    refused = up.run("up")
    assert refused.returncode == 2
    assert "FARM_WEB_HOST: expected an address of this machine" in refused.stderr
    assert "got '192.0.2.1'" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert up.processes() == []


@pytest.mark.parametrize("process_count", [1, 3, 5])
def test_ctrl_c_while_the_farm_starts_leaves_nothing(up: Up, process_count: int) -> None:
    process = up.start()
    up.wait_until(lambda: len(up.processes()) >= process_count, f"{process_count} processes")
    process.send_signal(signal.SIGINT)
    ended_with = process.wait(timeout=_DEADLINE_S)
    # The last of its processes starts when it is all but up, and may be seen when it is.
    assert ended_with == (0 if "Dashboard: " in up.output_text() else 130)
    assert up.processes() == []
    assert "Traceback" not in up.output_text()


def test_a_killed_farm_leaves_nothing_and_starts_again(up: Up) -> None:
    process = up.start()
    up.wait_until_up()
    # An agent starts its own after it has said that it is there.
    up.wait_until(lambda: len(up.processes()) >= _FEWEST_PROCESSES, "all of the farm's processes")
    process.kill()
    process.wait(timeout=_DEADLINE_S)
    up.wait_until(lambda: not up.processes(), "the end of every child")
    again = up.start()
    up.wait_until_up()
    again.send_signal(signal.SIGINT)
    assert again.wait(timeout=_DEADLINE_S) == 0


def test_a_killed_scheduler_is_reported_and_started_again(up: Up) -> None:
    process = up.start()
    up.wait_until_up()

    up.wait_until(up.schedulers, "the scheduler")
    (first,) = up.schedulers()
    os.kill(first, signal.SIGKILL)
    up.wait_until(
        lambda: "scheduler was ended by signal 9; starting it again" in up.output_text(), "it"
    )
    up.wait_until(lambda: up.schedulers() not in ([], [first]), "a new scheduler")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=_DEADLINE_S) == 0
    assert up.processes() == []


def test_jobs_of_an_earlier_farm_are_given_out_once_all_agents_are_there(up: Up) -> None:
    process = up.start()
    up.wait_until_up()
    engine = make_engine(f"sqlite:///{up.home}/farm.db")
    with reading(engine) as session:
        seen_at = session.scalars(sa.select(AgentRow.first_seen_at)).one()
    engine.dispose()
    up.wait_until(up.schedulers, "a scheduler")
    (scheduler,) = up.schedulers()
    assert seen_at.timestamp() < _started_at_s(scheduler)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=_DEADLINE_S) == 0


def test_more_agents_than_cores_are_refused_before_anything_is_written(up: Up) -> None:
    refused = up.run("up", "--agents", "10000")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "each agent needs a core of its own" in refused.stderr
    assert not up.home.exists()
