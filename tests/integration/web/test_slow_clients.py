"""Clients of the web server that are slow on purpose, over real sockets, and those beside them."""

from __future__ import annotations

import errno
import http.client
import importlib.metadata
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from farm.embedded.redis import free_port
from farm.store.engine import writing
from tests.factories import add_job
from tests.fakes.server import wait_until
from tests.machine.beside import beside
from tests.services.certificates import Authority
from tests.web.web_client import NO_BROKER
from web.slow_clients import ClientSocket, PendingResponses

_SCRIPT = """
import sys
import web.server, web.slow_clients
for text in sys.argv[1:]:
    if text == "gunicorn alone":
        from gunicorn.workers.gthread import ThreadWorker
        web.server.SlowClientWorker = ThreadWorker
        continue
    name, _, value = text.partition("=")
    module = web.server if hasattr(web.server, name) else web.slow_clients
    assert hasattr(module, name)
    setattr(module, name, type(getattr(module, name))(value))
from farm.cli.main import main
main(["run", "web"])
"""
_PLOTLY = f"/static/plotly-{importlib.metadata.version('plotly')}.min.js"
_MUCH = f"GET {_PLOTLY} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
_HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


class Server:
    """The web server as a process, with bounds of the test's own."""

    def __init__(self, pid: int, port: int, context: ssl.SSLContext | None) -> None:
        self.port = port
        self._pid = pid
        self._context = context
        self.opened: list[socket.socket] = []

    def is_idle(self) -> bool:
        """Whether no thread of the process that answers has anything to do."""
        [worker] = psutil.Process(self._pid).children()
        tasks = Path(f"/proc/{worker.pid}/task").iterdir()
        return all((task / "stat").read_text().rpartition(")")[2][1] == "S" for task in tasks)

    def stop(self) -> None:
        """Ask it to stop, and wait for its end."""
        process = psutil.Process(self._pid)
        process.terminate()
        process.wait(60)

    def connect(self, text: bytes = b"") -> socket.socket:
        """Open a connection that says this and nothing more; over TLS it does not even shake."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.opened.append(sock)
        sock.sendall(text)
        return sock

    def shake_hands(self, text: bytes = b"") -> ssl.SSLSocket:
        """Open a connection over TLS that says this and nothing more."""
        assert self._context is not None
        sock = self._context.wrap_socket(self.connect(), server_hostname="127.0.0.1")
        self.opened.append(sock)
        sock.sendall(text)
        return sock

    def ask_for_much(self) -> socket.socket:
        """Ask for more than the kernel takes at once, and read none of it."""
        sock = socket.socket()
        self.opened.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", self.port))
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_hostname="127.0.0.1")
            self.opened.append(sock)
        sock.sendall(_MUCH)
        return sock

    def get(self, path: str) -> int:
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            if self._context is None
            else http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=60, context=self._context
            )
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def serving(
    database_url: str, *bounds: str, authority: Authority | None = None
) -> Iterator[Server]:
    port = free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FARM_")}
    environ = {
        **kept,
        "FARM_DATABASE_URL": database_url,
        "FARM_BROKER_URL": NO_BROKER,
        "FARM_WEB_PORT": str(port),
    }
    context = None
    if authority is not None:
        certificate = authority.issue("web", "127.0.0.1")
        environ["FARM_WEB_CERTIFICATE_FILE"] = str(certificate.file)
        environ["FARM_WEB_KEY_FILE"] = str(certificate.key)
        context = ssl.create_default_context(cafile=str(authority.file))
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, *bounds], env=environ, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    server = Server(process.pid, port, context)
    try:
        assert process.stdout.readline().startswith(b"dashboard at ")
        yield server
    finally:
        for sock in server.opened:
            sock.close()
        children = psutil.Process(process.pid).children() if process.poll() is None else []
        process.kill()  # first, or it may tell of a child that was killed
        for child in children:
            with suppress(psutil.NoSuchProcess):  # it ends without its parent
                child.kill()
        process.wait(timeout=60)
        process.stdout.close()


@contextmanager
def trickling(connections: list[socket.socket], text: bytes) -> Iterator[None]:
    """Send a byte on each connection again and again, for as long as it is taken."""

    def send(is_over: threading.Event) -> None:
        for place in range(10_000):
            for sock in connections:
                with suppress(OSError):
                    sock.send(text[place % len(text) :][:1])
                if is_over.is_set():
                    return

    try:
        with beside(send):
            yield
    finally:
        for sock in connections:
            sock.close()


@contextmanager
def sipping(connections: list[socket.socket]) -> Iterator[None]:
    """Read a byte of each connection again and again."""

    def sip(is_over: threading.Event) -> None:
        while not is_over.is_set():
            for sock in connections:
                sock.settimeout(0.01)
                with suppress(OSError):
                    sock.recv(1)

    with beside(sip):
        yield


def is_cut(sock: socket.socket) -> bool:
    """Whether the server has given the connection up, unread as it is."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


