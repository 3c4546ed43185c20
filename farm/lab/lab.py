"""Creates and removes a lab, with its wires and its hosts' links."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from farm.configuration.spec import NetworkProfile
from farm.errors import FarmError, InvalidSpec
from farm.lab.hosts import MAX_HOSTS, Host, make_hosts, plan_hosts, plug_in, server_address
from farm.lab.slots import Slot, claim_slot
from farm.lab.system import prefix_into, run, what_is_missing
from farm.lab.watchdog import LabWatchdog
from farm.lab.wirefilter import LINKS, WireDirection, Wirefilter, check_profile

logger = logging.getLogger(__name__)

_ENDS_WITHIN_S = 10.0  # of a command on a host
_QUEUED_DATAGRAMS = 4096
_WIRES_READY_S = 10.0
_WIRES_LEAVE_WITHIN_S = 5.0
_WIRES_POLL_S = 0.005
_UNPAUSED_US = 1_000_000


class Lab:
    """Makes its hosts on entering, removes everything on leaving, in the owner's death too.

    A host's link is set for what *arrives* there; what leaves is the host's own affair, as an
    agent shapes it. So the one-way delay from a to b is b's link plus what a itself adds.

    Raises:
        InvalidSpec: an impossible number of hosts.
        FarmError: on entering: no root, no `vde2`, or the system refuses.
    """

    def __init__(self, *, hosts: int) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise InvalidSpec("hosts", hosts, f"1 to {MAX_HOSTS}")
        self._host_count = hosts
        self._processes: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        if missing := what_is_missing():
            raise FarmError(missing)
        with ExitStack() as stack:
            self._slot = claim_slot()
            try:
                self._watchdog = LabWatchdog(self._slot)
            except BaseException:
                self._slot.release()
                raise
            # Last of all: if anything is left, the watchdog removes it afterwards.
            stack.callback(self._watchdog.leave)
            stack.callback(self._slot.release)
            stack.callback(self._remove)
            self._wires = _Wires(self._slot)
            self.hosts = plan_hosts(self._slot, self._host_count)
            make_hosts(self._slot, self.hosts)
            self._wires.connect(self.hosts)
            self.set_link()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def slot(self) -> Slot:
        return self._slot

    @property
    def server_address(self) -> str:
        """The address at which hosts reach programs of our own namespace, such as Redis."""
        return server_address(self._slot)

    def wire_pids(self) -> dict[str, int]:
        """Return the processes that carry packets, by name."""
        return self._wires.pids()

    def set_link(
        self,
        host: Host | None = None,
        *,
        delay_s: float = 0.0,
        loss_ratio: float = 0.0,
        bandwidth_bytes_per_s: float | None = None,
    ) -> None:
        """Replace the settings for packets to a host, or to every host; omitted ones are reset.

        Raises:
            InvalidSpec: a value that no link can have.
            EmulationFailed: a wire does not do it.
        """
        profile = NetworkProfile(
            one_way_delay_s=delay_s,
            packet_loss_ratio=loss_ratio,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        )
        check_profile(profile)
        for each in self.hosts if host is None else (host,):
            self._wire(each).apply(profile, direction=WireDirection.TO_HOST)

    def link(self, host: Host) -> NetworkProfile:
        """Return the present settings for packets to a host, as its wire reports them."""
        return self._wire(host).read(WireDirection.TO_HOST)

    def cut(self, host: Host) -> None:
        """Let no packet of the gang's network reach or leave the host; its interface stays up."""
        self._wire(host).cut()

    def heal(self, host: Host) -> None:
        """Undo `cut`; the link is again as it was set."""
        self._wire(host).heal()

    def run(
        self, host: Host, argv: Sequence[str], *, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end, and return its output and status."""
        return subprocess.run(
            host.command(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def popen(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        output: IO[str] | int = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """Start a command on a host; it ends with the lab at the latest."""
        process = subprocess.Popen(
            host.command(argv),
            env=dict(os.environ if environ is None else environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def _wire(self, host: Host) -> Wirefilter:
        return Wirefilter.of_interface(host.interface)

    def _remove(self) -> None:
        self._wires.close()
        for process in self._processes:
            process.kill()  # it may not have entered its host yet
        self._slot.clear()
        for process in self._processes:
            process.wait(timeout=_ENDS_WITHIN_S)
            if process.stdout is not None:
                process.stdout.close()
        self._watchdog.call_off()


class _Wires:
    """The processes that carry packets: one switch, and one `wirefilter` from it to each host.

    Start them with `connect`; `close` ends them. They live in a network namespace of their own, in
    which the queues of UNIX datagrams are longer than the system's ten packets: where a wire has to
    wait for the CPU, fewer are lost so. Each reads the end of its standard input as the order to
    leave, so that none survives the process that started it.
    """

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
                process.wait(timeout=_WIRES_LEAVE_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=_WIRES_LEAVE_WITHIN_S)

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
        deadline = time.monotonic() + _WIRES_READY_S
        process = self._processes[name]
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                words = " ".join(self._log(name).read_text(errors="replace").split())
                raise FarmError(f"the lab's {name} did not start: {words or 'no reason given'}")
            time.sleep(_WIRES_POLL_S)

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
