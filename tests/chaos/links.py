"""Each party's way to Redis: a proxy that can be cut, and whose messages can be held or copied.

Redis's protocol is read as far as to tell one pushed message from the next. All of it runs in one
thread of its own; what other threads call is said to be safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

HELD_KEY = b"chaos.held"
_READ_BYTES = 256 * 1024


class Tamper(Protocol):
    """Sees each message that somebody pushes, in the proxies' thread."""

    def takes(self, link: str, queue: str, message: bytes) -> bool:
        """Say whether the message is withheld from its queue; whoever takes it may push it."""


class Link:
    """One party's way, on a port of its own."""

    def __init__(self, name: str, *, broker_port: int, links: Links) -> None:
        self.name = name
        self.port = 0
        self._broker_port = broker_port
        self._links = links
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Let nothing through any more, in either direction; nobody is told. Safe."""
        self._links.call(self._is_open.clear)

    def mend(self) -> None:
        """Let everything through again, what has waited first. Safe."""
        self._links.call(self._is_open.set)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._is_open.wait()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", self._broker_port)
        ways = [
            asyncio.ensure_future(self._pump(reader, onward[1], Commands(self._rewrite).feed)),
            asyncio.ensure_future(self._pump(onward[0], writer, lambda data: data)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            onward[1].close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        change: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(_READ_BYTES):
            await self._is_open.wait()
            writer.write(change(data))
            await writer.drain()

    def _rewrite(self, words: list[bytes]) -> bytes | None:
        """Return another command in place of one that pushes what is taken; None keeps it."""
        if len(words) != 3 or words[0].upper() != b"LPUSH":
            return None
        queue = words[1].decode(errors="replace")
        # All of them see it, so that one may copy what another one holds.
        taken = [t.takes(self.name, queue, words[2]) for t in tuple(self._links.tampers)]
        # The sender gets the answer that it waits for.
        return command(b"LPUSH", HELD_KEY, b"") if any(taken) else None


class Commands:
    """Cuts a stream of Redis's commands into single ones, and puts it together again."""

    def __init__(self, rewrite: Callable[[list[bytes]], bytes | None]) -> None:
        self._rewrite = rewrite
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may go on; the beginning of a command waits for its end."""
        self._rest += data
        onward = []
        while found := read_command(self._rest):
            words, size = found
            onward.append(self._rewrite(words) or self._rest[:size])
            self._rest = self._rest[size:]
        return b"".join(onward)


def read_command(data: bytes) -> tuple[list[bytes], int] | None:
    """Return the words of the first command and its size in bytes; None if it is not whole.

    Raises:
        ValueError: these are no commands as clients send them.
    """
    end = data.find(b"\r\n")
    if end < 0:
        return None
    if data[:1] != b"*":
        raise ValueError(f"expected a command of Redis, got {data[:40]!r}")
    words, at = [], end + 2
    for _ in range(int(data[1:end])):
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at + 1 : end])
        at = end + 2 + size + 2
        if len(data) < at:
            return None
        words.append(data[end + 2 : end + 2 + size])
    return words, at


def command(*words: bytes) -> bytes:
    """Write a command as clients do."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Links:
    """All ways to one Redis. `tampers` may be changed by any thread."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._links: dict[str, Link] = {}
        self.tampers: tuple[Tamper, ...] = ()

    def __getitem__(self, name: str) -> Link:
        """Return that party's way; the first time it is opened. Safe."""
        if name not in self._links:
            link = Link(name, broker_port=self._broker_port, links=self)
            self._run(link.open())
            self._links[name] = link
        return self._links[name]

    def add(self, tamper: Tamper) -> None:
        self.tampers = (*self.tampers, tamper)

    def remove(self, tamper: Tamper) -> None:
        self.tampers = tuple(t for t in self.tampers if t is not tamper)

    def call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        for link in self._links.values():
            self._run(link.close())
        self.call(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=20)
