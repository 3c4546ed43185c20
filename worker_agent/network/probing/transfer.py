"""Sends streams of bytes between peers, to measure bandwidth without filling their queues.

The receiver takes the time, since bytes that left the sender may still wait in its queues. The
sender stays only a little ahead of what the receiver has acknowledged. Otherwise queues would
overflow, bytes would be sent again, and the rest would arrive in bursts.

Streams use the port of the probes. Each begins with the peer's rank and the attempt's token, and
waits for its turn.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass

from farm.gang.transfers import SEGMENT_BYTES, TransferPlan

_ORDER = struct.Struct("!QQQd")  # bytes, those before the clock starts, window, seconds at most
_WORD = struct.Struct("!QQd?")  # bytes so far, those timed, their seconds, whether it is over
_NO_MORE = _ORDER.pack(0, 0, 0, 0.0)
_BLOCK = bytes(256 * 1024)
# How often the receiver says how far it is.
_WORDS_A_WINDOW = 8
# How much longer than its limit the sender waits for the last word of what has arrived.
_LAST_WORD_S = 5.0
# Around what a segment carries: Ethernet 14, IP 20 or 40, TCP 20 and its timestamps 12.
_HEADER_BYTES = {socket.AF_INET: 66, socket.AF_INET6: 86}
# With no time to linger, closing throws away what has not left yet.
_NO_LINGER = struct.pack("ii", 1, 0)
_GREETING = struct.Struct("!16sQI?")  # what it is, the attempt's token, rank, is_settled
_MAGIC = b"visit-benchfarm!"
GREETING_BYTES = _GREETING.size
FIRST_BYTE = _MAGIC[:1]  # no probe begins with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What the peer has said of a transfer.

    `timed_bytes`: as the sender's interface counts them, headers included. One that is not whole
    took too long, and its connection is closed.
    """

    timed_bytes: int
    timed_s: float
    is_whole: bool

    @property
    def bytes_per_s(self) -> float:
        # All of it at once, between two readings of the clock.
        return self.timed_bytes / max(self.timed_s, 1e-9)


def send_transfer(connection: socket.socket, plan: TransferPlan, *, deadline: float) -> Arrived:
    """Send what is planned to a peer that is in `take_transfers`, and return what it says of it.

    Raises:
        OSError: the connection broke, or the peer says nothing.
    """
    until = min(deadline, time.monotonic() + plan.limit_s + _LAST_WORD_S)
    connection.settimeout(left_s(until))
    connection.sendall(
        _ORDER.pack(plan.byte_count, plan.untimed_bytes, plan.window_bytes, plan.limit_s)
    )
    received, timed_bytes, timed_s = _push(connection, plan, until)
    segment = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
    is_whole = received == plan.byte_count
    if not is_whole:
        # What is still queued would be in the way of the next transfer.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        connection.close()
    headers = timed_bytes / segment * _HEADER_BYTES[connection.family]
    return Arrived(timed_bytes=round(timed_bytes + headers), timed_s=timed_s, is_whole=is_whole)


def end_transfers(connection: socket.socket, *, deadline: float) -> None:
    """Tell the peer that no more will come. Raises OSError."""
    connection.settimeout(left_s(deadline))
    connection.sendall(_NO_MORE)


def take_transfers(connection: socket.socket, *, deadline: float) -> None:
    """Take what a peer sends and tell it how far it has come, until there is no more.

    Raises:
        OSError: the connection broke, or nothing comes any more.
    """
    is_whole = True
    while is_whole:
        order = _ORDER.unpack(receive_exactly(connection, _ORDER.size, deadline=deadline))
        byte_count, untimed_bytes, window_bytes, limit_s = order
        if not byte_count:
            return
        receipt = _Receipt(connection, byte_count, untimed_bytes, window_bytes)
        is_whole = receipt.take(until=min(deadline, time.monotonic() + limit_s))


def receive_exactly(connection: socket.socket, count: int, *, deadline: float) -> bytes:
    """Return the next `count` bytes. Raises OSError: they do not come."""
    data = b""
    while len(data) < count:
        connection.settimeout(left_s(deadline))
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed")
        data += part
    return data


