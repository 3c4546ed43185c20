"""An agent's account at a real broker: what it may do there, and that it may do nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from farm.broker.accounts import BrokerAccounts, agent_url
from farm.broker.celery_app import (
    BELL_KEY,
    HEARTBEATS_QUEUE,
    REPORTS_QUEUE,
    check_broker,
    make_app,
    own_queue,
)
from farm.errors import FarmError, Unreachable
from tests.redis_server import RedisServer

UNACKED = "farm.unacked.agent.vm-1"
INDEX = "farm.unacked_index.agent.vm-1"
OTHERS = "farm.unacked.agent.vm-2"
ALLOWED = (
    ("LPUSH", own_queue(REPORTS_QUEUE, "vm-1"), "x"),
    ("LPUSH", own_queue(HEARTBEATS_QUEUE, "vm-1"), "x"),
    ("LLEN", own_queue(HEARTBEATS_QUEUE, "vm-1")),
    ("LPUSH", BELL_KEY, "x"),
    ("LPUSH", "agent.vm-1", "x"),
    ("BRPOP", "agent.vm-1", "1"),
    ("HSET", UNACKED, "tag", "x"),
    ("HDEL", UNACKED, "tag"),
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
    ("BRPOP", BELL_KEY, "1"),
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
    ("HGET", "farm.unacked.collector", "tag"),
    # Another agent's.
    ("BRPOP", "agent.vm-2", "1"),
    ("LPUSH", "agent.vm-2", "x"),
    ("LLEN", "agent.vm-2"),
    ("DEL", "agent.vm-2"),
    ("HGET", OTHERS, "tag"),
    ("HSET", OTHERS, "tag", "x"),
    ("ZADD", "farm.unacked_index.agent.vm-2", "1", "tag"),
    ("LPUSH", "agent.vm-10", "x"),
    # Its own keys as what they are not, on which the server's commands would fail.
    ("ZADD", "agent.vm-1", "1", "x"),
    ("HSET", "agent.vm-1", "field", "x"),
    ("SADD", "agent.vm-1", "x"),
    ("LPUSH", UNACKED, "x"),
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


def test_not_even_in_a_transaction(agent: redis.Redis) -> None:
    pipe = agent.pipeline(transaction=True)
    pipe.lpush("agent.vm-1", "x")
    pipe.lrange(REPORTS_QUEUE, 0, -1)
    with pytest.raises(redis.exceptions.RedisError):
        pipe.execute()


@pytest.mark.parametrize("num", [3, None], ids=["in portions", "at once"])
def test_what_an_agent_took_and_never_acknowledged_comes_again_once(
    broker: RedisServer, agent: redis.Redis, num: int | None
) -> None:
    """Under its own account, by two at once, as after a courier that was killed."""
    count = 50
    with broker.client() as admin:
        admin.delete("agent.vm-1", UNACKED, INDEX)
        for number in range(count):
            message = {"headers": {}, "properties": {"delivery_info": {}, "number": number}}
            admin.hset(UNACKED, f"tag {number}", json.dumps([message, "", "agent.vm-1"]))
            admin.zadd(INDEX, {f"tag {number}": 1.0})
        admin.hset(UNACKED, "recent", json.dumps([{}, "", "agent.vm-1"]))
        admin.zadd(INDEX, {"recent": time.time() + 1000})
        admin.acl_log_reset()

        def restore(app: Any) -> None:
            with app.connection_for_read() as connection:
                channel = connection.default_channel
                while admin.hlen(UNACKED) > 1:
                    channel.qos.restore_visible(num=num)

        url = agent_url(broker.url, "vm-1", "a/b:c@d")
        apps = [make_app(url, owner="agent.vm-1") for _ in range(2)]
        with ThreadPoolExecutor() as threads:
            list(threads.map(restore, apps))
        back = [json.loads(text) for text in admin.lrange("agent.vm-1", 0, -1)]
        assert sorted(m["properties"]["number"] for m in back) == list(range(count))
        assert admin.zrange(INDEX, 0, -1) == ["recent"]
        assert {entry["object"] for entry in admin.acl_log()} <= {"client|setinfo"}


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
