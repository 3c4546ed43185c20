"""Slow clients of the web server: a request gets a thread only once it has fully arrived.

Gunicorn's threads read requests without a time limit. A few connections that send a byte now and
then occupy all threads and keep everybody else out. Here one loop reads all requests, without a
thread for each connection. It drops requests that take too long, and those of an address with too
many connections. It also waits for clients that do not close a finished connection.

Threads read bodies that are long or chunked, at most `MOST_UPLOADS` at once and within the same
time.

A thread that sends an answer waits for its client at most `ANSWER_WITHIN_S`, and a second more for
each `LEAST_BYTES_PER_S` that the client reads. If too many answers have waited, the oldest are
ended. A stream of events is not limited while its client reads what is sent.
"""

from __future__ import annotations

import contextlib
import errno
import re
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

# Of a request, from its first moment: head and body.
REQUEST_WITHIN_S = 15.0
# Connections whose request is not there yet: of one address, and of all.
MOST_OF_AN_ADDRESS = 200
MOST_INCOMPLETE = 500
MOST_UPLOADS = 16
# For its client, in all: what the kernel takes at once, some 2 MB, waits for nobody.
ANSWER_WITHIN_S = 15.0
LEAST_BYTES_PER_S = 16 * 1024
# Answers whose clients are slow: of one address, and of all.
MOST_SLOW_OF_AN_ADDRESS = 16
MOST_SLOW_ANSWERS = 32
_SLOW_S = 0.25
# Longer heads are left to Gunicorn, which refuses them, and longer bodies to a thread.
_LONGEST_HEAD_BYTES = 64 * 1024
_LONGEST_BODY_BYTES = 64 * 1024
# For so long a connection that is over waits for its client to close it.
_LINGER_S = 2.0
_LOOK_EVERY_S = 0.2
_NO_FILES_PAUSE_S = 0.1
_CHUNK_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?=\r\n)", re.IGNORECASE)
_MOST_DIGITS = 18  # of a length; Gunicorn takes longer ones too
_LEFT_TO_A_THREAD = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


def missing_bytes(text: bytes | bytearray) -> int | None:
    """Return how many more bytes a request needs at least; None: leave the rest to a thread."""
    head_end = text.find(b"\r\n\r\n")
    if head_end < 0:
        return None if len(text) > _LONGEST_HEAD_BYTES else 1
    head = bytes(text[: head_end + 2])
    if _LEFT_TO_A_THREAD.search(head):
        return None
    length = _LENGTH.search(head)
    if length is not None and len(length[1]) > _MOST_DIGITS:
        return None
    body_bytes = 0 if length is None else int(length[1])
    if body_bytes > _LONGEST_BODY_BYTES:
        return None
    return max(0, head_end + 4 + body_bytes - len(text))


class PendingResponses:
    """The answers that have waited for their clients, the oldest first. For all threads.

    `most_of_an_address`: None for any number.
    """

    def __init__(self, *, most_of_an_address: int | None) -> None:
        self._most_of_an_address = most_of_an_address
        self._answers: dict[Answer, None] = {}
        self._lock = threading.Lock()

    def add(self, answer: Answer) -> None:
        """Take notice of one, and end the oldest if they are too many."""
        with self._lock:
            self._answers[answer] = None
            of_address = [one for one in self._answers if one.address == answer.address]
            most = self._most_of_an_address
            if most is not None and len(of_address) > most:
                self._end(of_address[0])
            if len(self._answers) > MOST_SLOW_ANSWERS:
                self._end(next(iter(self._answers)))

    def discard(self, answer: Answer) -> None:
        """Forget one that is over."""
        with self._lock:
            self._answers.pop(answer, None)

    def _end(self, answer: Answer) -> None:
        answer.is_given_up = True
        del self._answers[answer]


