"""Hosts that answer over TCP, to measure the links between them without the farm's code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from farm.lab.hosts import Host
from farm.lab.lab import Lab

_TRAFFIC = str(Path(__file__).with_name("traffic.py"))


# What else is at work on the machine can only add to a time, and does so for seconds on end: the
# least is believed once a second measurement comes this near to it.
_AGREED_RATIO = 1.03
_MEASUREMENT_LIMIT = 12


@dataclass(frozen=True, slots=True)
class Transfer:
    bytes_per_s: float
    resent_count: int


def _undisturbed(measure: Callable[[], float]) -> float:
    found = [measure()]
    while len(found) < _MEASUREMENT_LIMIT:
        found.append(measure())
        least, next_to_it, *_ = sorted(found)
        if next_to_it <= _AGREED_RATIO * least:
            break
    return min(found)


class Stations:
    """A listening `traffic.py` on every host of a lab; they end with the lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._ports: dict[Host, str] = {}
        for host in lab.hosts:
            process = lab.popen(host, [sys.executable, _TRAFFIC, "serve", host.address])
            assert process.stdout is not None
            self._ports[host] = process.stdout.readline().strip()

    def rtt_s(self, source: Host, target: Host, *, count: int = 20) -> float:
        """Return the median over one connection: the least of several, found twice."""
        return _undisturbed(lambda: float(self._text("rtt", source, target, count)))

    def send(self, source: Host, target: Host, *, seconds: float) -> Transfer:
        bytes_per_s, resent = self._text("send", source, target, seconds).split()
        return Transfer(float(bytes_per_s), int(resent))

    def send_undisturbed(self, source: Host, target: Host, *, seconds: float) -> Transfer:
        """Return the fastest of several transfers, its speed found twice."""
        transfers: dict[float, Transfer] = {}

        def slowness() -> float:
            transfer = self.send(source, target, seconds=seconds)
            transfers[1 / transfer.bytes_per_s] = transfer
            return 1 / transfer.bytes_per_s

        return transfers[_undisturbed(slowness)]

    def reaches(self, source: Host, target: Host, *, within_s: float) -> bool:
        """Whether one round trip is done in that time, the connection included."""
        try:
            return self._measure("rtt", source, target, 1, timeout_s=within_s).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _text(self, command: str, source: Host, target: Host, amount: float) -> str:
        done = self._measure(command, source, target, amount, timeout_s=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _measure(
        self, command: str, source: Host, target: Host, amount: float, *, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        port = self._ports[target]
        argv = [sys.executable, _TRAFFIC, command, target.address, port, str(amount)]
        return self.lab.run(source, argv, timeout_s=timeout_s)
