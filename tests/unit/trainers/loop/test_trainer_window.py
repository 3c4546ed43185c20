"""What passed while the window was open, on the interface and over own connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from pathlib import Path

import pytest

from farm.messages.trainer_lines import WINDOW_CPU_RATIO
from farm.sampling.byte_count import ByteCount, tcp_byte_count
from farm.trainers.loop.window import TimedWindow, read_interface


class Counters:
    """A file like /proc/net/dev with one interface beside the loopback."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "dev"
        self.set(0, 0)

    def set(self, rx_bytes: int, tx_bytes: int) -> None:
        self.file.write_text(
            "Inter-|   Receive                            |  Transmit\n"
            " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"
            "    lo: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
            f"  eth7:{rx_bytes} 9 0 0 0 0 0 0 {tx_bytes} 9 0 0 0 0 0 0\n"
        )


@pytest.fixture
def counters(tmp_path: Path) -> Counters:
    return Counters(tmp_path)


def test_only_what_passes_while_it_is_open_counts(counters: Counters) -> None:
    window = TimedWindow("eth7", statistics=counters.file)
    for before, after in ((100, 110), (5000, 5003)):
        counters.set(before, 2 * before)
        window.open()
        counters.set(after, 2 * after)
        window.close()
    assert window.interface_bytes == ByteCount(rx_bytes=13, tx_bytes=26)
    assert 0.0 < window.duration_s <= window.span_s


def test_a_counter_that_went_back_gives_nothing_and_not_a_wrong_number(counters: Counters) -> None:
    window = TimedWindow("eth7", statistics=counters.file)
    counters.set(100, 100)
    window.open()
    counters.set(200, 99)
    window.close()
    window.open()
    window.close()
    assert window.interface_bytes is None


def test_an_unknown_interface_gives_nothing(counters: Counters) -> None:
    assert read_interface("eth8", statistics=counters.file) is None
    window = TimedWindow("eth8", statistics=counters.file)
    window.open()
    window.close()
    assert window.interface_bytes is None


def test_the_loopback_interface_of_this_machine_can_be_read() -> None:
    assert read_interface("lo") is not None


def test_own_connections_are_counted_to_the_byte_and_others_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname(), timeout=60)
        receiver, _ = server.accept()
        with sender, receiver:
            sender.sendall(b"before")
            receiver.recv(6, socket.MSG_WAITALL)
            window = TimedWindow("lo")
            window.open()
            sender.sendall(b"x" * 100_000)
            receiver.recv(100_000, socket.MSG_WAITALL)
            # What was received has been acknowledged once an answer is back.
            receiver.sendall(b"answer")
            sender.recv(6, socket.MSG_WAITALL)
            window.close()
    # Both ends belong to this process.
    assert window.payload_bytes == ByteCount(rx_bytes=100_006, tx_bytes=100_006)


def burn(cpu_s: float) -> None:
    end_s = time.process_time() + cpu_s
    while time.process_time() < end_s:
        pass


def test_processor_time_is_counted_in_the_open_parts_alone() -> None:
    window = TimedWindow("lo")
    for _ in range(2):
        burn(0.05)
        window.open()
        burn(0.02)
        window.stop()
        burn(0.05)  # waiting for peers
        window.close()
    assert 0.04 <= window.cpu_s < 0.14


def fill(sender: socket.socket) -> int:
    """Send until the kernel takes no more, and return how many bytes it took."""
    taken = 0
    sender.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            taken += sender.send(b"x" * 65536)
    return taken


def test_the_time_of_processes_that_end_meanwhile_is_not_known() -> None:
    times_s = iter([5.0, 3.0])  # a worker has ended, and what it used is gone with it
    window = TimedWindow("lo", connections=dict, cpu_s=lambda: next(times_s))
    window.open(1.0)
    window.stop(2.0)
    window.close()
    assert window.details(core_count=1)[WINDOW_CPU_RATIO] is None
    assert window.duration_s == 1.0


def test_what_no_peer_has_acknowledged_yet_was_sent_all_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname(), timeout=60)
        receiver, _ = server.accept()
        with sender, receiver:
            window = TimedWindow("lo")
            window.open()
            taken = fill(sender)  # nobody reads: most of it waits in the sender's queue
            window.close()
            assert window.payload_bytes is not None
            assert window.payload_bytes.tx_bytes == taken
            assert window.payload_bytes.rx_bytes < taken


def test_what_waited_in_the_queue_before_is_not_of_the_window() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname(), timeout=60)
        receiver, _ = server.accept()
        with sender, receiver:
            taken = fill(sender)
            window = TimedWindow("lo")
            window.open()
            received = 0
            while received < taken:
                received += len(receiver.recv(2**20))
            window.close()
            assert window.payload_bytes is not None
            assert window.payload_bytes.tx_bytes == 0


def tcp_info(*, acked: int, waiting: int, sent: int, retransmitted: int) -> bytes:
    return struct.pack("<120xQQ8xI52xQQ", acked, 5, waiting, sent, retransmitted)


def test_what_was_sent_again_counts_once() -> None:
    info = tcp_info(acked=501, waiting=300, sent=1200, retransmitted=200)
    assert tcp_byte_count(info) == ByteCount(rx_bytes=5, tx_bytes=1300)


@pytest.mark.parametrize(
    "info",
    [
        tcp_info(acked=501, waiting=0, sent=500, retransmitted=0)[:200],  # before Linux 4.19
        tcp_info(acked=501, waiting=0, sent=0, retransmitted=0),  # counters that are left at 0
    ],
)
def test_a_kernel_without_the_counters_gives_nothing_and_not_too_few(info: bytes) -> None:
    assert tcp_byte_count(info) is None


def test_the_clock_stops_before_the_bytes_are_counted(counters: Counters) -> None:
    window = TimedWindow("eth7", statistics=counters.file)
    for sent in (100, 300):
        window.open()
        window.stop()
        stopped_s = time.monotonic()
        counters.set(sent, sent)
        window.close()
        assert window.begun_s is not None
        assert window.begun_s + window.span_s <= stopped_s
    assert window.interface_bytes == ByteCount(rx_bytes=300, tx_bytes=300)
    assert len(window.parts) == 2


def test_a_connection_made_while_the_window_is_open_counts_from_its_beginning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        window = TimedWindow("lo")
        window.open()
        with socket.create_connection(server.getsockname(), timeout=60) as sender:
            receiver, _ = server.accept()
            with receiver:
                sender.sendall(b"x" * 1000)
                receiver.recv(1000, socket.MSG_WAITALL)
                window.close()
    assert window.payload_bytes is not None
    assert window.payload_bytes.rx_bytes == 1000
