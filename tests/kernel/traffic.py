"""Traffic between two hosts of one kernel, whose clock is the same at both ends."""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass

from tests.machine.namespaces import Namespace

_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_STAMP = struct.Struct("qq")
_PACKET_BYTES, _PAYLOAD_BYTES = 1514, 1448
# After this long without a packet no more is taken to come.
_QUIET_S = 1.0


def one_way_delays_s(
    source: Namespace, target: Namespace, address: str, *, count: int, gap_s: float
) -> list[float]:
    """Send datagrams; return how long each took that arrived, by the kernel's own stamps."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        target.run(lambda: socket.socket(family, socket.SOCK_DGRAM)) as taking,
        source.run(lambda: socket.socket(family, socket.SOCK_DGRAM)) as sending,
    ):
        taking.bind((address, 0))
        taking.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
        taking.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        taking.settimeout(_QUIET_S)
        delays_s: list[float] = []
        taker = threading.Thread(target=_take, args=(taking, delays_s))
        taker.start()
        place = taking.getsockname()[:2]
        for number in range(count):
            sending.sendto(_STAMP.pack(number, time.time_ns()) + bytes(84), place)
            time.sleep(gap_s)
        taker.join()
    return delays_s


def _take(taking: socket.socket, delays_s: list[float]) -> None:
    while True:
        try:
            data, extra, *_ = taking.recvmsg(2048, 256)
        except TimeoutError:
            return
        seconds, nanoseconds = _STAMP.unpack(extra[0][2][:16])
        _, sent_ns = _STAMP.unpack(data[:16])
        delays_s.append((seconds * 10**9 + nanoseconds - sent_ns) / 1e9)


class Connection:
    """One TCP connection from a host to another."""

    def __init__(self, source: Namespace, target: Namespace, address: str) -> None:
        with target.run(lambda: socket.create_server((address, 0))) as listening:
            place = listening.getsockname()
            self.sending = source.run(lambda: socket.create_connection(place, timeout=60))
            self.taking, _ = listening.accept()
        self.taking.settimeout(60)
        for end in (self.sending, self.taking):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.sending.close()
        self.taking.close()

    def message_s(self, wire_bytes: int) -> float:
        """Send so much that it is `wire_bytes` with its headers; return how long it took."""
        size = wire_bytes * _PAYLOAD_BYTES // _PACKET_BYTES
        sender = threading.Thread(target=self.sending.sendall, args=(bytes(size),))
        begun = time.perf_counter()
        sender.start()
        while size:
            size -= len(self.taking.recv(min(size, 1 << 20)))
        taken_s = time.perf_counter() - begun
        sender.join()
        return taken_s

    def echo_s(self) -> float:
        begun = time.perf_counter()
        self.sending.sendall(b"x" * 16)
        self.taking.sendall(self.taking.recv(64))
        self.sending.recv(64)
        return time.perf_counter() - begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What one bulk stream carried, headers included, and the round trip beside it."""

    bits_per_s: float
    loaded_rtt_s: float


def stream(
    source: Namespace, target: Namespace, address: str, *, settle_s: float, timed_s: float
) -> Stream:
    """Send as fast as TCP allows, and time echoes on another connection."""
    bulk, echoing = Connection(source, target, address), Connection(source, target, address)
    ended = threading.Event()

    def send() -> None:
        bulk.sending.settimeout(0.2)
        while not ended.is_set():
            try:
                bulk.sending.send(bytes(1 << 18))
            except TimeoutError:
                continue

    arrived: list[tuple[float, int]] = []

    def take() -> None:
        with contextlib.suppress(ConnectionResetError):  # the stream has been given up
            while data := bulk.taking.recv(1 << 20):
                arrived.append((time.perf_counter(), len(data)))

    threads = [threading.Thread(target=send), threading.Thread(target=take)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    rtts_s = []
    while (now := time.perf_counter()) < begun + settle_s + timed_s:
        rtt_s = echoing.echo_s()
        if now >= begun + settle_s:
            rtts_s.append(rtt_s)
    end = time.perf_counter()
    timed = [(at, size) for at, size in arrived if begun + settle_s <= at <= end]
    ended.set()
    threads[0].join()
    bulk.sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bulk.sending.close()
    bulk.taking.shutdown(socket.SHUT_RDWR)
    threads[1].join()
    bulk.close()
    echoing.close()
    span_s = timed[-1][0] - timed[0][0]
    payload = sum(size for _, size in timed[1:])
    return Stream(
        bits_per_s=payload * 8 / span_s * _PACKET_BYTES / _PAYLOAD_BYTES,
        loaded_rtt_s=statistics.median(rtts_s),
    )
