"""A lab from its making to its removal, and the knobs of its links."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO

from farm.configuration.spec import NetworkProfile
from farm.errors import FarmError, InvalidSpec
from farm.lab.hosts import MAX_HOSTS, Host, make_hosts, plan_hosts, server_address
from farm.lab.slots import Slot, claim_slot
from farm.lab.system import what_is_missing
from farm.lab.warden import Warden
from farm.lab.wirefilter import WireDirection, Wirefilter, check_profile
from farm.lab.wires import Wires

_ENDS_WITHIN_S = 10.0


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
                self._warden = Warden(self._slot)
            except BaseException:
                self._slot.release()
                raise
            # Last of all: should anything have stayed, the warden removes it after we let go.
            stack.callback(self._warden.leave)
            stack.callback(self._slot.release)
            stack.callback(self._remove)
            self._wires = Wires(self._slot)
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
        """Where the hosts reach what runs outside of them, such as Redis: our own namespace."""
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
        """Replace how packets reach a host, or every host; what is left out is undone.

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
        """Return how packets reach a host now, as its wire itself says."""
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
        self._warden.call_off()
