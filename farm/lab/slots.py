"""Numbers the labs of this machine, so that their names and addresses do not clash.

The process of a lab holds the lock file of its slot; the kernel releases the lock when the process
ends, however it ends. So everything named after an unlocked slot is left from a dead lab, and the
next process that takes the slot removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import TextIO

from farm.errors import FarmError
from farm.lab.system import interfaces, known_networks, namespaces, processes_in, run
from farm.lab.wirefilter import LINKS

_FOLDER = LINKS.parent
_SLOT_COUNT = 256
# A wider route is a default one in disguise, as some VPNs set it; a lab's goes before it.
_NARROWER_THAN = 8
_GONE_WITHIN_S = 10.0
_POLL_S = 0.01


class Slot:
    """A slot that this process holds, empty and with a folder, until `release`."""

    def __init__(self, number: int, lock: TextIO) -> None:
        self.number = number
        self._lock = lock

    @property
    def prefix(self) -> str:
        """What every namespace and interface of the lab begins with; no other lab's does."""
        return f"bfl{self.number}-"

    @property
    def folder(self) -> Path:
        return _FOLDER / str(self.number)

    def address(self, host: int) -> str:
        """Return a host's address in the network of the gang.

        198.18.0.0/15 is kept for measurements within a network (RFC 2544), so that no real
        network has it.
        """
        return f"198.18.{self.number}.{host}"

    def broker_address(self, host: int) -> str:
        """Return its address in the network of the broker."""
        return f"198.19.{self.number}.{host}"

    def rival(self, networks: Sequence[IPv4Network]) -> IPv4Network | None:
        """Return the first of these networks that overlaps the lab's broker network, or None.

        The gang's network is seen by the lab's hosts alone.
        """
        own = IPv4Network(f"{self.broker_address(0)}/24")
        return next(
            (n for n in networks if n.prefixlen >= _NARROWER_THAN and n.overlaps(own)), None
        )

    def clear(self) -> bool:
        """Remove everything named after this slot; return whether there was anything.

        Raises:
            FarmError: something stays.
        """
        spaces, own = namespaces(self.prefix), interfaces(self.prefix)
        _kill(spaces)
        for namespace in spaces:
            run("ip", "netns", "delete", namespace)
        # Interfaces within a namespace go with it, and their ends in ours a little later.
        for name in own:
            with contextlib.suppress(FarmError):
                run("ip", "link", "delete", name)
        if left := interfaces(self.prefix):
            raise FarmError(f"interfaces {', '.join(left)} of a lab cannot be removed")
        for link in LINKS.glob(f"{self.prefix}*"):
            link.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        return bool(spaces or own)

    def release(self) -> None:
        """Let another lab have the slot."""
        # Removed while it is held: who waits for this very file notices that it is no more.
        _lock_file(self.number).unlink(missing_ok=True)
        self._lock.close()


def claim_slot() -> Slot:
    """Take the first free slot, and remove the rest of a dead lab in it.

    One whose addresses this machine uses for something else is passed over.

    Raises:
        FarmError: there is none.
    """
    networks = known_networks()
    rival: IPv4Network | None = None
    for number in range(_SLOT_COUNT):
        slot = hold(number)
        if slot is None:
            continue
        try:
            if slot.clear():
                networks = known_networks()  # the dead lab's own was among them
            taken = slot.rival(networks)
            if taken is None:
                slot.folder.mkdir(mode=0o700)
                return slot
        except BaseException:
            slot.release()
            raise
        slot.release()
        rival = taken
    if rival is None:
        raise FarmError(f"{_SLOT_COUNT} labs are running already: stop one")
    raise FarmError(
        f"no lab can have addresses: this machine has {rival}, and labs take 198.19.N.0/24, N from "
        f"0 to {_SLOT_COUNT - 1}: remove that address or route (ip route show table all)"
    )


def clear_dead_labs() -> int:
    """Remove what labs left whose owners are dead; return how many there were.

    Raises:
        FarmError: something stays.
    """
    count = 0
    for number in range(_SLOT_COUNT):
        prefix = f"bfl{number}-"
        if not (_lock_file(number).exists() or namespaces(prefix) or interfaces(prefix)):
            continue
        slot = hold(number)
        if slot is not None:
            try:
                count += slot.clear()
            finally:
                slot.release()
    return count


def hold(number: int) -> Slot | None:
    """Take a slot without cleaning it; None while another process holds it."""
    LINKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        lock = _lock_file(number).open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), _lock_file(number).stat()):
                # A killed owner's last command goes on, and must not be crossed: it holds the
                # slot, too (see `system.run`).
                os.set_inheritable(lock.fileno(), True)
                return Slot(number, lock)
        lock.close()  # its holder has just removed it; there may be a new one


def _lock_file(number: int) -> Path:
    return _FOLDER / f"{number}.lock"


def _kill(spaces: list[str]) -> None:
    """End every process within the namespaces; what they start meanwhile, too."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while pids := [pid for namespace in spaces for pid in processes_in(namespace)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise FarmError(f"processes {', '.join(map(str, pids))} of a lab cannot be ended")
        time.sleep(_POLL_S)
