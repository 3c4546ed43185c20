"""An agent's account at a real broker: what it may do there, and that it may do nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from farm.broker.accounts import BrokerAccounts, agent_url
from farm.broker.celery_app import (
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    check_broker,
    own_queue,
)
from farm.errors import FarmError, Unreachable
from tests.services.redis_server import RedisServer

ALLOWED = (
    ("LPUSH", own_queue(REPORTS_QUEUE, "vm-1"), "x"),
    ("LPUSH", own_queue(HEARTBEATS_QUEUE, "vm-1"), "x"),
    ("LLEN", own_queue(HEARTBEATS_QUEUE, "vm-1")),
    ("LPUSH", OWN_QUEUES_WAKE_KEY, "x"),
    ("LPUSH", "agent.vm-1", "x"),
    ("BRPOP", "agent.vm-1", "1"),
    ("PING",),
)
FORBIDDEN = (
    # What it has sent, what others have, and the server's own keys.
    ("BRPOP", own_queue(REPORTS_QUEUE, "vm-1"), "1"),
    ("LRANGE", own_queue(REPORTS_QUEUE, "vm-1"), "0", "-1"),
    ("LPUSH", own_queue(REPORTS_QUEUE, "vm-2"), "x"),
    ("LPUSH", own_queue(HEARTBEATS_QUEUE, "vm-10"), "x"),
    ("LPUSH", REPORTS_QUEUE, "x"),
    ("LPUSH", HEARTBEATS_QUEUE, "x"),
    ("BRPOP", OWN_QUEUES_WAKE_KEY, "1"),
    ("BRPOP", REPORTS_QUEUE, "1"),
    ("RPOP", HEARTBEATS_QUEUE),
    ("LRANGE", REPORTS_QUEUE, "0", "-1"),
    ("LINDEX", HEARTBEATS_QUEUE, "0"),
    ("LTRIM", HEARTBEATS_QUEUE, "0", "0"),
    ("DEL", REPORTS_QUEUE),
    ("RPUSH", REPORTS_QUEUE, "x"),
    ("SET", REPORTS_QUEUE, "x"),
    ("RENAME", REPORTS_QUEUE, "agent.vm-1"),
    ("LMOVE", REPORTS_QUEUE, "agent.vm-1", "LEFT", "LEFT"),
    ("COPY", REPORTS_QUEUE, "agent.vm-1"),
    ("SORT", REPORTS_QUEUE, "STORE", "agent.vm-1"),
    ("LPUSH", "farm.wake", "1"),
    ("SET", "farm.alive.collector.host.1", "{}"),
    ("GET", "farm.alive.collector.host.1"),
    ("HGET", "unacked", "tag"),
    ("ZADD", "unacked_index", "1", "tag"),
    ("MULTI",),
    # Another agent's.
    ("BRPOP", "agent.vm-2", "1"),
    ("LPUSH", "agent.vm-2", "x"),
    ("LLEN", "agent.vm-2"),
    ("DEL", "agent.vm-2"),
    ("LPUSH", "agent.vm-10", "x"),
    # Its own keys as what they are not, on which the server's commands would fail.
    ("ZADD", "agent.vm-1", "1", "x"),
    ("HSET", "agent.vm-1", "field", "x"),
    ("SADD", "agent.vm-1", "x"),
    # The broker itself.
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SWAPDB", "0", "1"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "agent.vm-1", "allkeys"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "USER", "default"),
    ("MONITOR",),
    ("INFO",),
    ("BGREWRITEAOF",),
    ("SHUTDOWN",),
    ("SAVE",),
    ("REPLICAOF", "192.0.2.1", "6379"),
    ("MODULE", "LIST"),
    ("SUBSCRIBE", "x"),
    ("PUBLISH", "x", "y"),
    # Not even a script that would touch its own keys alone.
    ("EVAL", "return 1", "0"),
    ("EVALSHA", "0" * 40, "0"),
    ("FCALL", "x", "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("SCRIPT", "FLUSH"),
    ("FUNCTION", "LIST"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def agent(broker: RedisServer) -> Iterator[redis.Redis]:
    BrokerAccounts(broker.url).put("vm-1", ["a/b:c@d"])
    url = agent_url(broker.url, "vm-1", "a/b:c@d")
    with redis.Redis.from_url(url, socket_timeout=60) as client:
        yield client


def do(agent: redis.Redis, command: tuple[str, ...]) -> None:
    agent.execute_command(*command)  # type: ignore[no-untyped-call] # redis has no type for it


@pytest.mark.parametrize("command", ALLOWED, ids=" ".join)
def test_an_agent_may(agent: redis.Redis, command: tuple[str, ...]) -> None:
    do(agent, command)


@pytest.mark.parametrize("command", FORBIDDEN, ids=" ".join)
def test_an_agent_may_not(agent: redis.Redis, command: tuple[str, ...]) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        do(agent, command)


def test_a_new_password_replaces_the_old_and_a_removal_ends_what_is_open(
    broker: RedisServer, agent: redis.Redis
) -> None:
    accounts = BrokerAccounts(broker.url)
    agent.ping()
    accounts.put("vm-1", ["new", "a/b:c@d"])
    for password in ("new", "a/b:c@d"):
        with redis.Redis.from_url(agent_url(broker.url, "vm-1", password)) as client:
            client.ping()
    accounts.put("vm-1", ["new"])
    with (
        redis.Redis.from_url(agent_url(broker.url, "vm-1", "a/b:c@d")) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()
    with broker.client() as admin:

        def connections() -> list[object]:
            return [c for c in admin.client_list() if c["user"] == "agent.vm-1"]

        assert connections()
        accounts.end_connections("vm-1")
        assert not connections()
        with redis.Redis.from_url(agent_url(broker.url, "vm-1", "new")) as client:
            client.ping()
            assert connections()
            accounts.delete("vm-1")
            assert not connections()
            with pytest.raises(redis.exceptions.RedisError):
                client.ping()
    accounts.delete("vm-1")  # that it is gone already is no error


@pytest.mark.parametrize("account", ["agent.vm-1:wrong", "nobody:secret"])
def test_a_wrong_password_is_called_that(broker: RedisServer, account: str) -> None:
    with pytest.raises(Unreachable, match="refused the account or its password") as refused:
        check_broker(broker.url.replace("//", f"//{account}@"))
    assert "check FARM_BROKER_URL" in str(refused.value)
    assert account not in str(refused.value)


def test_who_may_not_manage_accounts_is_told_so_in_one_line(
    broker: RedisServer, agent: redis.Redis
) -> None:
    url = agent_url(broker.url, "vm-1", "a/b:c@d")
    with pytest.raises(FarmError, match="FARM_BROKER_ADMIN_URL") as refused:
        BrokerAccounts(url).put("vm-3", ["secret-of-3"])
    assert "a/b:c@d" not in str(refused.value)
    assert "secret-of-3" not in str(refused.value)
    assert "\n" not in str(refused.value)
