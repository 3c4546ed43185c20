"""The real web server as a process of its own, on a store that a test has filled."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.web.web_client import NO_BROKER


@contextmanager
def web_process(database_url: str, *, home: Path, broker_url: str = NO_BROKER) -> Iterator[str]:
    """Serve that store on loopback, and yield the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FARM_")}
    server = subprocess.Popen(
        [sys.executable, "-m", "farm.cli.main", "run", "web"],
        env={
            **kept,
            "FARM_DATABASE_URL": database_url,
            "FARM_BROKER_URL": broker_url,
            "FARM_HOME": str(home),
            "FARM_WEB_PORT": str(port),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        assert server.stdout.readline().startswith("dashboard at ")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
        server.stdout.close()