class Answer:
    """One answer, sent over a socket: its client has to take it. For one thread.

    `is_given_up`: another thread has ended it, which it notices soon.
    """

    def __init__(
        self,
        sock: Any,
        *,
        address: str,
        slow: PendingResponses,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.is_given_up = False
        self._sock = sock
        self._slow = slow
        self._is_slow = False
        self._clock = clock
        self._waited_s = 0.0
        self._taken_bytes = 0  # since it is slow: before, the kernel has taken them

    def sendall(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            BrokenPipeError: the client has not taken it in time.
        """
        limit_s = self._sock.gettimeout()
        left = memoryview(data)
        try:
            while left:
                left = left[self._send(left[:_CHUNK_BYTES]) :]
        finally:
            self._sock.settimeout(limit_s)

    def close_answer(self) -> None:
        """Forget the answer; the socket stays as it is."""
        self._slow.discard(self)

    def _send(self, piece: memoryview) -> int:
        left_s = ANSWER_WITHIN_S + self._taken_bytes / LEAST_BYTES_PER_S - self._waited_s
        if left_s <= 0 or self.is_given_up:
            # What the kernel still has for this client is not kept for it.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise BrokenPipeError(errno.EPIPE, "the client does not take its answer")
        self._sock.settimeout(min(left_s, _SLOW_S))
        begun_s = self._clock()
        try:
            sent: int = self._sock.send(piece)
        except TimeoutError:
            sent = 0
        self._waited_s += self._clock() - begun_s
        if self._is_slow:
            self._taken_bytes += sent
        elif self._waited_s >= _SLOW_S:
            self._is_slow = True
            self._slow.add(self)
        return sent


class ClientSocket:
    """A client's connection, which is a socket to the server that it is given to.

    The server's loop reads the client's next request; a thread then reads it again from here. What
    it sends is an answer, which the client has to take.
    """

    def __init__(self, sock: socket.socket, *, peer: Any, slow: PendingResponses) -> None:
        self.peer = peer
        self.address: str = peer[0] if isinstance(peer, tuple) else ""
        self.connection: Any = None  # what the server makes of it
        self.text = bytearray()  # read, and not yet taken by a thread
        self.deadline_s = 0.0
        self.is_over = False  # only waits for its client to close it
        self.is_in_recv = False  # of a thread
        self.is_at_end = False  # no more is read of it, and a request may be incomplete
        self._sock = sock
        self._slow = slow
        self._answer = Answer(sock, address=self.address, slow=slow)
        self._is_shaken = not isinstance(sock, ssl.SSLSocket)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def fileno(self) -> int:
        """Return the socket's."""
        return self._sock.fileno()

    def read_on(self) -> bool:
        """Read until the request is there, without waiting; False if the client has gone."""
        try:
            if not self._is_shaken:
                self._sock.do_handshake()  # type: ignore[attr-defined] # of a TLS socket
                self._is_shaken = True
            if self.is_over:
                return bool(self._sock.recv(_CHUNK_BYTES))
            while missing_bytes(self.text):
                piece = self._sock.recv(_CHUNK_BYTES)
                if not piece:
                    return False
                self.text += piece
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except (OSError, ValueError):
            return False
        return True

    def recv(self, most_bytes: int) -> bytes:
        """Return what was read, or read on in a thread, until the deadline; then nothing more."""
        if not self.text:
            self.text += self._recv_in_time()
        piece = bytes(self.text[:most_bytes])
        del self.text[:most_bytes]
        return piece

    def end_request(self) -> None:
        """Let the thread that reads the request find its end. For any thread."""
        with contextlib.suppress(OSError):
            # Not that of a TLS socket: it would send the answer in clear.
            socket.socket.shutdown(self._sock, socket.SHUT_RD)

    def begin_answer(self) -> None:
        """Give the client its time for the answer that follows."""
        self._answer = Answer(self._sock, address=self.address, slow=self._slow)

    def sendall(self, data: bytes) -> None:
        """Send a part of the answer.

        Raises:
            BrokenPipeError: the client has not taken it in time.
        """
        self._answer.sendall(data)

    def send(self, data: bytes) -> int:
        """Send it all, as `sendall` does. Gunicorn sends its interim answers by this."""
        self._answer.sendall(data)
        return len(data)

    def end_answer(self, read_ahead: bytes) -> None:
        """Forget the answer. `read_ahead`: what the thread has read of the next request."""
        self._answer.close_answer()
        self.text[:0] = read_ahead

    def _recv_in_time(self) -> bytes:
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            self.is_at_end = True
            return b""
        limit_s = self._sock.gettimeout()  # Gunicorn's own, where it reads what nobody wanted
        self.is_in_recv = True
        self._sock.settimeout(left_s if limit_s is None else min(left_s, limit_s))
        try:
            # A whole record of TLS: for the rest of one the loop would wait in vain.
            piece: bytes = self._sock.recv(_CHUNK_BYTES)
        except TimeoutError:
            piece = b""
        finally:
            self.is_in_recv = False
            self._sock.settimeout(limit_s)
        self.is_at_end = not piece
        return piece


class RequestReader:
    """Reads the requests of all connections in one loop, the server's own.

    - `on_request` is called with each connection whose request is there; `on_closed` with one
      that is given up or over
    - `is_behind_proxy`: all connections are the proxy's, and have one address
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        *,
        tls: ssl.SSLContext | None,
        is_behind_proxy: bool,
        on_request: Callable[[ClientSocket], None],
        on_closed: Callable[[ClientSocket], None],
    ) -> None:
        self._poller = poller
        self._tls = tls
        self._on_request = on_request
        self._on_closed = on_closed
        self._most_of_an_address = None if is_behind_proxy else MOST_OF_AN_ADDRESS
        self._slow = PendingResponses(
            most_of_an_address=None if is_behind_proxy else MOST_SLOW_OF_AN_ADDRESS
        )
        self._incomplete: dict[ClientSocket, None] = {}  # the oldest first
        self._counts: Counter[str] = Counter()
        self._uploads: dict[ClientSocket, None] = {}
        self._looks_at_s = 0.0

    def accept(self, listener: socket.socket) -> ClientSocket | None:
        """Take a connection; None: there is none."""
        try:
            sock, peer = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._save_files()
            return None  # or it has gone again
        try:
            sock.setblocking(False)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:
            sock.close()
            return None
        return ClientSocket(sock, peer=peer, slow=self._slow)

    def begin(self, client: ClientSocket) -> None:
        """Read the next request of a connection."""
        client.deadline_s = time.monotonic() + REQUEST_WITHIN_S
        client.setblocking(False)
        if self._register(client):
            self._make_room(client.address)
            self._on_readable(client)

    def end(self, client: ClientSocket, *, read_ahead: bytes) -> None:
        """Take notice that a thread has answered, and of what it has read too much."""
        self._uploads.pop(client, None)
        client.end_answer(read_ahead)

    def close_gracefully(self, client: ClientSocket) -> None:
        """Let the client close its connection, which is over."""
        try:
            client.setblocking(False)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(client)
            return
        client.is_over, client.deadline_s = True, time.monotonic() + _LINGER_S
        if self._register(client):
            self._on_readable(client)

    def drop_late(self, *, is_stopping: bool) -> None:
        """Drop what has had its time. Called after each event, and once a second at least.

        A server that stops waits no longer than for a connection that is over.
        """
        now_s = time.monotonic()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + _LOOK_EVERY_S
        for client in self._incomplete:
            if is_stopping:
                client.deadline_s = min(client.deadline_s, now_s + _LINGER_S)
        for client in [one for one in self._incomplete if one.deadline_s <= now_s]:
            self._drop(client)
        self._bound_uploads()

    def _save_files(self) -> None:
        """Give up the oldest request that is not there, or wait for others to end."""
        if self._incomplete:
            self._drop(next(iter(self._incomplete)))
        else:
            time.sleep(_NO_FILES_PAUSE_S)

    def _register(self, client: ClientSocket) -> bool:
        try:
            self._poller.register(client, selectors.EVENT_READ, lambda _: self._on_readable(client))
        except (OSError, ValueError):  # it was closed meanwhile
            self._close(client)
            return False
        self._incomplete[client] = None
        self._counts[client.address] += 1
        return True

    def _make_room(self, address: str) -> None:
        """Drop the oldest of those that are too many. What is dropped has not been read yet."""
        most = self._most_of_an_address
        if most is not None and self._counts[address] > most:
            self._drop(next(one for one in self._incomplete if one.address == address))
        if len(self._incomplete) > MOST_INCOMPLETE:
            self._drop(next(iter(self._incomplete)))

    def _on_readable(self, client: ClientSocket) -> None:
        if client not in self._incomplete:
            return
        if not client.read_on():
            self._drop(client)
            return
        missing = None if client.is_over else missing_bytes(client.text)
        if client.is_over or missing:
            return
        self._forget(client)
        if missing is None:
            self._uploads[client] = None
        client.begin_answer()
        self._on_request(client)

    def _bound_uploads(self) -> None:
        """End the oldest bodies that threads wait for, if there are too many."""
        too_many = max(0, len(self._uploads) - MOST_UPLOADS)
        waiting = [client for client in self._uploads if client.is_in_recv]
        for client in waiting[:too_many]:
            del self._uploads[client]
            client.end_request()

    def _forget(self, client: ClientSocket) -> None:
        del self._incomplete[client]
        self._counts[client.address] -= 1
        if not self._counts[client.address]:
            del self._counts[client.address]
        self._poller.unregister(client)

    def _drop(self, client: ClientSocket) -> None:
        self._forget(client)
        self._close(client)

    def _close(self, client: ClientSocket) -> None:
        client.close()
        self._on_closed(client)
