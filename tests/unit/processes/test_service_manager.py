"""What a process tells systemd, over a socket such as systemd's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.collector.main import WorkerTurns
from farm.processes.service_manager import ServiceManager


class Manager:
    """Listens as systemd does."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)

    def heard(self) -> list[str]:
        words = []
        try:
            while True:
                words.append(self._socket.recv(1000, socket.MSG_DONTWAIT).decode())
        except BlockingIOError:
            return words

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    listening = Manager(str(tmp_path / "notify"))
    yield listening
    listening.close()


@pytest.fixture
def environ(tmp_path: Path, manager: Manager) -> dict[str, str]:
    # So short an interval that each turn is told.
    return {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1", "HOME": "/"}


def test_the_first_turn_says_that_it_is_up_and_the_others_that_it_turns(
    manager: Manager, environ: dict[str, str]
) -> None:
    service = ServiceManager(environ)
    assert manager.heard() == []
    for _ in range(3):
        service.notify_watchdog()
    assert manager.heard() == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]


def test_few_words_go_out_however_fast_it_turns(manager: Manager, environ: dict[str, str]) -> None:
    service = ServiceManager(environ | {"WATCHDOG_USEC": str(3600 * 1_000_000)})
    for _ in range(100):
        service.notify_watchdog()
    assert manager.heard() == ["READY=1"]


def test_no_child_learns_where_to_tell(environ: dict[str, str]) -> None:
    environ["WATCHDOG_PID"] = str(os.getpid())
    ServiceManager(environ)
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("change", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_who_is_not_watched_says_only_that_it_is_up(
    manager: Manager, environ: dict[str, str], change: dict[str, str]
) -> None:
    service = ServiceManager(environ | change)
    service.notify_watchdog()
    service.notify_watchdog()
    assert manager.heard() == ["READY=1"]


def test_an_abstract_address_is_understood(environ: dict[str, str]) -> None:
    name = f"benchfarm-test-{os.getpid()}"
    abstract = Manager(f"\0{name}")
    ServiceManager(environ | {"NOTIFY_SOCKET": f"@{name}"}).notify_watchdog()
    assert abstract.heard() == ["READY=1"]
    abstract.close()


def test_a_manager_that_is_gone_does_no_harm(
    manager: Manager, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    service = ServiceManager(environ | {"NOTIFY_SOCKET": "/nowhere/notify"})
    service.notify_watchdog()
    assert "service manager was not notified of READY=1" in caplog.text


def test_one_that_was_ended_for_its_silence_says_where_it_hung(environ: dict[str, str]) -> None:
    program = (
        "import os, signal\n"
        "from farm.processes.service_manager import ServiceManager\n"
        "def hang(): os.kill(os.getpid(), signal.SIGABRT)\n"
        "ServiceManager(os.environ)\n"
        "hang()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=dict(os.environ) | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "in hang" in done.stderr


def test_a_collector_is_silent_once_its_worker_no_longer_turns(
    manager: Manager, environ: dict[str, str]
) -> None:
    turns = WorkerTurns(ServiceManager(environ), within_s=0)
    turns.shown(True)
    assert manager.heard() == []


def test_a_collector_without_a_broker_is_not_to_blame(
    manager: Manager, environ: dict[str, str]
) -> None:
    turns = WorkerTurns(ServiceManager(environ), within_s=0)
    turns.shown(False)
    assert manager.heard() == ["READY=1"]


def test_a_collector_whose_worker_turns_says_so(manager: Manager, environ: dict[str, str]) -> None:
    turns = WorkerTurns(ServiceManager(environ), within_s=3600)
    turns.note_turn()
    turns.shown(True)
    turns.shown(True)
    assert manager.heard() == ["READY=1", "WATCHDOG=1"]
