"""A threaded gunicorn worker that gives a request a thread only once it has fully arrived.

Gunicorn reads requests in its threads, without an end: as many connections that send a byte now and
then as there are threads keep everybody else out. Here the main loop reads them, for which a
connection costs no thread, and drops those that take too long or are too many of one address. It
also waits there for clients that do not close a connection that is over, as Gunicorn's main loop
would for each by itself.

Bodies that are long or come in chunks are left to the threads, within the same time: at most
`MOST_UPLOADS` of them.

A thread that sends an answer waits for its client, at most for `ANSWER_WITHIN_S` and a second more
for each `LEAST_BYTES_PER_S` that it takes. Of the answers that have waited at all, the oldest end
when they are too many. A stream of events waits for nothing while its client takes what comes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
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

from gunicorn import http  # type: ignore[import-untyped] # it has none
from gunicorn.sock import ssl_context  # type: ignore[import-untyped]
from gunicorn.workers.gthread import TConn, ThreadWorker  # type: ignore[import-untyped]

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
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_LEFT_TO_A_THREAD = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)


def missing_bytes(text: bytes | bytearray) -> int | None:
    """Return how many bytes a request lacks at least; None: a thread is to read the rest."""
    head_end = text.find(b"\r\n\r\n")
    if head_end < 0:
        return None if len(text) > _LONGEST_HEAD_BYTES else 1
    head = bytes(text[: head_end + 2])
    if _LEFT_TO_A_THREAD.search(head):
        return None
    length = _LENGTH.search(head)
    body_bytes = 0 if length is None else int(length[1])
    if body_bytes > _LONGEST_BODY_BYTES:
        return None
    return max(0, head_end + 4 + body_bytes - len(text))


def worker_class(*, is_behind_proxy: bool) -> type[PatientWorker]:
    """Return the class of worker to serve with. All connections of a proxy have one address."""
    most = None if is_behind_proxy else MOST_OF_AN_ADDRESS
    slow = None if is_behind_proxy else MOST_SLOW_OF_AN_ADDRESS
    bounds = {"most_of_an_address": most, "most_slow_of_an_address": slow}
    return type("PatientWorker", (PatientWorker,), bounds)


class Connection(TConn):  # type: ignore[misc] # gunicorn has no types
    """A connection with what was read of its next request, until when that has to be there."""

    parser: Any

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.address = client[0] if isinstance(client, tuple) else ""
        self.text = bytearray()
        self.deadline_s = 0.0
        self.is_over = False  # only waits for its client to close it
        self.is_in_recv = False  # of a thread
        self._is_shaken = not isinstance(sock, ssl.SSLSocket)

    def init(self) -> None:
        """Hand what was read to Gunicorn's parser. Called by a thread before each request."""
        if self.parser is None:
            self.parser = http.get_parser(self.cfg, self.sock, self.client)
            self.parser.unreader.chunk = self._chunk
        self.initialized = True
        self.parser.unreader.unread(bytes(self.text))
        self.text.clear()

    def read_on(self) -> bool:
        """Read what has come, without waiting; False if the client has gone."""
        try:
            if not self._is_shaken:
                self.sock.do_handshake()
                self._is_shaken = True
            while piece := self.sock.recv(_CHUNK_BYTES):
                if not self.is_over:
                    self.text += piece
                    if missing_bytes(self.text) in (0, None):
                        return True
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except (OSError, ValueError):
            return False
        return False

    def _chunk(self, size_hint: int | None = None) -> bytes:
        """Read on in a thread, until the same deadline; nothing more after that.

        The hint is what the client says that it sends, which may be more than there is memory.
        """
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            return b""
        limit_s = self.sock.gettimeout()  # Gunicorn's own, where it reads what nobody wanted
        self.is_in_recv = True
        self.sock.settimeout(left_s if limit_s is None else min(left_s, limit_s))
        try:
            received: bytes = self.sock.recv(_CHUNK_BYTES)
        except TimeoutError:
            return b""
        finally:
            self.is_in_recv = False
            self.sock.settimeout(limit_s)
        return received