def unread_bytes(server: Server, sock: socket.socket) -> int:
    """What the server has received on a connection and no thread of it has read."""
    ports = (f":{server.port:04X}", f":{sock.getsockname()[1]:04X}")
    [queue] = [
        fields[4]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if (fields[1][-5:], fields[2][-5:]) == ports
    ]
    return int(queue.partition(":")[2], 16)


def is_closed(sock: socket.socket) -> bool:
    """Whether the server has closed the connection."""
    sock.settimeout(0.01)
    try:
        return sock.recv(65536) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_forty_viewers_and_three_hundred_slow_connections_keep_nobody_out(
    engine: sa.Engine, database_url: str
) -> None:
    with writing(engine) as session:
        add_job(session)
    stream = b"GET /api/v1/events?sweep=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(database_url) as server:
        viewers = [server.connect(stream) for _ in range(40)]
        for viewer in viewers:
            assert viewer.recv(12) == b"HTTP/1.1 200"
        slow = [server.connect(_HEAD) for _ in range(300)]
        with trickling(slow, b"X-Slow: yes\r\n"):
            for _ in range(20):
                assert server.get("/health/live") == 200
            assert server.get("/") == 200
            for viewer in viewers:
                assert not is_closed(viewer)
                viewer.close()


_BODY = b"POST /api/v1/sweeps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        _HEAD,
        _BODY + b"Content-Length: 1000\r\n\r\n{",
        _BODY + b"Content-Length: 900000\r\n\r\n{",
        _BODY + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        _HEAD + b"\r\n" + _HEAD,
    ],
    ids=["nothing", "a head", "a short body", "a long body", "chunks", "a second request"],
)
def test_a_request_has_one_deadline(engine: sa.Engine, database_url: str, text: bytes) -> None:
    with serving(database_url, "REQUEST_WITHIN_S=0.5") as server:
        sock = server.connect(text)
        wait_until(lambda: is_closed(sock), "the connection is closed")
        sock.close()
        assert server.get("/health/live") == 200


def test_gunicorn_alone_is_kept_by_slow_clients(engine: sa.Engine, database_url: str) -> None:
    """Once this fails, `web.gunicorn_worker` may be needed no more."""
    with serving(database_url, "_THREADS=1", "gunicorn alone") as server:
        slow = server.connect(_HEAD)
        wait_until(lambda: unread_bytes(server, slow) == 0, "the thread has begun to read it")
        other = server.connect(_HEAD + b"\r\n")
        wait_until(lambda: server.is_idle() and unread_bytes(server, other) > 0, "it waits")
        slow.sendall(b"\r\n")
        assert slow.recv(12) == other.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("length", ["9" * 12, "9" * 25, "9" * 5000])
def test_an_absurd_length_is_refused_without_a_traceback(
    engine: sa.Engine, database_url: str, capfd: pytest.CaptureFixture[str], length: str
) -> None:
    with serving(database_url) as server:
        sock = server.connect(_BODY + f"Content-Length: {length}\r\n\r\n{{".encode())
        sock.shutdown(socket.SHUT_WR)
        answered = b""
        while piece := sock.recv(65536):
            answered += piece
        assert answered[9:12] in (b"400", b"413")
        sock.close()
        assert server.get("/health/live") == 200
    assert len(capfd.readouterr().err.splitlines()) <= 1


def test_no_slow_body_keeps_anybody_out(engine: sa.Engine, database_url: str) -> None:
    with serving(database_url, "_THREADS=4", "MOST_UPLOADS=2") as server:
        slow = [server.connect(_BODY + b"Content-Length: 900000\r\n\r\n") for _ in range(30)]
        with trickling(slow, b" "):
            for _ in range(5):
                assert server.get("/health/live") == 200


@pytest.mark.parametrize("bound", ["MOST_SLOW_OF_AN_ADDRESS=2", "MOST_SLOW_ANSWERS=2"])
def test_no_slow_reader_of_answers_keeps_anybody_out(
    engine: sa.Engine, database_url: str, bound: str
) -> None:
    with serving(database_url, "_THREADS=4", "ANSWER_WITHIN_S=3600", bound) as server:
        slow = [server.ask_for_much() for _ in range(20)]
        with sipping(slow):
            for _ in range(5):
                assert server.get("/health/live") == 200


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "TLS"])
def test_a_client_that_does_not_take_its_answer_is_dropped(
    engine: sa.Engine, database_url: str, tmp_path: Path, is_encrypted: bool
) -> None:
    authority = Authority(tmp_path) if is_encrypted else None
    with serving(database_url, "ANSWER_WITHIN_S=0.3", authority=authority) as server:
        slow = server.ask_for_much()
        wait_until(lambda: is_cut(slow), "it is cut")
        assert server.get("/health/live") == 200


