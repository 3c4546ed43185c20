"""A wire that is not what it says: it is told one thing, does another, and shows what it was told.

It stands between whoever speaks with a `wirefilter` and the wirefilter itself, at the place of the
latter's management socket.
"""

from __future__ import annotations

import re
import socket
import threading
from types import TracebackType

from farm.lab.hosts import Host
from farm.lab.wirefilter import LINKS

_PROMPT = b"VDEwf$ "


class CrookedWire:
    """Adds `more_delay_ms` to what an agent asks for; leaving the `with` heals it.

    Where no delay is asked for there is none, so the wire is as it should be once it is cleared.
    """

    def __init__(self, host: Host, *, more_delay_ms: float) -> None:
        self._path = LINKS / host.interface
        self._real = LINKS / f"{host.interface}.real"
        self._more_ms = more_delay_ms
        self._reported = b"0"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> CrookedWire:
        self._path.rename(self._real)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=60)  # whoever has come in time, such as to undo, is served
        self._listener.close()
        self._real.replace(self._path)

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            with caller, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
                wire.connect(str(self._real))
                self._carry(caller, wire)

    def _carry(self, caller: socket.socket, wire: socket.socket) -> None:
        """Hand on a call, one command and its answer after the other."""
        while answer := _until(wire, _PROMPT):
            shown = rb"\g<1>" + self._reported
            # "Delay  L->R 0+0U   R->L 40+0U"
            caller.sendall(re.sub(rb"(?m)^(Delay\s.*R->L\s+)[\d.]+", shown, answer))
            command = _until(caller, b"\n")
            if not command:
                return
            wire.sendall(re.sub(rb"^(delay RL )(\S+)", self._lengthen, command))

    def _lengthen(self, command: re.Match[bytes]) -> bytes:
        self._reported, asked_ms = command[2], float(command[2])
        return command[1] + b"%.9g" % (asked_ms and asked_ms + self._more_ms)


def _until(connection: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        part = connection.recv(4096)
        if not part:
            return b""
        data += part
    return data
