"""What passed while the window was open, on the interface and over own connections."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from farm.trainers.byte_count import ByteCount
from farm.trainers.window import TimedWindow, read_interface


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
    assert window.payload_bytes is not None
    assert window.payload_bytes.rx_bytes == 100_006
    assert window.payload_bytes.tx_bytes >= 100_000


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
