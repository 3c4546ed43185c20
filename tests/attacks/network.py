"""Attacks of somebody who reaches the servers, and has nothing; and of who stands in for one."""

from __future__ import annotations

import functools
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import redis
import sqlalchemy as sa

from farm.broker.celery_app import check_broker
from farm.errors import Unreachable
from farm.store.engine import make_engine, reading
from tests.attacks.contract import Attack, Position, Succeeded, refusal_of
from tests.e2e.security.strict_farm import SERVER, StrictFarm
from tests.services.certificates import Authority, Certificate

_TIMEOUT_S = 30.0
# The farm's own client gives up after 3 s, as long as a machine that tests may stand still.
_TRIES = 10
_LISTENS = "who listens between machines"
_IS_BROKER = "who takes the place of the broker"
_IS_STORE = "who takes the place of the database"
_REPORTS = "a stranger reports"


def ping(url: str) -> object:
    """Ask a Redis as a client that checks nothing: an attacker need not."""
    with redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S) as client:
        return client.ping()


def _broker(farm: StrictFarm, query: str, *, scheme: str = "rediss") -> str:
    return f"{scheme}://{farm.address}:{farm.broker.port}/0{query}"


def _plain_redis(farm: StrictFarm) -> str:
    return refusal_of(lambda: ping(_broker(farm, "", scheme="redis")), redis.RedisError)


def _no_certificate(farm: StrictFarm) -> str:
    url = _broker(farm, "?ssl_cert_reqs=none")
    return refusal_of(lambda: ping(url), redis.RedisError, says="(?i)certificate|ssl|reset|closed")


def _own_authority(farm: StrictFarm) -> str:
    made = Authority(farm.home / "attacker").issue("server")
    url = _broker(farm, f"?ssl_cert_reqs=none&ssl_certfile={made.file}&ssl_keyfile={made.key}")
    return refusal_of(lambda: ping(url), redis.RedisError, says="(?i)certificate|ssl|reset|closed")


def _no_password(farm: StrictFarm) -> str:
    return refusal_of(lambda: ping(farm.broker.url_of("")), redis.RedisError, says="uthentic")


def _wrong_password(farm: StrictFarm) -> str:
    url = farm.broker.url_of("server:guessed")
    return refusal_of(lambda: ping(url), redis.RedisError, says="invalid username-password")


def ask_store(farm: StrictFarm, **query: str) -> object:
    """Ask the farm's database for its jobs."""
    password = query.pop("password", farm.store.PASSWORD)
    name = sa.make_url(farm.database_url).database or ""
    url = farm.store.url_of(name, **query).set(password=password)
    engine = make_engine(url.render_as_string(hide_password=False))
    try:
        with reading(engine) as session:
            return session.scalar(sa.text("SELECT count(*) FROM jobs"))
    finally:
        engine.dispose()


def _plain_store(farm: StrictFarm) -> str:
    return refusal_of(lambda: ask_store(farm, sslmode="disable"), Unreachable, says="no encryption")


def _guessed_store(farm: StrictFarm) -> str:
    return refusal_of(
        lambda: ask_store(farm, password="guessed"), Unreachable, says="password authentication"
    )


def _plain_web(farm: StrictFarm) -> str:
    def get() -> object:
        plain = http.client.HTTPConnection(farm.address, farm.web_port, timeout=_TIMEOUT_S)
        try:
            plain.request("GET", "/")
            return plain.getresponse().status
        finally:
            plain.close()

    ended = "(?i)reset|closed|status"
    return refusal_of(get, OSError, http.client.HTTPException, says=ended)


