"""What a Redis says of itself. Hosted ones keep some of it to themselves."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from farm.diagnosis.broker import BrokerState
from farm.wire import (
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    broker_errors,
    open_client,
    redact,
)

_PINGS = 5
_LOCAL = ("localhost", "127.0.0.1", "::1")


def read_state(client: Any, broker_url: str, *, timeout_s: float) -> BrokerState:
    """Ask for everything that `farm.diagnosis.broker` judges. `client` is for `broker_url`.

    Raises:
        Exception: one of `broker_errors`.
    """
    # The shortest, since this process is busy with other checks meanwhile.
    latency_s = min(_ping_s(client) for _ in range(_PINGS))
    told = client.info()
    snapshots = _setting(client, "save")
    return BrokerState(
        shown_url=redact(broker_url),
        is_local=urlsplit(broker_url).hostname in _LOCAL,
        version=str(told.get("valkey_version") or told.get("redis_version", "0")),
        latency_s=latency_s,
        asks_password=_asks_password(broker_url, timeout_s=timeout_s),
        keeps_log=bool(told["aof_enabled"]) if "aof_enabled" in told else None,
        keeps_snapshots=None if snapshots is None else bool(snapshots),
        last_write_failed="err"
        in (told.get("rdb_last_bgsave_status"), told.get("aof_last_write_status")),
        eviction=told.get("maxmemory_policy"),
        used_bytes=int(told.get("used_memory", 0)),
        limit_bytes=int(told.get("maxmemory", 0)),
        client_count=int(told.get("connected_clients", 0)),
        client_limit=told.get("maxclients"),
    )


def queue_lengths(client: Any) -> dict[str, int]:
    """Count the messages that wait for a collector, by what they are."""
    pipe = client.pipeline(transaction=False)
    pipe.llen(HEARTBEATS_QUEUE)
    pipe.llen(REPORTS_QUEUE)
    heartbeats, reports = pipe.execute()
    return {"heartbeats": int(heartbeats), "reports": int(reports)}


def _ping_s(client: Any) -> float:
    begun_s = time.monotonic()
    client.ping()
    return time.monotonic() - begun_s


def _setting(client: Any, name: str) -> str | None:
    try:
        found: str | bytes | None = client.config_get(name).get(name)
    except broker_errors():
        return None  # whoever hosts it has forbidden the question
    return found.decode() if isinstance(found, bytes) else found


def _asks_password(broker_url: str, *, timeout_s: float) -> bool | None:
    """Whether a client without a password is refused; None if that cannot be told."""
    from redis import AuthenticationError, ResponseError

    parts = urlsplit(broker_url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    try:
        with open_client(bare, timeout_s=timeout_s) as client:
            client.ping()
    except AuthenticationError:
        return True
    except ResponseError as error:
        return True if "NOAUTH" in str(error) else None
    except broker_errors():
        return None
    return False
