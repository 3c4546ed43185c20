"""A network profile does not outlive its agent by more than seconds, however that ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machine.namespaces import Namespace, needs_root, two_hosts
from tests.machine.watchdogs import watchdogs
from worker_agent.network import watchdog
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.guard import NoteFile
from worker_agent.network.undo import undo_leftovers
from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

PEER = "10.99.0.2"
LIMIT_S = 240.0


def await_true(condition: Callable[[], bool], what: str, *, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def host() -> Iterator[Namespace]:
    with two_hosts() as (near, _):
        yield near


@contextmanager
def shaped(
    host: Namespace, state_dir: Path, *, limit_s: float = 300.0, prefix: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """An agent that has just shaped this host."""
    arguments = (str(state_dir), "eth0", PEER, str(limit_s))
    command = host.command("tests.fakes.shaper", *arguments, prefix=prefix)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "shaped\n"
            yield agent
        finally:
            agent.kill()
    await_true(lambda: not watchdogs(state_dir), "the watchdog has ended")


def effective_capabilities(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def is_shaped(host: Namespace, interface: str = "eth0") -> bool:
    return "htb bf10:" in host.root_queue(interface)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_dies_leaves_a_clean_interface_without_ever_coming_back(
    host: Namespace, tmp_path: Path, number: signal.Signals
) -> None:
    with shaped(host, tmp_path) as agent:
        assert is_shaped(host)
        agent.send_signal(number)
        agent.wait(timeout=LIMIT_S)
        await_true(lambda: not is_shaped(host), "the interface is clean")
        # The note goes last: who dies in between is undone once more, which harms nothing.
        await_true(lambda: NoteFile(str(tmp_path)).read() is None, "the note is gone")


@pytest.mark.root
@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_no_other_privilege_is_needed_and_the_watchdog_has_it_too(
    host: Namespace, tmp_path: Path
) -> None:
    # As systemd grants it, and root is nobody special.
    kinds = ("inh-caps", "ambient-caps", "bounding-set")
    granted = [f"--{kind}=-all,+net_admin" for kind in kinds]
    with shaped(host, tmp_path, prefix=["setpriv", "--securebits=+noroot", *granted]) as agent:
        assert effective_capabilities(agent.pid) == 1 << CAP_NET_ADMIN
        assert is_shaped(host)
        agent.kill()
        agent.wait(timeout=LIMIT_S)
        await_true(lambda: not is_shaped(host), "the interface is clean")


@pytest.mark.root
@needs_root
def test_an_agent_that_hangs_keeps_its_profile_only_until_the_deadline(
    host: Namespace, tmp_path: Path
) -> None:
    with shaped(host, tmp_path, limit_s=1.0) as agent:
        agent.send_signal(signal.SIGSTOP)
        assert is_shaped(host)
        await_true(lambda: not is_shaped(host), "the interface is clean")


@pytest.mark.root
@needs_root
def test_a_watchdog_does_not_mind_the_signals_that_end_its_agent(
    host: Namespace, tmp_path: Path
) -> None:
    with shaped(host, tmp_path) as agent:
        [pid] = watchdogs(tmp_path)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(pid, number)
        agent.kill()
        agent.wait(timeout=LIMIT_S)
        await_true(lambda: not is_shaped(host), "the interface is clean")


@pytest.mark.root
@needs_root
def test_a_watchdog_goes_when_its_profile_is_undone(host: Namespace, tmp_path: Path) -> None:
    with shaped(host, tmp_path) as agent:
        assert len(watchdogs(tmp_path)) == 1
        assert is_shaped(host)
        assert agent.stdin is not None
        assert agent.stdout is not None
        agent.stdin.write("undo\n")
        agent.stdin.flush()
        assert agent.stdout.readline() == "undone\n"
        assert not is_shaped(host)
        assert watchdogs(tmp_path) == []
        assert NoteFile(str(tmp_path)).read() is None


@pytest.mark.root
@needs_root
def test_the_next_life_undoes_what_was_applied_even_to_another_interface(
    host: Namespace, tmp_path: Path
) -> None:
    with shaped(host, tmp_path) as agent:
        # Both die at once, as in a control group that is killed.
        for pid in (*watchdogs(tmp_path), agent.pid):
            os.kill(pid, signal.SIGKILL)
        agent.wait(timeout=LIMIT_S)
        assert is_shaped(host)
        site = Site(state_dir=str(tmp_path), interface="lo", cpus=(0,), spared_ports=())
        host.run(lambda: undo_leftovers(site))
        assert not is_shaped(host)


@pytest.mark.root
@needs_root
def test_clear_network_needs_no_broker_and_says_what_it_did(
    host: Namespace, tmp_path: Path
) -> None:
    with shaped(host, tmp_path) as agent:
        for pid in (*watchdogs(tmp_path), agent.pid):
            os.kill(pid, signal.SIGKILL)
        agent.wait(timeout=LIMIT_S)
        assert clear_network(host, tmp_path) == "undone: tc_netem on eth0\n"
        assert not is_shaped(host)
        # Whoever has mistaken the directory sees it.
        nothing = f"nothing was applied, according to {tmp_path}\n"
        assert clear_network(host, tmp_path) == nothing


def clear_network(host: Namespace, state_dir: Path) -> str:
    done = run_clear_network(host, state_dir)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run_clear_network(host: Namespace, state_dir: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[4]),
        "AGENT_STATE_DIR": str(state_dir),
        "FARM_BROKER_URL": "redis://192.0.2.1:1/0",
        "FARM_PLAINTEXT": "broker",
    }
    return subprocess.run(
        host.command("worker_agent", "--clear-network"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.root
@needs_root
def test_a_note_that_is_lost_does_not_keep_the_profile(host: Namespace, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    with shaped(host, state_dir) as agent:
        [pid] = watchdogs(state_dir)
        shutil.rmtree(state_dir)
        assert agent.stdin is not None
        agent.stdin.write("undo\n")
        agent.stdin.flush()
        await_true(lambda: not is_shaped(host), "the interface is clean")
        os.kill(pid, signal.SIGKILL)  # it would look for the note for a minute


@pytest.mark.root
@needs_root
def test_a_disk_that_has_become_read_only_does_not_keep_the_profile(
    host: Namespace, tmp_path: Path
) -> None:
    with shaped(host, tmp_path) as agent:
        [pid] = watchdogs(tmp_path)
        # They have a view of the disks of their own, as a process in a container.
        with read_only(tmp_path, prefix=["nsenter", f"--mount=/proc/{pid}/ns/mnt"]):
            agent.kill()
            agent.wait(timeout=LIMIT_S)
            await_true(lambda: not is_shaped(host), "the interface is clean")
        # The watchdog goes on until the note is gone, too.
        await_true(lambda: NoteFile(str(tmp_path)).read() is None, "the note is gone")


@pytest.mark.root
@needs_root
def test_clear_network_clears_though_the_note_has_to_stay(host: Namespace, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()  # a whole agent's
    with shaped(host, tmp_path) as agent:
        for pid in (*watchdogs(tmp_path), agent.pid):
            os.kill(pid, signal.SIGKILL)
        agent.wait(timeout=LIMIT_S)
        with read_only(tmp_path):
            done = run_clear_network(host, tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Read-only file system" in done.stderr
        assert not is_shaped(host)


@contextmanager
def read_only(folder: Path, *, prefix: Sequence[str] = ()) -> Iterator[None]:
    """Whoever opens something in it from now on may not write."""
    mount = (*prefix, "mount")
    subprocess.run([*mount, "--bind", folder, folder], check=True)
    try:
        subprocess.run([*mount, "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run([*prefix, "umount", "--lazy", folder], check=True)


def test_a_watchdog_tries_until_its_command_succeeds(tmp_path: Path) -> None:
    # It fails the first time, and leaves a trace of that.
    trace, done = tmp_path / "trace", tmp_path / "done"
    command = ["/bin/sh", "-c", f"test -e {trace} && touch {done} || ! touch {trace}"]
    guard = start_watchdog("300", *command)
    assert guard.stdin is not None
    guard.stdin.close()
    assert guard.wait(timeout=LIMIT_S) == 0
    assert done.exists()


def test_a_released_watchdog_runs_nothing(tmp_path: Path) -> None:
    guard = start_watchdog("300", "/bin/touch", str(tmp_path / "touched"))
    guard.communicate(watchdog.RELEASE, timeout=LIMIT_S)
    assert guard.returncode == 0
    assert not (tmp_path / "touched").exists()


def start_watchdog(*arguments: str) -> subprocess.Popen[bytes]:
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert guard.stdout is not None
    with guard.stdout as output:
        assert output.read(1) == watchdog.ALIVE
    guard.stdout = None
    return guard
