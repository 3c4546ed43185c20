"""The process through which a rank reaches its peers where the kernel cannot delay packets.

`python -m worker_agent.network.proxy` reads one `ProxyOrder` as a line of JSON from standard input,
writes the ports on which it listens in the same shape, and serves until the input ends: when its
agent stops it or dies. Every connection that the rank opens passes through it, and both directions
are delayed. A connection that a peer opens passes through that peer's proxy.
"""

from __future__ import annotations

import ctypes
import errno
import heapq
import json
import logging
import os
import random
import resource
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field

from farm.configuration.spec import NetworkProfile
from farm.values.codec import from_text
from worker_agent.network.delay_line import DelayLine, Pipe, StreamEnd

logger = logging.getLogger("worker_agent.network.proxy")  # __name__ is __main__ here

LISTEN_HOST = "127.0.0.1"
_BACKLOG = 512
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PR_SET_TIMERSLACK = 29
_PASSING = (errno.EINPROGRESS, errno.EWOULDBLOCK)
# With no time to linger, closing sends a reset.
_NO_LINGER = struct.pack("ii", 1, 0)


class LinkEnd:
    """One socket of a link, with what is under way to it."""

    def __init__(self, link: Link, own: socket.socket, line: DelayLine) -> None:
        self.link = link
        self.socket = own
        self.registered: int | None = None  # with the proxy's epoll, for these events
        self.alarm_at: float | None = None
        self.is_connecting = False
        self._line = line
        self._is_blocked = False  # its receiver takes no more for now
        self.has_said_all = False  # nothing more comes from it
        self.is_told_all = False  # nothing more goes to it

    @property
    def other(self) -> LinkEnd:
        near, far = self.link.ends
        return far if self is near else near

    @property
    def is_full(self) -> bool:
        return self._line.is_full

    @property
    def due_at(self) -> float | None:
        """When something is to be sent to it; None while that has to wait for the socket."""
        is_waiting = self.is_connecting or self._is_blocked or self.is_told_all
        return None if is_waiting else self._line.due_at

    def wanted_events(self) -> int | None:
        """Return what of it must be waited for; None: nothing more will come of it."""
        if self.is_connecting:
            return select.EPOLLOUT
        if self.has_said_all and self.is_told_all:
            # It would report its hang-up again and again.
            return None
        can_take = not self.has_said_all and not self.other.is_full
        return (select.EPOLLIN if can_take else 0) | (select.EPOLLOUT if self._is_blocked else 0)

    def on_readable(self, *, now: float) -> None:
        """Read once; what comes is under way to the other end from now."""
        if self.has_said_all:
            self._die(now=now)  # only a reset is reported without being asked for
            return
        try:
            data = self.socket.recv(self._line.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            self._die(now=now)
            return
        self.has_said_all = not data
        self.other.put(data or StreamEnd.END, now=now)

    def on_writable(self, *, now: float) -> None:
        """Go on sending; the first time, learn whether it is connected."""
        was_connecting, self.is_connecting, self._is_blocked = self.is_connecting, False, False
        if was_connecting and self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._die(now=now)  # refused or unreachable, which the other end learns in its time
        else:
            self.flush(now=now)

    def put(self, what: bytes | StreamEnd, *, now: float) -> None:
        """Put something under way to this end."""
        self._line.put(what, now=now)

    def flush(self, *, now: float) -> None:
        """Send what is due, as far as the receiver takes it."""
        while self.due_at is not None and (what := self._line.take(now=now)) is not None:
            try:
                if what is StreamEnd.RESET:
                    self.link.is_broken = True
                    return
                if what is StreamEnd.END:
                    self.is_told_all = True
                    self.socket.shutdown(socket.SHUT_WR)
                elif (sent := self.socket.send(what)) < len(what):
                    self._line.put_back(what[sent:])
            except BlockingIOError:
                assert isinstance(what, bytes)
                self._line.put_back(what)
                self._is_blocked = True
            except OSError:
                self._die(now=now)

    def _die(self, *, now: float) -> None:
        """The socket has broken: nothing more goes to it, and the other end will be told."""
        self.has_said_all = self.is_told_all = True
        self.other.put(StreamEnd.RESET, now=now)


class Link:
    """Owns both sockets. `near` is the rank's connection, `far` the one to its peer."""

    def __init__(
        self,
        near: socket.socket,
        far: socket.socket,
        *,
        target: tuple[str, int],
        there: DelayLine,
        back: DelayLine,
    ) -> None:
        """Begin to connect `far` to `target`."""
        self.ends = (LinkEnd(self, near, back), LinkEnd(self, far, there))
        self.is_broken = False
        self.is_closed = False
        for own in (near, far):
            own.setblocking(False)
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = far.connect_ex(target)
        self.ends[1].is_connecting = True
        self.is_broken = code not in (0, *_PASSING)

    @property
    def is_over(self) -> bool:
        return self.is_broken or all(end.is_told_all for end in self.ends)

    def close(self) -> None:
        """Close both, with a reset where the link has broken."""
        self.is_closed = True
        for end in self.ends:
            if self.is_broken:
                end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            end.socket.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedPeer:
    rank: int
    host: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOrder:
    profile: NetworkProfile
    cpus: tuple[int, ...]  # the rank's own: what the proxy costs, it costs nobody else
    peers: tuple[ProxiedPeer, ...]


@dataclass(slots=True)
class _Listener:
    """Where the rank connects to reach `target`; its pipes are those of the whole peer."""

    socket: socket.socket
    family: int
    target: tuple[str, int]
    there: Pipe
    back: Pipe


@dataclass(order=True, slots=True)
class _Alarm:
    at: float
    number: int
    end: LinkEnd = field(compare=False)


class Proxy:
    """One thread that moves all bytes, each at its time."""

    def __init__(self, order: ProxyOrder) -> None:
        """Listen for each port of each peer. Raises OSError: no port, or an unknown host."""
        self._profile = order.profile
        self._draw = random.Random().uniform
        self._epoll = select.epoll()
        self._listeners: dict[int, _Listener] = {}
        self._ends: dict[int, LinkEnd] = {}
        self._alarms: list[_Alarm] = []
        self._number = 0
        self._is_full = False  # no more connections are taken for now
        self.ports = tuple(self._listen(peer) for peer in order.peers)

    def run(self, control: int) -> None:
        """Serve until `control`, a descriptor, can be read or has ended."""
        self._epoll.register(control, select.EPOLLIN)
        while True:
            # epoll itself waits in whole milliseconds, rounded up; select is exact.
            select.select(
                [self._epoll],
                [],
                [],
                max(0.0, self._alarms[0].at - time.monotonic()) if self._alarms else None,
            )
            for descriptor, events in self._epoll.poll(0):
                if descriptor == control:
                    return
                self._handle(descriptor, events)
            self._send_due()

    def _listen(self, peer: ProxiedPeer) -> tuple[int, ...]:
        bandwidth = self._profile.bandwidth_bytes_per_s
        there, back = Pipe(bandwidth), Pipe(bandwidth)
        ports = []
        for port in peer.ports:
            try:
                found = socket.getaddrinfo(peer.host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise OSError(f"rank {peer.rank}: '{peer.host}' has no address here") from error
            family, _, _, _, target = found[0]
            listening = socket.create_server((LISTEN_HOST, 0), backlog=_BACKLOG)
            listening.setblocking(False)
            self._epoll.register(listening, select.EPOLLIN)
            host = str(target[0])
            self._listeners[listening.fileno()] = _Listener(
                listening, family, (host, port), there, back
            )
            ports.append(listening.getsockname()[1])
        return tuple(ports)

    def _handle(self, descriptor: int, events: int) -> None:
        if descriptor in self._listeners:
            self._accept(self._listeners[descriptor])
            return
        end = self._ends.get(descriptor)
        if end is None:
            return  # its link was closed by an event before this one
        now = time.monotonic()
        if events & select.EPOLLOUT:
            end.on_writable(now=now)
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            end.on_readable(now=now)
        self._settle(end.link)

    def _accept(self, listener: _Listener) -> None:
        far = None
        try:
            far = socket.socket(listener.family, socket.SOCK_STREAM)
            near, _ = listener.socket.accept()
        except OSError as error:
            if far is not None:
                far.close()
            if error.errno in _EXHAUSTED:
                self._await_room()
            return  # otherwise it went away between its arrival and now
        now = time.monotonic()
        # The rank believes to be connected already. Across the link its first bytes would leave
        # after the handshake's round trip, and the answer to them would take another.
        delay_s = self._profile.one_way_delay_s
        link = Link(
            near,
            far,
            target=listener.target,
            there=self._line(listener.there, now + 3 * delay_s),
            back=self._line(listener.back, now + 2 * delay_s),
        )
        for end in link.ends:
            self._ends[end.socket.fileno()] = end
        self._settle(link)

    def _await_room(self) -> None:
        """Let new connections wait in the kernel until one of ours has ended."""
        if not self._ends:
            raise OSError("not one connection is possible: see the limit on open files")
        logger.warning("too many open files: new connections wait")
        self._watch_listeners(0)

    def _watch_listeners(self, events: int) -> None:
        self._is_full = not events
        for listener in self._listeners.values():
            self._epoll.modify(listener.socket, events)

    def _line(self, pipe: Pipe, not_before: float) -> DelayLine:
        return DelayLine(self._profile, pipe, not_before=not_before, uniform=self._draw)

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._alarms and self._alarms[0].at <= now:
            end = heapq.heappop(self._alarms).end
            end.alarm_at = None
            if not end.link.is_closed:
                end.flush(now=now)
                self._settle(end.link)

    def _settle(self, link: Link) -> None:
        """Wait for what the link waits for now, or forget it."""
        if link.is_over:
            for end in link.ends:
                self._ends.pop(end.socket.fileno(), None)
            link.close()
            if self._is_full:
                self._watch_listeners(select.EPOLLIN)
            return
        for end in link.ends:
            self._watch(end)
            due_at = end.due_at
            if due_at is not None and end.alarm_at is None:
                self._number += 1
                end.alarm_at = due_at
                heapq.heappush(self._alarms, _Alarm(due_at, self._number, end))

    def _watch(self, end: LinkEnd) -> None:
        wanted = end.wanted_events()
        if wanted == end.registered:
            return
        if wanted is None:
            self._epoll.unregister(end.socket)
        elif end.registered is None:
            self._epoll.register(end.socket, wanted)
        else:
            self._epoll.modify(end.socket, wanted)
        end.registered = wanted


def main() -> int:
    """Return 0 once the agent wants no more, 1 with the reason on standard error otherwise."""
    order = from_text(ProxyOrder, sys.stdin.buffer.readline())
    os.sched_setaffinity(0, order.cpus)
    # Otherwise the kernel may wake it 50 us late, to save wake-ups.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        proxy = Proxy(order)
    except OSError as error:
        print(f"proxy cannot listen: {error}", file=sys.stderr)
        return 1
    print(json.dumps(proxy.ports), flush=True)
    proxy.run(sys.stdin.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
