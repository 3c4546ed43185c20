"""The rules that bound what one address may send to Redis: with real packets between two hosts."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.machine.namespaces import Namespace, needs_root, two_hosts

RULES = Path(__file__).parents[3] / "deploy/redis/rate_limit.nft"
MOST_BYTES_PER_S = 100e6
LENGTH_S = 3.0


def sent_per_s(near: Namespace, far: Namespace, *, server: str, client: str) -> float:
    """Return how many bytes a second arrive of a flood."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    listener = near.run(lambda: socket.create_server((server, 6379), family=family))

    def flood() -> None:
        with socket.create_connection((server, 6379), source_address=(client, 0)) as connection:
            try:
                while True:
                    connection.sendall(bytes(1 << 20))
            except OSError:
                return  # the other end has closed

    sender = threading.Thread(target=lambda: far.run(flood))
    sender.start()
    connection, _ = listener.accept()
    burst = 2 * MOST_BYTES_PER_S  # a second's worth is let through at first
    while burst > 0:
        burst -= len(connection.recv(1 << 20))
    begun_s, count = time.monotonic(), 0
    while time.monotonic() - begun_s < LENGTH_S:
        count += len(connection.recv(1 << 20))
    per_s = count / (time.monotonic() - begun_s)
    connection.close()
    listener.close()
    sender.join()
    return per_s


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(("server", "client"), [("10.99.0.1", "10.99.0.2"), ("fd99::1", "fd99::2")])
def test_an_address_sends_no_more_than_its_share(server: str, client: str) -> None:
    with two_hosts() as (near, far):
        free = sent_per_s(near, far, server=server, client=client)
        for _ in range(2):  # the second time replaces the first
            subprocess.run(
                ["ip", "netns", "exec", near.name, "nft", "-f", str(RULES)], check=True, timeout=60
            )
        limited = sent_per_s(near, far, server=server, client=client)
    assert free > 2 * MOST_BYTES_PER_S
    assert 0.2 * MOST_BYTES_PER_S < limited < 1.2 * MOST_BYTES_PER_S
