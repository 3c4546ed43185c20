"""Reads the state that a Redis server reports; hosted servers hide some of it."""

from __future__ import annotations

import re
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from farm.broker.celery_app import HEARTBEATS_QUEUE, REPORTS_QUEUE, open_client, own_queue
from farm.broker.errors import broker_errors, translate_errors
from farm.broker.url import redact, require_redis, without_credentials
from farm.broker.wake_up import WAKE_KEY
from farm.diagnosis.broker import BrokerState, ForeignKey
from farm.errors import NotPermitted, Unreachable

# What waits for a collector, and where all of it comes by.
QUEUES = {"heartbeats": HEARTBEATS_QUEUE, "reports": REPORTS_QUEUE}
_PINGS = 5
# What the farm's own keys hold.
_TYPES = {
    HEARTBEATS_QUEUE: "list",
    REPORTS_QUEUE: "list",
    WAKE_KEY: "list",
}
_LOCAL = ("localhost", "127.0.0.1", "::1")
_COMMAND = re.compile(r"to run the '([a-z|]+)' command")

T = TypeVar("T")


@contextmanager
def connected_client(broker_url: str, *, timeout_s: float) -> Iterator[Any]:
    """Open a client of the broker for a few queries, and close it afterwards.

    Raises:
        InvalidSpec: not a Redis URL.
        NotPermitted: the broker does not let this account ask that.
        Unreachable: it does not answer, or refuses the password.
    """
    from redis.exceptions import NoPermissionError

    require_redis(broker_url)
    try:
        with translate_errors(broker_url), open_client(broker_url, timeout_s=timeout_s) as client:
            yield client
    except Unreachable as error:
        if isinstance(error.__cause__, NoPermissionError):
            raise _not_permitted(broker_url, str(error.__cause__)) from error
        raise


def _not_permitted(broker_url: str, refusal: str) -> NotPermitted:
    account = account_of(broker_url)
    command = _COMMAND.search(refusal)
    if command is not None:
        name = command[1]
        what, right = f"may not run {name.replace('|', ' ').upper()}", f"+{name}"
    else:
        what, right = "may not read the farm's keys", "~farm.*"
    return NotPermitted(
        f"the broker's account {account!r} {what}, so this is not known: grant it that right "
        f"(`ACL SETUSER {account} {right}`)"
    )


def account_of(broker_url: str) -> str:
    """Return the name of the broker account in this URL."""
    parts = urlsplit(broker_url)
    return dict(parse_qsl(parts.query)).get("username") or unquote(parts.username or "default")


def read_state(client: Any, broker_url: str, *, timeout_s: float) -> BrokerState:
    """Ask for everything that `farm.diagnosis.broker` judges. `client` is for `broker_url`.

    Raises:
        Exception: one of `broker_errors`.
    """
    # The shortest, since this process is busy with other checks meanwhile.
    latency_s = min(_ping_s(client) for _ in range(_PINGS))
    nothing: dict[str, Any] = {}
    info, may_info = _if_permitted(client.info, nothing)
    snapshots, may_config = _if_permitted(lambda: _setting(client, "save"), None)
    version = info.get("valkey_version") or info.get("redis_version")
    return BrokerState(
        shown_url=redact(broker_url),
        is_local=urlsplit(broker_url).hostname in _LOCAL,
        account=account_of(broker_url),
        forbidden=(*([] if may_info else ["INFO"]), *([] if may_config else ["CONFIG GET"])),
        version=None if version is None else str(version),
        latency_s=latency_s,
        refuses_strangers=_refuses_strangers(broker_url, timeout_s=timeout_s),
        keeps_log=bool(info["aof_enabled"]) if "aof_enabled" in info else None,
        keeps_snapshots=None if snapshots is None else bool(snapshots),
        last_write_failed="err"
        in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")),
        eviction=info.get("maxmemory_policy"),
        used_bytes=int(info.get("used_memory", 0)),
        limit_bytes=int(info.get("maxmemory", 0)),
        client_count=int(info.get("connected_clients", 0)),
        client_limit=info.get("maxclients"),
        foreign=_foreign_keys(client),
    )


def _foreign_keys(client: Any) -> tuple[ForeignKey, ...]:
    nothing: list[str] = []
    types, may_ask = _if_permitted(lambda: [client.type(key).decode() for key in _TYPES], nothing)
    if not may_ask:
        return ()
    return tuple(
        ForeignKey(key, holds, expected)
        for (key, expected), holds in zip(_TYPES.items(), types, strict=True)
        if holds not in ("none", expected)
    )


@dataclass(frozen=True, slots=True)
class QueueLengths:
    """How many messages wait for a collector, in the shared queues and in the agents' own.

    `counts`: by the keys of `QUEUES`. `of_agents`: those in an agent's own queues, of both kinds.
    `unreadable`: own queues that hold another type than a list; nothing of them is counted.
    """

    counts: Mapping[str, int]
    of_agents: Mapping[str, int]
    unreadable: tuple[str, ...] = ()


def queue_lengths(client: Any, *, agents: Collection[str]) -> QueueLengths:
    """Count the messages that wait for a collector, in one exchange.

    `agents`: those that sign, and so have queues of their own.

    Raises:
        Exception: one of `broker_errors`.
    """
    pipe = client.pipeline(transaction=False)
    for shared in QUEUES.values():
        for key in (shared, *(own_queue(shared, name) for name in agents)):
            pipe.llen(key)
    lengths = iter(pipe.execute(raise_on_error=False))
    counts: dict[str, int] = {}
    of_agents: Counter[str] = Counter()
    unreadable: list[str] = []
    for kind, shared in QUEUES.items():
        counts[kind] = _length(next(lengths))
        for name, length in zip(agents, lengths, strict=False):
            if isinstance(length, Exception) and str(length).startswith("WRONGTYPE"):
                unreadable.append(own_queue(shared, name))
            elif length:
                of_agents[name] += _length(length)
                counts[kind] += length
    return QueueLengths(counts, of_agents, tuple(unreadable))


def _length(answer: int | Exception) -> int:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ping_s(client: Any) -> float:
    begun_s = time.monotonic()
    client.ping()
    return time.monotonic() - begun_s


def _if_permitted(ask: Callable[[], T], otherwise: T) -> tuple[T, bool]:
    """Return what is answered, and whether that may be asked."""
    from redis.exceptions import NoPermissionError

    try:
        return ask(), True
    except NoPermissionError:
        return otherwise, False


def _setting(client: Any, name: str) -> str | None:
    from redis import ResponseError
    from redis.exceptions import NoPermissionError

    try:
        found: str | bytes | None = client.config_get(name).get(name)
    except NoPermissionError:
        raise
    except ResponseError:
        return None  # the provider of the broker does not allow the command
    return found.decode() if isinstance(found, bytes) else found


def _refuses_strangers(broker_url: str, *, timeout_s: float) -> bool | None:
    """Whether a client that proves nothing may not look into a queue; None: cannot be told."""
    from redis import AuthenticationError, ResponseError
    from redis.exceptions import NoPermissionError

    try:
        with open_client(without_credentials(broker_url), timeout_s=timeout_s) as client:
            client.llen(REPORTS_QUEUE)
    except (AuthenticationError, NoPermissionError):
        return True
    except ResponseError as error:
        return True if "NOAUTH" in str(error) else None
    except broker_errors() as error:
        # Asked for a certificate, the broker ends a handshake that it took part in just now.
        return True if _is_of_tls(error) else None
    return False


def _is_of_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None
