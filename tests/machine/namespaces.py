"""Two hosts with a wire between them, as network namespaces. Needs root."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_numbers = itertools.count()

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root")


class Namespace:
    """One host. Its interface towards the other is `eth0`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, function: Callable[[], T]) -> T:
        """Call `function` in a thread that lives on this host, and so do its sockets."""
        done: list[T] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                enter(self.name)
                done.append(function())
            except BaseException as error:  # handed to the caller, whose it is
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    def command(self, *module: str, prefix: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs a Python module on this host, behind a prefix."""
        return ["ip", "netns", "exec", self.name, *prefix, sys.executable, "-P", "-m", *module]

    def ip(self, *words: str) -> str:
        return ip("-n", self.name, *words)

    def root_queue(self, interface: str = "eth0") -> str:
        """Return the first line that `tc` has to say of an interface."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, "tc", "qdisc", "show", "dev", interface],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.partition("\n")[0]


@contextmanager
def two_hosts() -> Iterator[tuple[Namespace, Namespace]]:
    """The first has 10.99.0.1 and fd99::1, the second .2 and .3, and ::2 and ::3."""
    stem = f"bft{os.getpid()}n{next(_numbers)}"
    near, far = Namespace(f"{stem}a"), Namespace(f"{stem}b")
    try:
        for host in (near, far):
            ip("netns", "add", host.name)
        wire = ["eth0", "netns", near.name, "type", "veth", "peer", "name", "eth0"]
        ip("link", "add", *wire, "netns", far.name)
        for host, numbers in ((near, [1]), (far, [2, 3])):
            host.ip("link", "set", "lo", "up")
            host.ip("link", "set", "eth0", "up")
            for number in numbers:
                host.ip("addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
                host.ip("addr", "add", f"fd99::{number}/64", "dev", "eth0", "nodad")
        yield near, far
    finally:
        for host in (near, far):
            subprocess.run(["ip", "netns", "del", host.name], check=False, capture_output=True)


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def enter(name: str) -> None:
    """Move this thread, and no other, to a host."""
    with Path("/run/netns", name).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
