"""A podman of its own: images, containers and networks in one folder, apart from the machine's."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Of Debian: podman itself, what it runs containers with, makes networks with and names in them.
PROGRAMS = ("podman", "runc", "debootstrap", "iptables", "catatonit")
_HELPERS = (Path("/usr/lib/podman/netavark"), Path("/usr/lib/podman/aardvark-dns"))
_LIMIT_S = 300.0


def missing() -> list[str]:
    """Return what this machine lacks, by the names of Debian's packages."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None] + [
        helper.name for helper in _HELPERS if not helper.exists()
    ]


@dataclass(frozen=True, slots=True)
class Podman:
    """Where it keeps everything. `storage` must be short: a socket's path has 107 characters."""

    folder: Path
    storage: Path

    def environment(self) -> dict[str, str]:
        """Return what makes podman, and what calls it, look there alone."""
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
        }

    def run(self, *words: str, limit_s: float = _LIMIT_S, stdin: str | None = None) -> str:
        """Return what podman prints. Raises AssertionError with its complaint if it fails."""
        return self.call("podman", *words, limit_s=limit_s, stdin=stdin)

    def call(self, *command: str, limit_s: float = _LIMIT_S, stdin: str | None = None) -> str:
        """Run a program that calls podman."""
        done = subprocess.run(
            command,
            env=self.environment(),
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def succeeds(self, *words: str) -> bool:
        """Say whether podman ends with 0."""
        done = subprocess.run(
            ["podman", *words],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
        return done.returncode == 0

    def has_image(self, name: str) -> bool:
        """Say whether the image was made here before."""
        return self.succeeds("image", "exists", name)


@contextmanager
def own_podman(folder: Path, *, storage: Path) -> Iterator[Podman]:
    """Configure one, and leave neither container, volume nor network of it behind.

    Images stay in `storage`.
    """
    podman = Podman(folder, storage)
    hard = {kind: resource.getrlimit(kind)[1] for kind in _LIMITED}
    # Left alone it asks for more than a machine may give that lacks CAP_SYS_RESOURCE.
    limits = [f"{name}={_most(hard[kind])}:{_most(hard[kind])}" for kind, name in _LIMITED.items()]
    _write(
        folder / "containers.conf",
        "[containers]",
        f"default_ulimits = {_quoted(limits)}",
        'log_driver = "k8s-file"',
        "[engine]",
        'runtime = "runc"',
        # They serve machines with and without systemd.
        'cgroup_manager = "cgroupfs"',
        'events_logger = "file"',
        "[network]",
        'network_backend = "netavark"',
        f'network_config_dir = "{folder}/networks"',
    )
    _write(
        folder / "storage.conf",
        "[storage]",
        'driver = "overlay"',
        f'graphroot = "{storage}"',
        # What was used first stands in the storage's database, and counts whatever is said here.
        f'runroot = "{storage.parent}/run"',
    )
    _write(folder / "registries.conf", 'unqualified-search-registries = ["docker.io"]')
    try:
        yield podman
    finally:
        podman.run("rm", "--all", "--force", "--time", "2")
        podman.run("volume", "prune", "--force")
        podman.run("network", "prune", "--force")
        # Not everywhere mounted.
        subprocess.run(
            ["umount", "--lazy", str(storage / "overlay")], capture_output=True, check=False
        )


_LIMITED = {resource.RLIMIT_NOFILE: "nofile", resource.RLIMIT_NPROC: "nproc"}
_MOST = 16384


def _most(hard: int) -> int:
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)


def _quoted(words: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def _write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n")
