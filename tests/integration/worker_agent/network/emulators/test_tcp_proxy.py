"""The proxy between a rank and its peers: a real process, real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from farm.values.codec import to_json
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tcp_proxy import TcpProxy
from worker_agent.network.probing.probe import EchoServer, measure_peers
from worker_agent.network.proxy import ProxiedPeer, ProxyOrder
from worker_agent.trainer_process.orphans import find_marked

pytestmark = pytest.mark.alone

DELAY_S = 0.02
DELAYED = NetworkProfile(one_way_delay_s=DELAY_S)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(
        state_dir=str(tmp_path),
        interface="lo",
        cpus=(min(os.sched_getaffinity(0)),),
        spared_ports=(),
    )


@pytest.fixture
def emulator(site: Site) -> Iterator[TcpProxy]:
    made = TcpProxy(site)
    yield made
    made.clear()


def peer(*ports: int, host: str = "127.0.0.1") -> RankAddress:
    return RankAddress(rank=1, host=host, probe_port=ports[0], trainer_ports=ports[1:])


def listen() -> socket.socket:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(10)
    return listening


def port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def connect(reached: RankAddress) -> socket.socket:
    return socket.create_connection((reached.host, reached.probe_port), timeout=60)


def pair(
    emulator: TcpProxy, profile: NetworkProfile, stack: ExitStack
) -> tuple[socket.socket, socket.socket]:
    """The rank's end and the peer's end of one connection through the proxy."""
    listening = stack.enter_context(listen())
    (reached,) = emulator.apply(profile, (peer(port_of(listening)),))
    near = stack.enter_context(connect(reached))
    far = stack.enter_context(listening.accept()[0])
    far.settimeout(10)
    return near, far


def receive(receiving: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := receiving.recv(count - len(data))):
        data += more
    return data


def test_the_round_trip_grows_by_twice_the_delay_for_probes_as_for_trainers(
    emulator: TcpProxy,
) -> None:
    listening = listen()
    with closing(EchoServer(listening)):
        own_port = port_of(listening)
        (reached,) = emulator.apply(DELAYED, (peer(own_port, own_port),))
        [rtt] = measure_peers((reached,), own_rank=0, timeout_s=30)
        as_trainer = peer(reached.trainer_ports[0])
        [again] = measure_peers((as_trainer,), own_rank=0, timeout_s=30)

    assert rtt.probe_count == 20
    # A busy machine may be late; early it may never be.
    assert 2 * DELAY_S <= rtt.rtt_s < 2 * DELAY_S + 0.02
    assert 2 * DELAY_S <= again.rtt_s < 2 * DELAY_S + 0.02


def test_jitter_spreads_the_delay_around_its_mean(emulator: TcpProxy) -> None:
    with ExitStack() as stack:
        profile = NetworkProfile(one_way_delay_s=0.01, jitter_s=0.005)
        near, far = pair(emulator, profile, stack)
        far.sendall(b"x")
        near.recv(1)  # the connection stands
        times_s = []
        for _ in range(60):
            begun = time.perf_counter()
            near.sendall(b"x")
            far.recv(1)
            times_s.append(time.perf_counter() - begun)

    assert min(times_s) >= 0.005
    assert min(times_s) < 0.009
    assert 0.008 < statistics.median(times_s) < 0.02
    assert max(times_s) > 0.0125


@pytest.mark.parametrize("direction", ["there", "back"])
def test_all_connections_to_a_peer_share_the_bandwidth_of_each_direction(
    emulator: TcpProxy, direction: str
) -> None:
    bandwidth, size = 4e6, 1_000_000
    with ExitStack() as stack:
        listening = stack.enter_context(listen())
        (reached,) = emulator.apply(
            NetworkProfile(bandwidth_bytes_per_s=bandwidth), (peer(port_of(listening)),)
        )
        senders, receivers = [], []
        for _ in range(2):
            near = stack.enter_context(connect(reached))
            far = stack.enter_context(listening.accept()[0])
            sender, receiver = (near, far) if direction == "there" else (far, near)
            senders.append(threading.Thread(target=sender.sendall, args=(bytes(size),)))
            receivers.append(receiver)
        begun = time.monotonic()
        for sending in senders:
            sending.start()
        for receiver in receivers:
            receiver.settimeout(10)
            assert len(receive(receiver, size)) == size
        passed_s = time.monotonic() - begun

    expected_s = 2 * size / bandwidth
    assert 0.95 * expected_s <= passed_s < 2 * expected_s


def test_small_writes_wait_for_no_acknowledgement(emulator: TcpProxy) -> None:
    with ExitStack() as stack:
        near, far = pair(emulator, NetworkProfile(one_way_delay_s=0.001), stack)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times_s = []
        for _ in range(60):
            begun = time.perf_counter()
            near.sendall(b"x")
            while time.perf_counter() - begun < 0.002:
                pass  # so that the second is no part of the first
            near.sendall(b"x")
            receive(far, 2)
            far.sendall(b"y")
            receive(near, 1)
            times_s.append(time.perf_counter() - begun)

    # Whoever answers puts off its acknowledgements, for up to 40 ms.
    assert statistics.median(times_s) < 0.025


def test_a_closed_direction_leaves_the_other_open(emulator: TcpProxy) -> None:
    with ExitStack() as stack:
        near, far = pair(emulator, DELAYED, stack)
        near.sendall(b"question")
        near.shutdown(socket.SHUT_WR)
        assert receive(far, 100) == b"question"
        far.sendall(b"answer")
        far.close()
        assert receive(near, 100) == b"answer"


def test_a_peer_that_does_not_listen_refuses_after_a_round_trip(emulator: TcpProxy) -> None:
    with listen() as listening:
        (reached,) = emulator.apply(DELAYED, (peer(port_of(listening)),))
    begun = time.monotonic()
    with connect(reached) as near, pytest.raises(ConnectionResetError):
        near.recv(1)

    assert time.monotonic() - begun >= 2 * DELAY_S


def test_a_peer_that_does_not_answer_the_probe_is_named(emulator: TcpProxy) -> None:
    with listen() as listening:
        (reached,) = emulator.apply(DELAYED, (peer(port_of(listening)),))
    with pytest.raises(EmulationFailed, match=r"round-trip time to rank 1 at .* was not measured"):
        measure_peers((reached,), own_rank=0, timeout_s=5)


def test_a_reset_travels_behind_the_bytes_before_it(emulator: TcpProxy) -> None:
    with ExitStack() as stack:
        near, far = pair(emulator, DELAYED, stack)
        far.sendall(b"last words")
        assert receive(near, 10) == b"last words"
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        begun = time.monotonic()
        far.close()
        with pytest.raises(ConnectionResetError):
            near.recv(1)
        assert time.monotonic() - begun >= 0.9 * DELAY_S


def test_a_receiver_that_does_not_read_makes_the_sender_wait(
    emulator: TcpProxy, site: Site
) -> None:
    with ExitStack() as stack:
        near, far = pair(emulator, DELAYED, stack)
        near.settimeout(1.0)
        sent, block = 0, bytes(1 << 20)
        with contextlib.suppress(TimeoutError):
            while sent < 512 * len(block):
                sent += near.send(block)
        assert sent < 128 * len(block)
        [pid] = find_marked(Path(site.state_dir))
        assert resident_bytes(pid) < 200 * 2**20
        assert len(receive(far, sent)) == sent


def test_many_connections_pass_at_once_and_each_gets_its_own_bytes(emulator: TcpProxy) -> None:
    with ExitStack() as stack:
        listening = listen()
        stack.enter_context(closing(EchoServer(listening)))
        (reached,) = emulator.apply(
            NetworkProfile(one_way_delay_s=0.05), (peer(port_of(listening)),)
        )
        connections = [stack.enter_context(connect(reached)) for _ in range(100)]
        begun = time.monotonic()
        for number, one in enumerate(connections):
            one.sendall(b"%08d" % number)
        answers = [receive(one, 8) for one in connections]

    assert answers == [b"%08d" % number for number in range(100)]
    # Side by side, not one after the other: that would take 10 s.
    assert time.monotonic() - begun < 5


def test_connections_beyond_the_limit_on_open_files_wait_for_others_to_end(
    emulator: TcpProxy,
) -> None:
    with ExitStack() as stack:
        listening = listen()
        stack.enter_context(closing(EchoServer(listening)))
        (reached,) = emulator.apply(DELAYED, (peer(port_of(listening)),))
        (pid,) = emulator.pids
        open_count = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        # Two connections take two sockets each; one more finds room for half of it.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_count + 5, open_count + 5))
        first, second, third = (stack.enter_context(connect(reached)) for _ in range(3))
        for number, one in enumerate((first, second, third)):
            one.sendall(b"%d" % number)
        assert (receive(first, 1), receive(second, 1)) == (b"0", b"1")

        first.close()
        assert receive(third, 1) == b"2"


def test_a_proxy_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    site = Site(state_dir=str(tmp_path / "gone"), interface="lo", cpus=(0,), spared_ports=())
    with pytest.raises(EmulationFailed, match=r"tcp_proxy did not start: .*No such file"):
        TcpProxy(site).apply(DELAYED, (peer(9),))


def test_the_proxy_keeps_to_the_ranks_own_cores_and_is_gone_when_cleared(
    emulator: TcpProxy, site: Site
) -> None:
    folder = Path(site.state_dir)
    with listen() as listening:
        emulator.apply(DELAYED, (peer(port_of(listening)),))
    [pid] = find_marked(folder)
    assert os.sched_getaffinity(pid) == set(site.cpus)

    emulator.clear()
    emulator.clear()
    assert find_marked(folder) == []


def test_a_proxy_that_has_died_meanwhile_is_noticed(emulator: TcpProxy) -> None:
    with listen() as listening:
        emulator.apply(DELAYED, (peer(port_of(listening)),))
    emulator.check()
    (pid,) = emulator.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(EmulationFailed, match="tcp_proxy has ended with status -9"):
        emulator.check()
    emulator.clear()
    emulator.check()  # nothing is applied that could be missed


def test_the_proxy_ends_with_its_agent() -> None:
    order = ProxyOrder(
        profile=DELAYED,
        cpus=tuple(os.sched_getaffinity(0)),
        peers=(ProxiedPeer(rank=1, host="127.0.0.1", ports=(9,)),),
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "worker_agent.network.proxy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(json.dumps(to_json(order)).encode() + b"\n")
        proxy.stdin.flush()
        [[port]] = json.loads(proxy.stdout.readline())
        assert 0 < port < 65536
        proxy.stdin.close()
        assert proxy.wait(timeout=60) == 0


def test_a_peer_without_an_address_is_named(emulator: TcpProxy) -> None:
    with pytest.raises(EmulationFailed, match=r"tcp_proxy did not start: .*nobody\.invalid"):
        emulator.apply(DELAYED, (peer(9, host="nobody.invalid"),))


@pytest.mark.parametrize(
    "profile",
    [
        NetworkProfile(packet_loss_ratio=0.01),
        NetworkProfile(one_way_delay_s=0.001, jitter_s=0.002),
        NetworkProfile(bandwidth_bytes_per_s=1.0),
    ],
)
def test_it_does_not_promise_what_it_cannot_do(emulator: TcpProxy, profile: NetworkProfile) -> None:
    assert not emulator.serves(profile)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
