"""Machines with a systemd of their own: roots that are booted as containers on one bridge.

Works as root, on a host with or without systemd. Each machine is a layer over one system, thrown
away afterwards; the bridge is in a network namespace of its own, so that nothing else is on it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.e2e.deploy.booted_system import (
    ENVIRONMENT,
    OWN,
    System,
    asked_suite,
    missing_of_own,
    run,
)
from tests.e2e.live_farm import wait_until
from tests.machine.namespaces import ip

PROGRAMS = ("systemd-nspawn", "nsenter", "ip", "mount")
_NETWORK = "[Match]\nName=host0\n[Network]\nAddress={address}/24\nLinkLocalAddressing=no\nLLDP=no\n"
_BRIDGE = "br0"
# Service and the target that starts it.
_WANTED = {
    "systemd-networkd": "multi-user",
    "systemd-networkd-wait-online": "network-online",
}
_BOOT_S = 300.0
_STOP_S = 120.0


def missing_programs() -> str | None:
    """Return why no root can be booted here; None where it can."""
    if os.geteuid() != 0:
        return "roots are booted by root"
    is_own = asked_suite() == OWN
    programs = PROGRAMS if is_own else ("debootstrap", *PROGRAMS)
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return missing_of_own() if is_own else None


class ControlGroups:
    """A control group of its own in each hierarchy, under that of this process.

    Without it, two systemds on a host without one would both take the host's own for theirs, and
    services of the same name would share a group: killing one would reach into the other machine.
    """

    def __init__(self, name: str) -> None:
        self._folders = [folder / name for folder in _hierarchies()]

    def make(self) -> None:
        for folder in self._folders:
            folder.mkdir(exist_ok=True)

    def enter(self) -> None:
        """Move this process, which is about to become another program."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        for folder in self._folders:
            for inner, _, _ in os.walk(folder, topdown=False):
                Path(inner).rmdir()


def _hierarchies() -> list[Path]:
    """Return the folder of this process's group in each hierarchy, of either version of them."""
    found = []
    top = Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounted = top / "unified" if (top / "unified").is_dir() else top
        else:
            mounted = top / controllers.removeprefix("name=")
        # A new group of `cpuset` has no core, and takes no process.
        if controllers != "cpuset" and mounted.is_dir():
            found.append(mounted / path.lstrip("/"))
    return found


@dataclass(frozen=True, slots=True)
class Network:
    """A bridge in a namespace that nothing but the machines of one test is in."""

    namespace: str

    def machine_options(self) -> tuple[str, ...]:
        return ("--network-bridge", _BRIDGE)

    def entered(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.namespace}")


@contextmanager
def network(name: str) -> Iterator[Network]:
    """Skips the test where root may make none, as in most containers."""
    tried = run("unshare", "--mount", "--net", "true")
    if tried.returncode != 0:
        pytest.skip(f"no namespace can be made here: {tried.stderr.strip()}")
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", _BRIDGE, "type", "bridge")
        ip("-n", name, "link", "set", _BRIDGE, "up")
        yield Network(name)
    finally:
        ip("netns", "del", name)


