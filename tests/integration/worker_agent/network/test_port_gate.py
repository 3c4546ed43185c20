"""A gang's ports are its peers' alone, and nobody's rules are left when the gang has gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.worker_agent.network.test_undo import (
    await_true,
    effective_capabilities,
    run_clear_network,
)
from tests.machine.namespaces import Namespace, needs_root, two_hosts
from tests.machine.watchdogs import watchdogs
from worker_agent.network import nft
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.guard import GATE, NoteFile
from worker_agent.network.nft import nft_table_name
from worker_agent.network.undo import undo_leftovers
from worker_agent.trainer_process.privilege import CAP_NET_ADMIN

obstacle = nft.find_obstacle()
needs_nftables = pytest.mark.skipif(obstacle is not None, reason=str(obstacle))
pytestmark = [pytest.mark.root, needs_root, needs_nftables]

PORT = 20000
PEER, STRANGER = "10.99.0.2", "10.99.0.3"  # of the far host both
PEER_6, STRANGER_6 = "fd99::2", "fd99::3"
LIMIT_S = 60.0
UID = 65534


@pytest.fixture
def hosts() -> Iterator[tuple[Namespace, Namespace]]:
    with two_hosts() as pair:
        yield pair


@contextmanager
def closed(
    host: Namespace,
    state_dir: Path,
    *,
    limit_s: float = 300.0,
    prefix: Sequence[str] = (),
    trainer_uid: int | None = None,
    port: int = PORT,
) -> Iterator[subprocess.Popen[str]]:
    """An agent that has just closed its ports to all but the peer, which has two addresses."""
    arguments = (str(state_dir), str(limit_s), str(port), PEER, PEER_6)
    command = host.command("tests.fakes.gatekeeper", *arguments, prefix=prefix)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    if trainer_uid is not None:
        environment["TRAINER_UID"] = str(trainer_uid)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stderr is not None
            if agent.stdout.readline() != "closed\n":
                raise AssertionError(agent.stderr.read())
            yield agent
        finally:
            agent.kill()
    await_true(lambda: not watchdogs(state_dir), "the watchdog has ended", limit_s=60.0)


def tables(host: Namespace) -> str:
    return host.run(lambda: nft.run_nft("list ruleset\n"))


def reach(host: Namespace, target: str, port: int, *, source: str) -> socket.socket | None:
    """Connect from a host, and from one of its addresses; None where that is refused."""

    def connect() -> socket.socket | None:
        try:
            return socket.create_connection((target, port), timeout=5, source_address=(source, 0))
        except ConnectionRefusedError:
            return None

    return host.run(connect)


def is_let_in(host: Namespace, target: str, port: int, *, source: str) -> bool:
    connection = reach(host, target, port, source=source)
    if connection is None:
        return False
    connection.close()
    return True


@pytest.mark.parametrize("port", [PORT, PORT + 1], ids=["probe", "trainer"])
@pytest.mark.parametrize(
    ("target", "peer", "stranger"),
    [("10.99.0.1", PEER, STRANGER), ("fd99::1", PEER_6, STRANGER_6)],
    ids=["IPv4", "IPv6"],
)
def test_a_peer_reaches_a_gangs_port_and_a_stranger_does_not(
    hosts: tuple[Namespace, Namespace],
    tmp_path: Path,
    *,
    port: int,
    target: str,
    peer: str,
    stranger: str,
) -> None:
    near, far = hosts
    with closed(near, tmp_path):
        assert is_let_in(far, target, port, source=peer)
        assert not is_let_in(far, target, port, source=stranger)
        assert is_let_in(near, target, port, source=target), "a rank of the same machine"


def test_ports_are_everybodys_again_when_the_gang_has_gone(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, far = hosts
    with closed(near, tmp_path) as agent:
        assert not is_let_in(far, "10.99.0.1", PORT, source=STRANGER)
        [_] = watchdogs(tmp_path)
        logged = told_to_open(agent)
        assert tables(near) == ""
        assert watchdogs(tmp_path) == []
        assert NoteFile(str(tmp_path), GATE).read() is None
        assert "packets of strangers to this rank's ports were refused: 1" in logged


def told_to_open(agent: subprocess.Popen[str]) -> str:
    """Let it open its ports and end; return what it has logged."""
    output, logged = agent.communicate("open\n", timeout=LIMIT_S)
    assert output == "opened\n", logged
    return logged


def test_whoever_was_connected_before_is_cut_off(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, far = hosts
    with near.run(lambda: socket.create_server(("10.99.0.1", PORT + 2))) as listening:
        early = reach(far, "10.99.0.1", PORT + 2, source=STRANGER)
        assert early is not None
        served, _ = listening.accept()
        with early, served, closed(near, tmp_path):
            script = near.run(lambda: nft.run_nft("list ruleset\n"))
            near.run(lambda: nft.run_nft(script.replace(f"{PORT + 1}", f"{PORT + 2}")))
            served.settimeout(0.5)
            early.sendall(b"rules")
            with pytest.raises((TimeoutError, ConnectionResetError)):
                served.recv(16)


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "CAP_NET_ADMIN alone"])
def test_a_killed_agent_leaves_no_rules(
    hosts: tuple[Namespace, Namespace], tmp_path: Path, *, is_root: bool
) -> None:
    near, far = hosts
    kinds = ("inh-caps", "ambient-caps", "bounding-set")
    granted = [f"--{kind}=-all,+net_admin" for kind in kinds]
    prefix = [] if is_root else ["setpriv", "--securebits=+noroot", *granted]
    with closed(near, tmp_path, prefix=prefix) as agent:
        if not is_root:
            assert effective_capabilities(agent.pid) == 1 << CAP_NET_ADMIN
        assert not is_let_in(far, "10.99.0.1", PORT, source=STRANGER)
        agent.kill()
        agent.wait(timeout=LIMIT_S)
        await_true(lambda: tables(near) == "", "no table is left")
        # The note goes last: who dies in between is undone once more, which harms nothing.
        await_true(lambda: NoteFile(str(tmp_path), GATE).read() is None, "the note is gone")


def test_an_agent_that_hangs_keeps_its_rules_only_until_the_deadline(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, _ = hosts
    with closed(near, tmp_path, limit_s=1.0) as agent:
        agent.send_signal(signal.SIGSTOP)
        assert nft_table_name(str(tmp_path)) in tables(near)
        await_true(lambda: tables(near) == "", "no table is left")


@pytest.mark.parametrize("has_note", [True, False], ids=["noted", "note lost"])
def test_the_next_life_opens_what_was_closed(
    hosts: tuple[Namespace, Namespace], tmp_path: Path, *, has_note: bool
) -> None:
    near, _ = hosts
    with closed(near, tmp_path) as agent:
        kill_both(agent, tmp_path)
        if not has_note:
            NoteFile(str(tmp_path), GATE).remove()
        assert nft_table_name(str(tmp_path)) in tables(near)
        site = Site(state_dir=str(tmp_path), interface="lo", cpus=(0,), spared_ports=())
        near.run(lambda: undo_leftovers(site))
        assert tables(near) == ""


def test_clear_network_opens_what_was_closed(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, _ = hosts
    with closed(near, tmp_path) as agent:
        kill_both(agent, tmp_path)
        done = run_clear_network(near, tmp_path)
        assert (done.returncode, done.stdout) == (0, "undone: the closing of ports\n")
        assert tables(near) == ""


def kill_both(agent: subprocess.Popen[str], state_dir: Path) -> None:
    """As in a control group that is killed."""
    for pid in (*watchdogs(state_dir), agent.pid):
        os.kill(pid, signal.SIGKILL)
    agent.wait(timeout=LIMIT_S)


def test_agents_of_one_machine_do_not_close_each_others_ports(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, far = hosts
    other = tmp_path / "other"
    other.mkdir()
    with closed(near, tmp_path):
        with near.run(lambda: socket.create_server(("10.99.0.1", PORT + 2))):
            assert is_let_in(far, "10.99.0.1", PORT + 2, source=STRANGER)
        site = Site(state_dir=str(other), interface="eth0", cpus=(0,), spared_ports=())
        near.run(lambda: undo_leftovers(site))
        assert not is_let_in(far, "10.99.0.1", PORT, source=STRANGER)


def test_a_rank_whose_rules_somebody_took_away_is_void(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, _ = hosts
    with closed(near, tmp_path) as agent:
        near.run(lambda: nft.run_nft("flush ruleset\n"))
        assert "this rank's ports were open to everybody" in told_to_open(agent)


def test_a_trainer_of_its_own_user_reaches_and_is_reached_by_its_gang_alone(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, far = hosts
    port = PORT + 7  # one of the kernel's choice, as gloo's are
    with (
        listening_as(near, UID, port),
        closed(near, tmp_path, trainer_uid=UID),
        far.run(lambda: socket.create_server((STRANGER, port))),
        far.run(lambda: socket.create_server((PEER, port))),
    ):
        assert is_let_in(far, "10.99.0.1", port, source=PEER)
        assert is_let_in(near, "10.99.0.1", port, source="10.99.0.1")
        with pytest.raises(TimeoutError):
            reach(far, "10.99.0.1", port, source=STRANGER)
        assert connect_as(near, UID, PEER, port) == "in"
        assert "Error" in connect_as(near, UID, STRANGER, port)
        assert connect_as(near, 0, STRANGER, port) == "in", "the agent's own user is free"


def test_two_agents_do_not_hold_one_user_to_two_gangs(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    near, _ = hosts
    other = tmp_path / "other"
    other.mkdir()
    with closed(near, tmp_path, trainer_uid=UID):
        with (
            pytest.raises(AssertionError, match="give each agent an AGENT_TRAINER_USER"),
            closed(near, other, trainer_uid=UID, port=PORT + 10),
        ):
            pass
        assert nft_table_name(str(tmp_path)) in tables(near)


@contextmanager
def listening_as(host: Namespace, uid: int, port: int) -> Iterator[None]:
    program = (
        "import socket, time; s = socket.create_server(('', int(__import__('sys').argv[1])));"
        "print('listens', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(as_user(host, uid, program, str(port)), stdout=subprocess.PIPE) as done:
        assert done.stdout is not None
        try:
            assert done.stdout.readline() == b"listens\n"
            yield
        finally:
            done.kill()


def connect_as(host: Namespace, uid: int, target: str, port: int) -> str:
    """Connect as a user; return "in", or the error."""
    program = (
        "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5);"
        "print('in')"
    )
    done = subprocess.run(
        as_user(host, uid, program, target, str(port)),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return (done.stdout or done.stderr).strip().rpartition("\n")[2]


def as_user(host: Namespace, uid: int, program: str, *arguments: str) -> list[str]:
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    run = ["ip", "netns", "exec", host.name, *become, "/usr/bin/python3", "-c", program]
    return [*run, *arguments]