def left_s(deadline: float) -> float:
    """Return the time left. Raises TimeoutError: there is none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _push(connection: socket.socket, plan: TransferPlan, until: float) -> tuple[int, int, float]:
    """Send as the peer's words allow; return its last one: bytes received, those timed, seconds."""
    sent = received = 0
    words = b""
    connection.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while True:
            window = min(plan.window_bytes, plan.first_bytes + received)
            allowed = min(plan.byte_count, received + window) - sent
            # Less than a segment would travel with as many headers as a whole one.
            may_send = allowed >= min(SEGMENT_BYTES, max(1, plan.byte_count - sent))
            selector.modify(
                connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if may_send else 0)
            )
            for _, events in selector.select(left_s(until)):
                if events & selectors.EVENT_WRITE:
                    sent += connection.send(_BLOCK[: allowed - allowed % SEGMENT_BYTES or allowed])
                if events & selectors.EVENT_READ:
                    data = connection.recv(4096)
                    if not data:
                        raise ConnectionResetError("the connection was closed")
                    words += data
            while len(words) >= _WORD.size:
                received, timed_bytes, timed_s, is_over = _WORD.unpack(words[: _WORD.size])
                words = words[_WORD.size :]
                if is_over:
                    return received, timed_bytes, timed_s


class _Receipt:
    """One transfer, where it arrives."""

    def __init__(
        self, connection: socket.socket, byte_count: int, untimed_bytes: int, window_bytes: int
    ) -> None:
        self._connection = connection
        self._byte_count = byte_count
        self._untimed_bytes = untimed_bytes
        self._word_every = max(1, window_bytes // _WORDS_A_WINDOW)
        self._received = 0
        self._reported = 0
        self._begun_s: float | None = None  # of what is timed; before that, of all
        self._begun_at = 0
        self._is_timed = False

    def take(self, *, until: float) -> bool:
        """Read it to its end or until the time is over; return whether it has come whole."""
        block = memoryview(bytearray(len(_BLOCK)))
        now = time.monotonic()
        while self._received < self._byte_count:
            try:
                self._connection.settimeout(left_s(until))
                count = self._connection.recv_into(block[: self._byte_count - self._received])
            except TimeoutError:
                break
            if not count:
                raise ConnectionResetError("the connection was closed")
            now = time.monotonic()
            self._received += count
            # The clock starts when nothing waits any more that has arrived before.
            self._watch(now, is_drained=count < len(block))
            if self._received - self._reported >= self._word_every:
                self._tell(0.0, is_over=False)
        is_whole = self._received == self._byte_count
        end = now if is_whole else time.monotonic()
        self._connection.settimeout(_LAST_WORD_S)
        self._tell(end - (self._begun_s or end), is_over=True)
        return is_whole

    def _watch(self, now: float, *, is_drained: bool) -> None:
        if self._is_timed:
            return
        self._is_timed = is_drained and self._received >= self._untimed_bytes
        if self._is_timed or self._begun_s is None:
            self._begun_s, self._begun_at = now, self._received

    def _tell(self, timed_s: float, *, is_over: bool) -> None:
        self._reported = self._received
        timed_bytes = self._received - self._begun_at
        self._connection.sendall(_WORD.pack(self._received, timed_bytes, timed_s, is_over))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingStream:
    """`is_settled`: the peer has timed all its round trips, and they are as asked."""

    rank: int
    is_settled: bool
    connection: socket.socket


def greeting(*, token: int, rank: int, is_settled: bool) -> bytes:
    """Return the first bytes of a stream."""
    return _GREETING.pack(_MAGIC, token, rank, is_settled)


class IncomingStreams:
    """At most one stream of each peer; other connections are refused."""

    def __init__(self, *, token: int, peers: frozenset[int]) -> None:
        self._token = token
        self._expected = peers
        self._waiting: dict[int, IncomingStream] = {}
        self._given: list[socket.socket] = []
        self._is_closed = False
        self._changed = threading.Condition()

    def admit(self, message: bytes, connection: socket.socket) -> bool:
        """Keep a connection, which is this object's from now on; False: it is none of ours."""
        if len(message) != _GREETING.size:
            return False
        magic, token, rank, is_settled = _GREETING.unpack(message)
        with self._changed:
            is_ours = magic == _MAGIC and token == self._token and rank in self._expected
            if not is_ours or self._is_closed:
                return False
            self._expected -= {rank}
            self._waiting[rank] = IncomingStream(
                rank=rank, is_settled=is_settled, connection=connection
            )
            self._changed.notify_all()
            return True

    def take(self, rank: int, *, deadline: float) -> IncomingStream:
        """Wait for a peer's stream. Raises TimeoutError: it has not come, or this is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: rank in self._waiting or self._is_closed,
                timeout=max(0.0, deadline - time.monotonic()),
            )
            if rank not in self._waiting:
                raise TimeoutError("it did not connect to send")
            stream = self._waiting.pop(rank)
            self._given.append(stream.connection)
            return stream

    def close(self) -> None:
        """Close every stream, also those that were taken, which ends their use."""
        with self._changed:
            self._is_closed = True
            for stream in self._waiting.values():
                stream.connection.close()
            for connection in self._given:
                # The other end may have gone, or it may be closed already.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._waiting.clear()
            self._changed.notify_all()
