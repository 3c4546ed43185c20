"""Names, limits and redaction of the wire; nothing here speaks with a broker that answers."""

from __future__ import annotations

import socket
import time

import pytest

from farm.broker.celery_app import (
    SOCKET_TIMEOUT_S,
    agent_queue,
    check_broker,
    command_task,
    make_app,
)
from farm.broker.url import redact, require_redis
from farm.broker.wake_up import WakeUp
from farm.errors import InvalidSpec, Unreachable
from farm.messages.commands import COMMANDS


@pytest.fixture
def dead_url() -> str:
    """The URL of a port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"redis://:secret@127.0.0.1:{probe.getsockname()[1]}/0"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://:secret@host/1", "redis://:***@host/1"),
        ("redis://me:se%40cret@host:1", "redis://me:***@host:1"),
        ("redis://me@host", "redis://me@host"),
        ("rediss://me:secret@host/0?password=secret", "rediss://me:***@host/0"),
        ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
        ("localhost:6379", "localhost:6379"),
        # As it comes out when nobody has percent-encoded it, or when the host was forgotten.
        ("redis://:pa/secret@host:6379/0", "***"),
        ("redis://:sec#ret@host/0", "***"),
        ("redis://me:12?34@host/0", "***"),
        ("redis://me:se[cret@host/0", "redis://me:***@host/0"),
        ("redis://me:p\u2100secret@host/0", "redis://me:***@host/0"),
        ("redis://me:secret", "***"),
        ("me:secret@host", "me:***@host"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("amqp://host", "redis://", "127.0.0.1:6379", "sqlite:///tmp/a"),
        *("redis://:pa/secret@host", "redis://me:se[cret@host/0", "redis://me:secret"),
        "redis://me:p\u2100secret@host/0",
    ],
)
def test_only_redis_can_be_the_broker(url: str) -> None:
    with pytest.raises(InvalidSpec, match="FARM_BROKER_URL") as caught:
        require_redis(url)
    assert "secret" not in str(caught.value)


def test_a_worker_takes_json_alone_and_waits_longer_than_for_a_message() -> None:
    conf = make_app("redis://127.0.0.1:1/0").conf
    # A read must outlast the transport's own wait of a second for the next message.
    assert conf.broker_transport_options["socket_timeout"] == SOCKET_TIMEOUT_S > 1
    assert conf.accept_content == ["json"]
    assert not conf.task_acks_late  # or it would be cancelled when the connection is lost


def test_queues_and_tasks_have_the_names_that_both_sides_know() -> None:
    assert agent_queue("vm-1") == "agent.vm-1"
    assert "agent.start_rank" in map(command_task, COMMANDS)


def test_a_dead_broker_is_one_line_with_what_to_do_and_without_the_password(dead_url: str) -> None:
    with pytest.raises(Unreachable) as caught:
        check_broker(dead_url)
    message = str(caught.value)
    assert "start Redis there or correct FARM_BROKER_URL" in message
    assert redact(dead_url) in message
    assert "secret" not in message
    assert "\n" not in message


def test_waking_without_a_broker_fails_and_does_not_spin(dead_url: str) -> None:
    wake = WakeUp(dead_url)
    assert not wake.send()
    begun = time.monotonic()
    assert not wake.wait(0.2)
    assert time.monotonic() - begun >= 0.2