class Machine:
    """One root, with an address of its own, that is booted and powered off."""

    def __init__(
        self,
        name: str,
        *,
        system: System,
        folder: Path,
        network: Network,
        address: str,
        binds: Sequence[str],
    ) -> None:
        self.name, self.address = name, address
        self._network, self._binds = network, binds
        self._top = folder / name
        self.root = self._top / "root"
        self._groups = ControlGroups(f"{name}-{os.getpid()}")
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._top.mkdir()
        self._system = system

    def mount(self) -> None:
        """Lay it over its system, with its name and its address; skip where that cannot be done."""
        if self._system.is_own:
            # A layer cannot be in what it lies over.
            _mount("tmpfs", self._top)
        for part in ("root", "upper", "work"):
            (self._top / part).mkdir()
        layers = f"lowerdir={self._system.root},upperdir={self._top}/upper,workdir={self._top}/work"
        _mount("overlay", self.root, "-o", layers)
        if self._system.is_own:
            _forget_its_machine(self.root)
        etc = self.root / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost {self.name}\n")
        (etc / "machine-id").unlink(missing_ok=True)
        (etc / "machine-id").touch()
        (etc / "systemd/network/10-host0.network").write_text(_NETWORK.format(address=self.address))
        for service, target in _WANTED.items():
            wanted = etc / "systemd/system" / f"{target}.target.wants"
            wanted.mkdir(exist_ok=True)
            (wanted / f"{service}.service").symlink_to(f"/lib/systemd/system/{service}.service")
        self._check_that_it_can_be_entered()

    def _check_that_it_can_be_entered(self) -> None:
        """Skip the test where this machine lets nobody start a container."""
        entered = run(*self._nspawn_command(), "/bin/true", limit_s=_BOOT_S)
        if entered.returncode != 0:
            pytest.skip(f"systemd-nspawn cannot start a container here: {entered.stderr.strip()}")

    def _nspawn_command(self) -> list[str]:
        return [
            *self._network.entered(),
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit"),
            *("--directory", str(self.root), "--machine", self.name, "--console=pipe"),
            *self._network.machine_options(),
            *(f"--bind-ro={bind}" for bind in self._binds),
        ]

    def boot(self) -> float:
        """Start it, wait until systemd has started what it was to start, and return how long."""
        started = time.monotonic()
        self._groups.make()
        with (self._top / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                [*self._nspawn_command(), "--boot"],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                preexec_fn=self._groups.enter,
            )
        wait_until(self._is_up, f"{self.name} is up: {self._top}/console", within_s=_BOOT_S)
        return time.monotonic() - started

    def _is_up(self) -> bool:
        assert self._nspawn is not None
        assert self._nspawn.poll() is None, (self._top / "console").read_text(errors="replace")
        if self._leader() is None:
            return False
        return self.run("systemctl", "is-system-running") in ("running", "degraded")

    def reboot(self) -> float:
        """Have its systemd shut it down, as `reboot` does, then start it; return how long."""
        started = time.monotonic()
        self.run("systemctl", "reboot")
        assert self._nspawn is not None
        # Of a container that asks to be started anew it says so, and leaves it to its caller.
        self._nspawn.wait(_STOP_S)
        self.boot()
        return time.monotonic() - started

    def power_off(self) -> None:
        """Shut it down, or end it where that takes too long."""
        if self._nspawn is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self._nspawn.pid, signal.SIGTERM)
        try:
            self._nspawn.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            leader = self._leader()
            if leader is not None:
                os.kill(leader, signal.SIGKILL)
            self._nspawn.kill()
            self._nspawn.wait()
        self._nspawn = None

    def throw_away(self) -> None:
        """Leave nothing of it on this host."""
        self.power_off()
        for mounted in (self.root, self._top):
            run("umount", str(mounted))
        self._groups.remove()
        shutil.rmtree(self._top)

    def run(self, *command: str, limit_s: float = 120.0) -> str:
        """Run a command in it, as root, and return what it said, whatever its status."""
        return self.tried(*command, limit_s=limit_s).stdout.strip()

    def do(self, *command: str, limit_s: float = 120.0) -> str:
        """Run a command in it that has to succeed."""
        done = self.tried(*command, limit_s=limit_s)
        assert done.returncode == 0, f"{self.name}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def tried(self, *command: str, limit_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return run(*self._entered(*command), limit_s=limit_s)

    @contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        """A command that runs in it for the length of a block, and ends as its input does."""
        with subprocess.Popen(
            self._entered(*command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.communicate(timeout=_STOP_S)

    def _entered(self, *command: str) -> list[str]:
        return [
            *("nsenter", "--target", str(self._leader()), "-m", "-u", "-i", "-n", "-p", "-C"),
            *("--", "env", "-i", *ENVIRONMENT, *command),
        ]

    def _leader(self) -> int | None:
        """Return the process that is its first, if there is one yet."""
        assert self._nspawn is not None
        try:
            children = psutil.Process(self._nspawn.pid).children()
        except psutil.NoSuchProcess:
            return None
        # Its last one: while it starts, it has a child that only prepares.
        return children[-1].pid if children else None


def _mount(kind: str, folder: Path, *options: str) -> None:
    done = run("mount", "-t", kind, kind, *options, str(folder))
    if done.returncode != 0:
        pytest.skip(f"{kind} cannot be mounted here: {done.stderr.strip()}")


def _forget_its_machine(root: Path) -> None:
    """Leave of this machine's own system its packages: nothing that it starts, mounts or keeps."""
    etc = root / "etc"
    for folder in (etc / "systemd/system", etc / "systemd/network", root / "var/lib/redis"):
        for inner in folder.iterdir() if folder.is_dir() else ():
            shutil.rmtree(inner) if inner.is_dir() and not inner.is_symlink() else inner.unlink()
        folder.mkdir(exist_ok=True)
    generators = etc / "systemd/system-generators"
    generators.mkdir(exist_ok=True)
    for generator in ("systemd-sysv-generator", "cloud-init-generator"):
        (generators / generator).unlink(missing_ok=True)
        (generators / generator).symlink_to("/dev/null")
    for folder in (etc / "postgresql", root / "var/lib/postgresql"):
        for version in folder.iterdir() if folder.is_dir() else ():
            shutil.rmtree(version)
    for name in ("fstab", "pip.conf", "resolv.conf"):
        (etc / name).unlink(missing_ok=True)
