"""Child processes of an embedded farm: nothing is left, however the parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farm.embedded.farm import end_marked, find_marked
from farm.embedded.home import is_held, locked
from farm.embedded.processes import LoggedProcess, ProcessSupervisor, Program, stop_all
from farm.embedded.signals import Stopped, StopSignals
from farm.errors import FarmError
from farm.processes.marked import EMBEDDED_MARK

_LONGER_THAN_A_TEST_S = 3600
_DEADLINE_S = 240.0

# A child which itself starts a deaf grandchild in a session of its own, as an agent a trainer.
_CHILD = """
import pathlib, signal, subprocess, sys, time
grandchild = subprocess.Popen(
    [sys.executable, "-c",
     "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"],
    start_new_session=True,
)
pathlib.Path(sys.argv[1]).write_text(str(grandchild.pid))
time.sleep(600)
"""

_PARENT = """
import os, signal, sys
from pathlib import Path
from farm.processes.marked import EMBEDDED_MARK
from farm.embedded.farm import end_marked
from farm.embedded.processes import LoggedProcess, ProcessSupervisor, Program
from farm.embedded.signals import Stopped, StopSignals

# Under nohup it is ignored, and who ignores it goes on doing so.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
home, child = Path(sys.argv[1]), sys.argv[2]
supervisor = ProcessSupervisor(print)
with StopSignals() as signals:
    try:
        for name in ("one", "two"):
            program = Program(
                name=name,
                argv=(sys.executable, "-c", child, str(home / name)),
                environ={**os.environ, EMBEDDED_MARK: str(home)},
            )
            started = LoggedProcess(program, log_dir=home)
            started.start()
            supervisor.add(started)
        while True:
            supervisor.check()
            signals.pause(0.05)
    except Stopped:
        supervisor.stop(skip_waiting=lambda: signals.count > 1)
        end_marked(str(home), grace_s=0)
