"""Receives the commands for all simulated agents of a process, in one thread.

What they consume would be a Celery worker each; here each has a connection of its own and the
command that Celery's transport sends on it, `BRPOP`, and the message is read as that transport
reads it. What they publish is the outbox's.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from farm.broker.celery_app import agent_queue, command_task
from farm.broker.task_message import read_task
from farm.messages.commands import COMMANDS

_WAIT_S = 30  # of one BRPOP
_NAMES = {command_task(name): name for name in COMMANDS}
_RECEIVE_BYTES = 256 * 1024


@dataclass(slots=True)
class _Line:
    """One agent's connection. `answer`: what has come of the present answer."""

    agent_id: str
    connection: socket.socket
    question: bytes
    answer: bytearray = field(default_factory=bytearray)


class CommandQueues:
    """Commands for many agents; used in a `with` block."""

    def __init__(self, broker_url: str, agent_ids: list[str]) -> None:
        self._selector = selectors.DefaultSelector()
        self._lines = [self._line(broker_url, agent_id) for agent_id in agent_ids]

    def __enter__(self) -> CommandQueues:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.connection.close()
        self._selector.close()

    def arrived(self, *, within_s: float) -> Iterator[tuple[str, str, object, float]]:
        """Yield agent, command's name, envelope and time.monotonic() of what comes now."""
        for key, _ in self._selector.select(max(0.0, within_s)):
            line: _Line = key.data
            data = line.connection.recv(_RECEIVE_BYTES)
            if not data:
                raise ConnectionResetError("the broker closed a connection")
            line.answer += data
            message = _answer(line.answer)
            if message is None:
                continue
            line.answer.clear()
            line.connection.sendall(line.question)
            read = read_task(message, queue=agent_queue(line.agent_id)) if message else None
            if read is not None:
                yield line.agent_id, _NAMES[read[0]], read[1], time.monotonic()

    def _line(self, broker_url: str, agent_id: str) -> _Line:
        question = command("BRPOP", agent_queue(agent_id), str(_WAIT_S))
        line = _Line(agent_id, connected(broker_url), question)
        line.connection.sendall(line.question)
        self._selector.register(line.connection, selectors.EVENT_READ, line)
        return line


def connected(broker_url: str) -> socket.socket:
    """Return a connection to the broker's database, which the caller closes."""
    parts = urlsplit(broker_url)
    address = (parts.hostname or "127.0.0.1", parts.port or 6379)
    database = parts.path.strip("/") or "0"
    connection = socket.create_connection(address, timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(command("SELECT", database))
    if connection.recv(64) != b"+OK\r\n":
        raise ConnectionError(f"the broker has no database {database}")
    return connection


def command(*words: str) -> bytes:
    """Return a command of Redis as it is sent."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


def _answer(data: bytearray) -> bytes | None:
    """Return BRPOP's message, empty where none came in time; None as long as it is not whole.

    `*2`, the key and the message, each as its length and itself; `*-1` when nothing came.
    """
    if not data.endswith(b"\r\n"):
        return None
    if data.startswith(b"*-1"):
        return b""
    fields = bytes(data).split(b"\r\n", 4)  # *2, $length, key, $length, the message
    if len(fields) < 5 or fields[0] != b"*2":
        return None
    length = int(fields[3][1:])
    return fields[4][:length] if len(fields[4]) == length + 2 else None
