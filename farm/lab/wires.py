"""The processes that carry packets: one switch, and one `wirefilter` from it to each host.

They live in a network namespace of their own, in which the queues of UNIX datagrams are longer
than the system's ten packets: where a wire has to wait for the CPU, fewer are lost so.
Each reads the end of its standard input as the order to leave, so that none survives the process
that started it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from farm.errors import FarmError
from farm.lab.hosts import Host, plug_in
from farm.lab.slots import Slot
from farm.lab.system import prefix_into, run
from farm.lab.wirefilter import LINKS, Wirefilter

logger = logging.getLogger(__name__)

_QUEUED_DATAGRAMS = 4096
_READY_S = 10.0
_LEAVES_WITHIN_S = 5.0
_POLL_S = 0.005
_UNPAUSED_US = 1_000_000


class Wires:
    """Start them with `connect`; `close` ends them."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._namespace = f"{slot.prefix}wires"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def connect(self, hosts: Sequence[Host]) -> None:
        """Join the hosts, each by a wire that does nothing yet.

        Raises:
            FarmError: a program ended or was not ready in time; the message has its last words.
        """
        run("ip", "netns", "add", self._namespace)
        setting = f"net.unix.max_dgram_qlen={_QUEUED_DATAGRAMS}"
        run(*prefix_into(self._namespace), "sysctl", "-qw", setting)
        hub = self._slot.folder / "hub"
        # Some ports to spare; it takes one for each wire.
        self._start("switch", ["vde_switch", "-s", str(hub), "-n", str(len(hosts) + 2)])
        self._wait(lambda: (hub / "ctl").is_socket(), "switch")
        for host in hosts:
            # Debian's library of plugs opens the TAP itself; a switch each would be one more way.
            ends = f"{hub}:tap://{host.interface}"
            argv = ["wirefilter", "-v", ends, "-M", str(LINKS / host.interface)]
            self._start(host.interface, argv)
        for host in hosts:
            self._wait(lambda host=host: self._is_up(host), host.interface)  # type: ignore[misc]
            plug_in(host, wires_namespace=self._namespace)

    def pids(self) -> dict[str, int]:
        """Return the process ids by name: "switch", and the wires by their hosts' interfaces."""
        return {name: process.pid for name, process in self._processes.items()}

    def close(self) -> None:
        """End the processes and wait for their end; twice is harmless."""
        # The switch comes last: a wire whose switch has gone looks for it without a pause.
        for process in reversed(self._processes.values()):
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
            try:
                process.wait(timeout=_LEAVES_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=_LEAVES_WITHIN_S)

    def _start(self, name: str, argv: Sequence[str]) -> None:
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*prefix_into(self._namespace), *argv],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal is for their owner.
                start_new_session=True,
            )
        _put_first(self._processes[name].pid, is_limited=name != "switch")

    def _is_up(self, host: Host) -> bool:
        devices = Path(f"/proc/{self._processes[host.interface].pid}/net/dev")
        with contextlib.suppress(OSError):
            return (
                f"{host.interface}:" in devices.read_text()
                and Wirefilter.of_interface(host.interface).is_there
            )
        return False

    def _wait(self, is_ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + _READY_S
        process = self._processes[name]
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                words = " ".join(self._log(name).read_text(errors="replace").split())
                raise FarmError(f"the lab's {name} did not start: {words or 'no reason given'}")
            time.sleep(_POLL_S)

    def _log(self, name: str) -> Path:
        return self._slot.folder / f"{name}.log"


def _put_first(pid: int, *, is_limited: bool) -> None:
    """Let the process run before whatever the hosts do: a link does not wait for a busy CPU.

    With three busy processes on two cores, 30 to 38 segments of 2 s at full speed were lost and
    sent again without it, none with it.
    """
    try:
        if is_limited:
            # One that never pauses any more, its switch having died, ends instead of taking a
            # core. The switch itself may be that busy, with many hosts.
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (_UNPAUSED_US, _UNPAUSED_US))
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        logger.warning("the lab's wires compete with its hosts for the CPU: no CAP_SYS_NICE")
