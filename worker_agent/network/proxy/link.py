"""One connection through the proxy: two sockets, and a delay line towards each."""

from __future__ import annotations

import errno
import select
import socket
import struct

from worker_agent.network.proxy.delay_line import DelayLine, StreamEnd

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