@contextmanager
def impostor(farm: StrictFarm, certificate: Certificate) -> Iterator[int]:
    """Listen where a client was led to, with that certificate; fail if a client says anything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    heard: list[bytes] = []

    def serve() -> None:
        try:
            connection, _ = listener.accept()
            connection.settimeout(_TIMEOUT_S)
            with context.wrap_socket(connection, server_side=True) as secure:
                heard.append(secure.recv(1000))
        except OSError:
            return

    with socket.create_server((farm.address, 0)) as listener:
        listener.settimeout(_TIMEOUT_S)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()
    if any(heard):
        raise Succeeded(f"it was told {heard!r}")


def _impostor_broker(farm: StrictFarm, certificate: Certificate) -> str:
    for _ in range(_TRIES):
        with impostor(farm, certificate) as port:
            url = farm.broker.url_of(SERVER).replace(str(farm.broker.port), str(port))
            attempt = functools.partial(check_broker, url)
            try:
                return refusal_of(attempt, Unreachable, says="certificate")
            except Succeeded as error:
                if "imed out" not in str(error):
                    raise
    raise Succeeded(f"nothing but time ended it, {_TRIES} times")


def _stranger_as_broker(farm: StrictFarm) -> str:
    made = Authority(farm.home / "impostor").issue("broker", farm.address)
    return _impostor_broker(farm, made)


def _neighbour_as_broker(farm: StrictFarm) -> str:
    return _impostor_broker(farm, farm.certify("neighbour"))


def _stranger_as_store(farm: StrictFarm) -> str:
    trusted = Authority(farm.home / "other-authority").file
    return refusal_of(
        lambda: ask_store(farm, sslrootcert=str(trusted)), Unreachable, says="verify failed"
    )


def _refused_setting(farm: StrictFarm, **changes: str) -> str:
    ended = farm.tried("run", "collector", **changes)
    if ended.exit_code != 2 or ended.stderr.count("\n") != 1 or not ended.stderr:
        raise Succeeded(f"status {ended.exit_code}: {ended.output}")
    return ended.stderr.removeprefix("farm: ").strip()


def _configured_plain(farm: StrictFarm) -> str:
    return _refused_setting(farm, FARM_BROKER_URL=_broker(farm, "", scheme="redis"))


def _configured_unverified(farm: StrictFarm) -> str:
    return _refused_setting(farm, FARM_BROKER_URL=_broker(farm, ""))


def _configured_store(farm: StrictFarm) -> str:
    url = sa.make_url(farm.database_url).set(query={"sslmode": "require"})
    return _refused_setting(farm, FARM_DATABASE_URL=url.render_as_string(hide_password=False))


def _configured_host(farm: StrictFarm) -> str:
    return _refused_setting(farm, FARM_DATABASE_URL="postgresql:///farm", PGHOST=farm.address)


def _configured_unsigned(farm: StrictFarm) -> str:
    return _refused_setting(farm, FARM_SIGNING_KEY_FILE="")


NETWORK = (
    Attack(Position.NETWORK, "speak to Redis without TLS", _LISTENS, _plain_redis),
    Attack(Position.NETWORK, "speak to Redis without a certificate", _REPORTS, _no_certificate),
    Attack(
        Position.NETWORK,
        "speak to Redis with a certificate of one's own authority",
        _REPORTS,
        _own_authority,
    ),
    Attack(
        Position.NETWORK,
        "speak to Redis with a client's certificate, and no password",
        _REPORTS,
        _no_password,
    ),
    Attack(Position.NETWORK, "guess the server's password at Redis", _REPORTS, _wrong_password),
    Attack(Position.NETWORK, "speak to PostgreSQL without TLS", _LISTENS, _plain_store),
    Attack(Position.NETWORK, "guess the password of PostgreSQL", _REPORTS, _guessed_store),
    Attack(Position.NETWORK, "ask the web server for a page without TLS", _LISTENS, _plain_web),
    Attack(
        Position.NETWORK,
        "pass for Redis with a certificate of one's own authority",
        _IS_BROKER,
        _stranger_as_broker,
    ),
    Attack(
        Position.NETWORK,
        "pass for Redis with another host's certificate of the farm's authority",
        _IS_BROKER,
        _neighbour_as_broker,
    ),
    Attack(
        Position.NETWORK,
        "pass for PostgreSQL with a certificate of another authority",
        _IS_STORE,
        _stranger_as_store,
    ),
    Attack(Position.OPERATOR, "configure Redis without TLS", _LISTENS, _configured_plain),
    Attack(
        Position.OPERATOR,
        "configure Redis with a `rediss://` that checks nothing",
        _IS_BROKER,
        _configured_unverified,
    ),
    Attack(
        Position.OPERATOR,
        "configure PostgreSQL with `sslmode=require`",
        _IS_STORE,
        _configured_store,
    ),
    Attack(
        Position.OPERATOR,
        "configure PostgreSQL by `PGHOST` alone",
        _IS_STORE,
        _configured_host,
    ),
    Attack(
        Position.OPERATOR,
        "start a server without the key that messages are signed with",
        _REPORTS,
        _configured_unsigned,
    ),
)
