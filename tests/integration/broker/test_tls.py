"""Real servers that speak TLS: whose certificate does not fit is not spoken to."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.broker.celery_app import agent_queue, check_broker, open_client
from farm.broker.sending import Sender
from farm.broker.state import read_state
from farm.broker.wake_up import WakeUp
from farm.embedded.redis import free_port
from farm.errors import Unreachable
from farm.messages.commands import StopAttempt
from farm.store.engine import make_engine, reading
from tests.services.certificates import Authority
from tests.services.postgres_server import TlsPostgresServer
from tests.services.redis_server import TlsRedisServer, speaks_tls
from tests.web.web_client import NO_BROKER

STRANGERS_NAME = "broker.example.org"  # in a certificate for another host


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody who certifies whatever he likes."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[TlsRedisServer]:
    if not speaks_tls():
        pytest.skip("this Redis was built without TLS")
    server = TlsRedisServer(tmp_path_factory.mktemp("redis"), authority=authority)
    server.start()
    yield server
    server.kill()


def send_and_drop(url: str) -> int:
    """Go through Celery and Kombu both ways; return how many messages had arrived."""
    sender = Sender(url)
    try:
        sender.send([("vm-1", StopAttempt(token=1, reason="test"))])
        return sender.purge(agent_queue("vm-1"))
    finally:
        sender.close()


def test_messages_and_questions_go_through_verified_tls(broker: TlsRedisServer) -> None:
    assert send_and_drop(broker.url) == 1
    check_broker(broker.url)
    assert WakeUp(broker.url).send()
    assert WakeUp(broker.url).wait(5.0)
    with open_client(broker.url, timeout_s=5) as client:
        # Who has no certificate is a stranger.
        assert read_state(client, broker.url, timeout_s=5).refuses_strangers is True


@pytest.mark.parametrize("use", [send_and_drop, check_broker])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("another authority's", r"certificate that is not trusted \(self-signed .*ssl_ca_certs="),
        ("another host's", r"not trusted \(.*not valid for 'localhost'\): .*its host"),
        # Redis may have closed the connection before it is asked anything.
        ("no certificate of ours", r"ended the TLS \(.*ssl_certfile=|reset|closed|pipe"),
        ("a stranger's certificate of ours", r"ended the TLS \(.*ssl_certfile=|reset|closed|pipe"),
    ],
)
def test_neither_celery_nor_redis_py_speaks_to_a_broker_that_does_not_prove_itself(
    broker: TlsRedisServer,
    stranger: Authority,
    authority: Authority,
    what: str,
    message: str,
    use: object,
) -> None:
    made = stranger.issue("client")
    url = {
        "another authority's": broker.url.replace(str(authority.file), str(stranger.file)),
        # The same server under a name that its certificate does not have.
        "another host's": broker.url.replace("127.0.0.1", "localhost"),
        "no certificate of ours": broker.url_of("", with_certificate=False),
        "a stranger's certificate of ours": broker.url_of("", with_certificate=False)
        + f"&ssl_certfile={made.file}&ssl_keyfile={made.key}",
    }[what]
    with pytest.raises(Unreachable, match=message) as refused:
        use(url)  # type: ignore[operator] # either of both
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def store(authority: Authority) -> Iterator[TlsPostgresServer]:
    server = TlsPostgresServer(authority=authority, address="127.0.0.1")
    yield server
    server.stop()


def version_over(url: sa.URL) -> str:
    engine = make_engine(url.render_as_string(hide_password=False))
    try:
        with reading(engine) as session:
            return str(
                session.scalar(
                    sa.text("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                )
            )
    finally:
        engine.dispose()


def test_a_store_is_spoken_to_by_tls_if_it_proves_itself(
    store: TlsPostgresServer, stranger: Authority
) -> None:
    assert version_over(store.url_of("postgres")).startswith("TLS")
    for wrong, reason in (
        (store.url_of("postgres", sslrootcert=str(stranger.file)), "certificate verify failed"),
        (store.url_of("postgres").set(host="localhost"), "does not match host name"),
        (store.url_of("postgres", sslrootcert="/none"), "does not exist"),
        (store.url_of("postgres", sslmode="disable"), "no encryption"),
    ):
        with pytest.raises(Unreachable, match=reason) as refused:
            version_over(wrong)
        assert "\n" not in str(refused.value)


def test_the_web_server_speaks_tls_with_a_certificate_of_its_own(
    authority: Authority, tmp_path: Path
) -> None:
    port, made = free_port(), authority.issue("web", "127.0.0.1")
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("FARM_")},
        "FARM_HOME": str(tmp_path),
        "FARM_BROKER_URL": NO_BROKER,
        "FARM_WEB_PORT": str(port),
        "FARM_WEB_CERTIFICATE_FILE": str(made.file),
        "FARM_WEB_KEY_FILE": str(made.key),
    }
    farm = [sys.executable, "-m", "farm.cli.main"]
    subprocess.run([*farm, "db", "upgrade"], env=environ, check=True, capture_output=True)
    server = subprocess.Popen([*farm, "run", "web"], env=environ, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == f"dashboard at https://127.0.0.1:{port}/\n"
        # Whoever speaks no TLS, or nothing at all, keeps nobody waiting.
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(4)]
        idle[0].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        trusting = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=trusting)
        connection.request("GET", "/login")
        answer = connection.getresponse()
        assert answer.status in (200, 302, 303)
        # A browser that was here once asks by nothing else.
        assert answer.headers["Strict-Transport-Security"] == "max-age=2592000"
        answer.read()
        connection.request("GET", "/health/live")
        assert connection.getresponse().status == 200
        connection.close()
        distrusting = http.client.HTTPSConnection("127.0.0.1", port, timeout=30)
        with pytest.raises(ssl.SSLCertVerificationError):
            distrusting.request("GET", "/login")
        for sock in idle:
            sock.close()
    finally:
        server.terminate()
        assert server.wait(timeout=30) == 0
        server.stdout.close()