"""


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    end_marked(str(tmp_path), grace_s=0)


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.02)


def _start_parent(home: Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(home), _CHILD],
        env={**os.environ, "PYTHONPATH": str(root)},
        start_new_session=True,
    )


def _program(home: Path, *argv: str, grace_s: float = 5.0, stage: int = 0) -> Program:
    return Program(
        name=f"program-{stage}",
        argv=(sys.executable, "-c", *argv),
        environ={**os.environ, EMBEDDED_MARK: str(home)},
        grace_s=grace_s,
        stage=stage,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_parent_ends_the_whole_tree(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    parent = _start_parent(tmp_path)
    _until(lambda: len(find_marked(mark)) == 4, "two children and two grandchildren")
    parent.send_signal(number)
    assert parent.wait(timeout=_DEADLINE_S) == 0
    assert find_marked(mark) == []


def test_a_signal_at_any_moment_of_the_start_leaves_nothing(tmp_path: Path, mark: str) -> None:
    for after_s in (0.15, 0.2, 0.25, 0.3, 0.4):
        parent = _start_parent(tmp_path)
        time.sleep(after_s)  # the moments are the subject of this test
        # Not SIGINT: who runs the tests in the background ignores it, and so does a program of
        # theirs until it says otherwise.
        parent.send_signal(signal.SIGTERM)
        parent.wait(timeout=_DEADLINE_S)
        assert find_marked(mark) == [], after_s


def test_a_killed_parent_takes_its_children_along(tmp_path: Path, mark: str) -> None:
    parent = _start_parent(tmp_path)
    names = [tmp_path / "one", tmp_path / "two"]
    _until(lambda: all(name.exists() and name.read_text() for name in names), "grandchildren")
    grandchildren = {int(name.read_text()) for name in names}
    parent.kill()
    parent.wait(timeout=_DEADLINE_S)
    _until(lambda: set(find_marked(mark)) == grandchildren, "the end of the children")
    # Those that nobody ended are found by the next start.
    assert end_marked(mark, grace_s=0.1) == 2
    assert find_marked(mark) == []


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path, mark: str) -> None:
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    child = LoggedProcess(
        _program(tmp_path, f"{deaf}; print('deaf', flush=True); time.sleep(600)", grace_s=0.3),
        log_dir=tmp_path,
    )
    child.start()
    _until(lambda: "deaf" in child.log_tail(), "the child's first line")
    begun = time.monotonic()
    stop_all([child])
    assert time.monotonic() - begun >= 0.3
    assert find_marked(mark) == []


def test_a_second_request_does_not_wait_for_the_grace(tmp_path: Path, mark: str) -> None:
    deaf = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    child = LoggedProcess(
        _program(tmp_path, f"{deaf}; print('deaf', flush=True); time.sleep(600)", grace_s=600),
        log_dir=tmp_path,
    )
    child.start()
    _until(lambda: "deaf" in child.log_tail(), "the child's first line")
    stop_all([child], skip_waiting=lambda: True)
    assert not child.is_alive


def test_later_stages_end_before_earlier_ones_are_told(tmp_path: Path, mark: str) -> None:
    order = tmp_path / "order"
    note = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n"
        "    with pathlib.Path(sys.argv[1]).open('a') as f: f.write(sys.argv[2])\n"
        "    sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    children = [
        LoggedProcess(
            _program(tmp_path, note, str(order), str(stage), stage=stage), log_dir=tmp_path
        )
        for stage in (0, 1, 2)
    ]
    for child in children:
        child.start()
    _until(lambda: all("ready" in c.log_tail() for c in children), "all three")
    stop_all(children)
    assert order.read_text() == "210"


def test_what_is_left_of_a_dead_childs_group_ends_with_it(tmp_path: Path, mark: str) -> None:
    fork = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
    child = LoggedProcess(
        _program(tmp_path, fork, "import time; time.sleep(600)"), log_dir=tmp_path
    )
    child.start()
    _until(lambda: not child.is_alive, "the leader's end")
    assert len(find_marked(mark)) == 1
    stop_all([child])
    _until(lambda: not find_marked(mark), "the end of its group")


def test_a_child_that_dies_is_reported_with_its_log_and_started_again(
    tmp_path: Path, mark: str
) -> None:
    lines: list[str] = []
    supervisor = ProcessSupervisor(lines.append)
    child = LoggedProcess(
        _program(tmp_path, "print('I fall'); raise SystemExit(3)"), log_dir=tmp_path
    )
    child.start()
    supervisor.add(child)

    def check_processes() -> bool:
        supervisor.check()
        return len(lines) == 2

    _until(check_processes, "two reports")
    assert lines[0].startswith("program-0 ended with status 3; starting it again in 1 s")
    assert "I fall" in lines[0]
    supervisor.stop()


def test_a_child_that_keeps_dying_is_given_up(tmp_path: Path, mark: str) -> None:
    supervisor = ProcessSupervisor(lambda line: None, max_restarts=0)
    child = LoggedProcess(_program(tmp_path, "raise SystemExit(3)"), log_dir=tmp_path)
    child.start()
    supervisor.add(child)
    _until(lambda: not child.is_alive, "its end")
    with pytest.raises(FarmError, match="ended with status 3, after 0 restarts"):
        supervisor.check()


def test_a_child_with_a_wrong_setting_is_not_started_again(tmp_path: Path, mark: str) -> None:
    supervisor = ProcessSupervisor(lambda line: None)
    child = LoggedProcess(_program(tmp_path, "raise SystemExit(2)"), log_dir=tmp_path)
    child.start()
    supervisor.add(child)
    _until(lambda: not child.is_alive, "its end")
    with pytest.raises(FarmError, match="status 2, after 0 restarts"):
        supervisor.check()


def test_one_home_has_one_farm(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(FarmError, match=f"already running in .*process {os.getpid()}"):
            locked(tmp_path).__enter__()
    assert not is_held(tmp_path)
    with locked(tmp_path):
        pass


def test_a_pause_ends_at_a_signal_and_gives_the_handlers_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        signals.pause(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Stopped):
            signals.pause(_LONGER_THAN_A_TEST_S)
    assert signal.getsignal(signal.SIGINT) is before
