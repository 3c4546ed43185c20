"""TCP between two hosts, timed without any of the farm's code: a script that needs Python alone.

traffic.py serve ADDRESS           print a port; echo one byte at a time, or swallow a stream
traffic.py rtt ADDRESS PORT N      print the median of N round trips in seconds
traffic.py send ADDRESS PORT S     send for S seconds; print bytes/s received, segments resent
"""

from __future__ import annotations

import socket
import statistics
import sys
import threading
import time
from pathlib import Path

_ECHO, _SINK = b"e", b"s"
_TIMEOUT_S = 20.0
_CHUNK = bytes(65536)


def serve(address: str) -> None:
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connection.recv(1) == _ECHO:
            while data := connection.recv(1):
                connection.sendall(data)
            return
        count = 0
        while data := connection.recv(1 << 20):
            count += len(data)
        connection.sendall(f"{count}\n".encode())


def _connect(address: str, port: int, kind: bytes) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(kind)
    return connection


def rtt(address: str, port: int, count: int) -> None:
    times_s = []
    with _connect(address, port, _ECHO) as connection:
        for _ in range(count):
            begun = time.perf_counter()
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            times_s.append(time.perf_counter() - begun)
    print(statistics.median(times_s))


def send(address: str, port: int, seconds: float) -> None:
    before = _resent()
    with _connect(address, port, _SINK) as connection:
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            connection.sendall(_CHUNK)
        connection.shutdown(socket.SHUT_WR)
        received = int(connection.makefile().readline())
        # The last of what was queued arrives after the last `sendall`.
        elapsed_s = time.perf_counter() - begun
    print(received / elapsed_s, _resent() - before)


def _resent() -> int:
    """Return how many segments this network namespace has sent again so far."""
    lines = Path("/proc/self/net/snmp").read_text().splitlines()
    titles, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(values[titles.index("RetransSegs")])


if __name__ == "__main__":
    command, address, *rest = sys.argv[1:]
    if command == "serve":
        serve(address)
    elif command == "rtt":
        rtt(address, int(rest[0]), int(rest[1]))
    else:
        send(address, int(rest[0]), float(rest[1]))