class SlowAnswers:
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
    """A socket, for one answer: its client has to take what is sent. For one thread.

    `is_given_up`: another thread has ended it, which it notices soon.
    """

    def __init__(
        self,
        sock: Any,
        *,
        address: str,
        slow: SlowAnswers,
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

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


class PatientWorker(ThreadWorker):  # type: ignore[misc] # gunicorn has no types
    """`most_of_an_address`: how many requests of one address may be incomplete; None: all.

    `most_slow_of_an_address`: how many of its answers may wait for it.
    """

    most_of_an_address: int | None = MOST_OF_AN_ADDRESS
    most_slow_of_an_address: int | None = MOST_SLOW_OF_AN_ADDRESS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._incomplete: dict[Connection, None] = {}  # the oldest first
        self._counts: Counter[str] = Counter()
        self._uploads: dict[Connection, None] = {}
        self._slow = SlowAnswers(most_of_an_address=self.most_slow_of_an_address)
        self._looks_at_s = 0.0
        self._tls = ssl_context(self.cfg) if self.cfg.is_ssl else None

    def accept(self, listener: Any) -> None:
        """Take a connection, and read its request before anything else."""
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._save_files()
            return  # or it has gone again
        try:
            sock.setblocking(False)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:
            sock.close()
            return
        self.nr_conns += 1
        self._begin(Connection(self.cfg, sock, client, listener.getsockname()))

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        """Read the next request of a connection that was kept."""
        self.poller.unregister(client)
        self.keepalived_conns.remove(conn)
        self._begin(conn)

    def handle_request(self, req: Any, conn: Connection) -> Any:
        """Let the client take the answer in time. Called by a thread."""
        sock = conn.sock
        answer = conn.sock = Answer(sock, address=conn.address, slow=self._slow)
        try:
            return super().handle_request(req, conn)
        finally:
            answer.close_answer()
            conn.sock = sock

    def finish_request(self, conn: Connection, fs: Any) -> None:
        """Keep a connection, or let its client close it."""
        self._uploads.pop(conn, None)
        is_kept = not fs.cancelled() and fs.exception() is None and fs.result()
        if not is_kept:
            self._linger(conn)
        elif conn.parser.unreader.buf.getvalue():
            conn.text += conn.parser.unreader.take_buffered()  # of the next request
            self._begin(conn)
        else:
            super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """Drop what has had its time. Called after each event, and once a second at least."""
        now_s = time.monotonic()
        if now_s < self._looks_at_s:
            return
        self._looks_at_s = now_s + _LOOK_EVERY_S
        for conn in [conn for conn in self._incomplete if conn.deadline_s <= now_s]:
            self._drop(conn)
        self._bound_uploads()

    def _cap_keepalive(self, deadline: float) -> None:
        super()._cap_keepalive(deadline)
        for conn in self._incomplete:
            conn.deadline_s = min(conn.deadline_s, deadline)

    def _save_files(self) -> None:
        """Give up the oldest request that is not there, or wait for others to end."""
        if self._incomplete:
            self._drop(next(iter(self._incomplete)))
        else:
            time.sleep(_NO_FILES_PAUSE_S)

    def _begin(self, conn: Connection) -> None:
        conn.deadline_s = time.monotonic() + REQUEST_WITHIN_S
        conn.sock.setblocking(False)
        if self._register(conn):
            self._make_room(conn.address)
            self._on_readable(conn, conn.sock)

    def _linger(self, conn: Connection) -> None:
        try:
            conn.sock.setblocking(False)
            conn.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.nr_conns -= 1
            conn.close()
            return
        conn.is_over, conn.deadline_s = True, time.monotonic() + _LINGER_S
        if self._register(conn):
            self._on_readable(conn, conn.sock)

    def _register(self, conn: Connection) -> bool:
        try:
            callback = functools.partial(self._on_readable, conn)
            self.poller.register(conn.sock, selectors.EVENT_READ, callback)
        except (OSError, ValueError):  # it was closed meanwhile
            self.nr_conns -= 1
            conn.close()
            return False
        self._incomplete[conn] = None
        self._counts[conn.address] += 1
        return True

    def _make_room(self, address: str) -> None:
        """Drop the oldest of those that are too many. What is dropped has not been read yet."""
        most = self.most_of_an_address
        if most is not None and self._counts[address] > most:
            self._drop(next(conn for conn in self._incomplete if conn.address == address))
        if len(self._incomplete) > MOST_INCOMPLETE:
            self._drop(next(iter(self._incomplete)))

    def _on_readable(self, conn: Connection, client: Any) -> None:
        if conn not in self._incomplete:
            return
        if not conn.read_on():
            self._drop(conn)
            return
        missing = None if conn.is_over else missing_bytes(conn.text)
        if conn.is_over or missing:
            return
        self._forget(conn)
        conn.data_ready = True
        if missing is None:
            self._uploads[conn] = None
        self.enqueue_req(conn)

    def _bound_uploads(self) -> None:
        """End the oldest bodies that threads wait for, if there are too many."""
        too_many = max(0, len(self._uploads) - MOST_UPLOADS)
        waiting = [conn for conn in self._uploads if conn.is_in_recv]
        for conn in waiting[:too_many]:
            del self._uploads[conn]
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RD)

    def _forget(self, conn: Connection) -> None:
        del self._incomplete[conn]
        self._counts[conn.address] -= 1
        if not self._counts[conn.address]:
            del self._counts[conn.address]
        self.poller.unregister(conn.sock)

    def _drop(self, conn: Connection) -> None:
        self._forget(conn)
        self.nr_conns -= 1
        conn.close()
