"""The web server as a process: it starts, refuses to start, stops, and leaves nothing behind."""

from __future__ import annotations

import datetime as dt
import http.client
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from farm.configuration.bundle import ScriptBundle
from farm.store.access.api_tokens import revoke_token
from farm.store.engine import writing
from tests.services.postgres_programs import unprivileged_user
from tests.web.web_client import NO_BROKER, make_api_token

_COMMAND = [sys.executable, "-m", "farm.cli.main", "run", "web"]
_DEADLINE_S = 240


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environ(database_url: str, port: int, **changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FARM_")}
    return {
        **kept,
        "FARM_DATABASE_URL": database_url,
        "FARM_BROKER_URL": NO_BROKER,
        "FARM_WEB_PORT": str(port),
        **changes,
    }


@contextmanager
def _server(database_url: str, port: int, **changes: str) -> Iterator[subprocess.Popen[str]]:
    environ = _environ(database_url, port, **changes)
    process = subprocess.Popen(_COMMAND, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"dashboard at http://127.0.0.1:{port}/\n"
        yield process
    finally:
        for child in psutil.Process(process.pid).children() if process.poll() is None else []:
            child.kill()
        process.kill()
        process.wait(timeout=60)
        assert process.stdout is not None
        process.stdout.close()


def _refusal(environ: dict[str, str]) -> tuple[int, str]:
    ended = subprocess.run(
        _COMMAND, env=environ, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    assert ended.stdout == ""
    return ended.returncode, ended.stderr


def _send_script(port: int, *, uid: int | None = None, source_port: int = 0) -> int:
    """Send a bundle as that user, from that port; return the status of the answer."""
    archive = ScriptBundle({"train.py": b"print(1)"}).archive
    send = (
        "import http.client, socket, sys\n"
        "connection = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=60)\n"
        "connection.sock = socket.socket()\n"
        "connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "connection.sock.bind(('127.0.0.1', int(sys.argv[2])))\n"
        "connection.sock.connect(('127.0.0.1', int(sys.argv[1])))\n"
        "connection.request('POST', '/api/v1/bundles', body=sys.stdin.buffer.read(),"
        " headers={'Content-Type': 'application/zip'})\n"
        "print(connection.getresponse().status)"
    )
    # Not of a virtual environment, which another user may not be able to read.
    python = os.path.realpath(sys.executable) if uid is None else "/usr/bin/python3"
    sent = subprocess.run(
        [python, "-I", "-c", send, str(port), str(source_port)],
        input=archive,
        capture_output=True,
        timeout=_DEADLINE_S,
        check=True,
        cwd="/",
        user=uid,
    )
    return int(sent.stdout)


def _get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_frees_its_port(
    engine: sa.Engine, database_url: str, number: signal.Signals
) -> None:
    port = _free_port()
    with _server(database_url, port) as process:
        assert _get(port, "/") == 200
        workers = psutil.Process(process.pid).children()
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert _is_free(port)
        assert not psutil.wait_procs(workers, timeout=60)[1]


def test_a_killed_server_leaves_no_worker(engine: sa.Engine, database_url: str) -> None:
    port = _free_port()
    with _server(database_url, port) as process:
        assert _get(port, "/health/live") == 200
        workers = psutil.Process(process.pid).children()
        assert workers
        process.kill()
        assert not psutil.wait_procs(workers, timeout=60)[1]
        assert _is_free(port)


def test_an_open_farm_takes_scripts_from_its_own_user(engine: sa.Engine, database_url: str) -> None:
    port = _free_port()
    with _server(database_url, port):
        assert _send_script(port) == 201


@pytest.mark.root
def test_and_from_no_other_user_of_the_machine(engine: sa.Engine, database_url: str) -> None:
    port = _free_port()
    with _server(database_url, port):
        stranger = unprivileged_user().pw_uid
        assert _send_script(port, uid=stranger) == 403
        # Nor if a connection of the farm's user to another server has the same port.
        with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(("127.0.0.1", 0))
            own.connect(other.getsockname())
            source_port = own.getsockname()[1]
            assert _send_script(port, uid=stranger, source_port=source_port) == 403


def test_a_body_without_a_length_is_cut_off_at_the_limit(
    engine: sa.Engine, database_url: str
) -> None:
    port = _free_port()
    with _server(database_url, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        chunks = (b" " * 65536 for _ in range(40))
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/api/v1/sweeps", chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
        connection.close()
        assert _get(port, "/health/live") == 200


def test_bytes_that_are_no_request_do_not_disturb_it(engine: sa.Engine, database_url: str) -> None:
    port = _free_port()
    with _server(database_url, port):
        for garbage in (b"\x00\xff\x16\x03\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 100):
            with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
                sock.sendall(garbage)
        assert _get(port, "/health/live") == 200


def test_a_slow_client_does_not_keep_others_waiting(engine: sa.Engine, database_url: str) -> None:
    port = _free_port()
    with _server(database_url, port):
        slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(40)]
        for sock in slow:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        assert _get(port, "/health/live") == 200
        # Answered beside them, and not after the server gave them up.
        assert select.select(slow, [], [], 0)[0] == []
        for sock in slow:
            sock.close()


def test_a_taken_port_is_one_line(engine: sa.Engine, database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, line = _refusal(_environ(database_url, port))
    assert status == 2
    assert line.count("\n") == 1
    assert f"127.0.0.1:{port}" in line
    assert "address already in use" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "bench.example.com"])
def test_beyond_loopback_it_wants_a_token(engine: sa.Engine, database_url: str, host: str) -> None:
    status, line = _refusal(_environ(database_url, _free_port(), FARM_WEB_HOST=host))
    assert status == 2
    assert line.count("\n") == 1
    assert host in line
    assert "FARM_API_TOKEN" in line
    assert "farm token create" in line


def test_behind_a_proxy_it_wants_a_token_too(engine: sa.Engine, database_url: str) -> None:
    status, line = _refusal(_environ(database_url, _free_port(), FARM_PROXY_COUNT="1"))
    assert status == 2
    assert line.count("\n") == 1
    assert "FARM_PROXY_COUNT: expected 0, or a token" in line


def test_a_token_of_the_store_will_do_as_long_as_it_counts(
    engine: sa.Engine, database_url: str
) -> None:
    make_api_token(engine, "ops")
    port = _free_port()
    with _server(database_url, port, FARM_PROXY_COUNT="1"):
        assert _get(port, "/api/v1/jobs") == 401
        assert _get(port, "/health/live") == 200
    with writing(engine) as session:
        revoke_token(session, "ops", now=dt.datetime.now(dt.UTC))
    status, line = _refusal(_environ(database_url, port, FARM_PROXY_COUNT="1"))
    assert status == 2
    assert "farm token create" in line


@pytest.mark.parametrize(("proxies", "is_secure"), [("0", False), ("1", True)])
def test_only_a_proxy_that_was_announced_may_speak_of_tls(
    engine: sa.Engine, database_url: str, proxies: str, is_secure: bool
) -> None:
    make_api_token(engine, "ops")
    port = _free_port()
    with _server(database_url, port, FARM_PROXY_COUNT=proxies):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/login", headers={"X-Forwarded-Proto": "https"})
        cookie = connection.getresponse().headers["Set-Cookie"]
        connection.close()
    assert ("Secure" in cookie) is is_secure


def test_a_store_without_its_schema_is_one_line(database_url: str) -> None:
    status, line = _refusal(_environ(database_url, _free_port()))
    assert status == 1
    assert line.count("\n") == 1
    assert "farm db upgrade" in line


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, line = _refusal(_environ(f"sqlite:///{tmp_path}/file/farm.db", _free_port()))
    assert status == 1
    assert line.count("\n") == 1
    assert "FARM_DATABASE_URL" in line
