"""Which interface carries the traffic of an agent that advertises a name."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil
import pytest

from worker_agent.machine.machine import interface_of

HELD = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["10.0.0.5", "fe80::1%eth0"],
    "eth1": ["10.1.0.5"],
}


@pytest.mark.parametrize(
    ("resolved", "interface"),
    [
        (["127.0.0.1", "10.0.0.5"], "eth0"),
        (["::1", "10.1.0.5"], "eth1"),
        (["127.0.1.1", "127.0.0.1", "10.0.0.5"], "eth0"),
        (["10.0.0.5"], "eth0"),
        (["127.0.0.1", "::1"], "lo"),
        (["127.0.1.1"], "lo"),
    ],
)
def test_a_name_that_stands_for_the_loopback_too_is_measured_where_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, resolved: list[str], interface: str
) -> None:
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda *_, **__: [(0, 0, 0, "", (address, 0)) for address in resolved],
    )
    monkeypatch.setattr(
        psutil,
        "net_if_addrs",
        lambda: {
            name: [SimpleNamespace(address=one) for one in addresses]
            for name, addresses in HELD.items()
        },
    )
    assert interface_of(None, "host.example") == interface