def test_an_address_has_so_many_requests_under_way_and_the_oldest_go_first(
    engine: sa.Engine, database_url: str
) -> None:
    with serving(database_url, "MOST_OF_AN_ADDRESS=3") as server:
        slow = [server.connect(_HEAD) for _ in range(5)]
        for old in slow[:2]:
            wait_until(lambda old=old: is_closed(old), "it makes room")  # type: ignore[misc]
        assert server.get("/health/live") == 200
        slow[-1].sendall(b"\r\n")
        assert slow[-1].recv(12) == b"HTTP/1.1 200"
        for sock in slow:
            sock.close()


def test_requests_sent_at_once_are_all_answered(engine: sa.Engine, database_url: str) -> None:
    with serving(database_url) as server:
        sock = server.connect((_HEAD + b"\r\n") * 3)
        answered = b""
        while answered.count(b"HTTP/1.1 200") < 3:
            piece = sock.recv(65536)
            assert piece, answered
            answered += piece
        sock.close()


def test_over_tls_silent_connections_keep_nobody_out(
    engine: sa.Engine, database_url: str, tmp_path: Path
) -> None:
    with serving(database_url, "_THREADS=4", authority=Authority(tmp_path)) as server:
        slow: list[Callable[[], None]] = [server.connect(b"\x16").close for _ in range(30)]
        assert server.get("/health/live") == 200
        assert server.get("/") == 200
        for close in slow:
            close()


def received(sock: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    text = b""
    while piece := sock.recv(65536):
        text += piece
    return text


def test_a_half_closed_client_gets_all_its_answers(engine: sa.Engine, database_url: str) -> None:
    with serving(database_url) as server:
        sock = server.connect((_HEAD + b"\r\n") * 3)
        sock.shutdown(socket.SHUT_WR)
        assert received(sock).count(b"HTTP/1.1 200") == 3


def test_over_tls_a_request_right_behind_a_long_body_is_answered(
    engine: sa.Engine, database_url: str, tmp_path: Path
) -> None:
    """A thread reads bodies by 8 kB: it ends amidst a record, and TLS holds the rest of that."""
    with serving(database_url, authority=Authority(tmp_path)) as server:
        sock = server.shake_hands()
        head = _BODY + b"Content-Length: 90000\r\n\r\n"
        body_bytes = 5 * 16384 + 8192 - len(head)
        head = head.replace(b"90000", str(body_bytes).encode())
        sock.sendall(head + b" " * body_bytes + _HEAD + b"\r\n")
        answered = received(sock)
        assert answered.startswith(b"HTTP/1.1 400")
        assert answered.count(b"HTTP/1.1 200") == 1


def test_over_tls_an_upload_that_is_given_up_is_not_answered_in_clear(
    engine: sa.Engine, database_url: str, tmp_path: Path
) -> None:
    with serving(database_url, "MOST_UPLOADS=1", authority=Authority(tmp_path)) as server:
        text = _BODY + b"Content-Length: 900000\r\n\r\n"
        first, _ = [server.shake_hands(text) for _ in range(2)]
        with socket.socket(fileno=os.dup(first.fileno())) as below:
            below.settimeout(60)
            assert b"HTTP" not in received(below)


def test_a_length_of_many_digits_keeps_nobody_out(engine: sa.Engine, database_url: str) -> None:
    bounds = ("_THREADS=2", "MOST_UPLOADS=1", "REQUEST_WITHIN_S=3600")
    with serving(database_url, *bounds) as server:
        text = _BODY + b"Content-Length: " + b"9" * 25 + b"\r\n\r\n"
        slow = [server.connect(text) for _ in range(40)]
        with trickling(slow, b" "):
            for _ in range(2):
                assert server.get("/health/live") == 200


def test_a_connection_whose_request_is_given_up_is_over() -> None:
    """What comes of its body later must not be taken for a request."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(_HEAD)
        slow = PendingResponses(most_of_an_address=None)
        client = ClientSocket(ours, peer=("127.0.0.1", 1), slow=slow)
        client.deadline_s = time.monotonic() + 60
        assert client.recv(8192) == _HEAD
        assert not client.is_at_end
        client.deadline_s = 0.0
        assert client.recv(8192) == b""
        assert client.is_at_end


def test_a_server_that_stops_drops_requests_that_are_incomplete(
    engine: sa.Engine, database_url: str
) -> None:
    with serving(database_url, "_STOP_TIMEOUT_S=3600") as server:
        slow = server.connect(_HEAD)
        assert server.get("/health/live") == 200
        server.stop()
        assert is_closed(slow)
