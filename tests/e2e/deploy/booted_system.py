"""What booted machines run: a release of Debian or Ubuntu, or the system of this machine itself.

FARM_TEST_SUITE names it. A release is made by debootstrap, which takes minutes and a mirror, and is
kept; this machine's own (`own`) is what the layers of the machines lie over, and takes nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

# Nothing of this machine's environment, such as a package index of its own.
ENVIRONMENT = (
    *("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"),
    "LANG=C.UTF-8",
)
# What a farm has of them; deploy/install.sh finds it there, since the machines reach no mirror.
PACKAGES = (
    *("systemd", "python3", "python3-venv", "redis-server", "postgresql", "openssl"),
    *("nftables", "iproute2", "procps", "ca-certificates"),
)
_DEBIAN = ("http://deb.debian.org/debian", "main")
_UBUNTU = ("http://archive.ubuntu.com/ubuntu", "main,universe")
SUITES = {"bookworm": _DEBIAN, "trixie": _DEBIAN, "noble": _UBUNTU}
OWN = "own"
_MAKE_S = 1800.0


def kept_folder() -> Path:
    """Return the folder of what is made once: FARM_TEST_ROOTS, or one of the user's caches."""
    named = os.environ.get("FARM_TEST_ROOTS")
    folder = Path(named) if named else Path.home() / ".cache" / "benchfarm-roots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """`root` is never written to."""

    name: str
    root: Path

    @property
    def is_own(self) -> bool:
        return self.root == Path("/")

    def run(self, *command: str, binds: Sequence[str] = (), limit_s: float = _MAKE_S) -> str:
        """Run a command in it that reaches what this machine reaches, a package index among it."""
        index = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PIP_")]
        if self.is_own:
            return make("env", "-i", *ENVIRONMENT, *index, *command, limit_s=limit_s)
        # Where this machine's own settings say how to reach an index, and whom to trust.
        shared = [
            f"--bind-ro={path}"
            for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")
            if Path(path).exists()
        ]
        return make(
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe"),
            *(f"--directory={self.root}", "--volatile=overlay", "--resolv-conf=off", *shared),
            *(f"--bind={bind}" for bind in binds),
            *(f"--setenv={setting}" for setting in (*ENVIRONMENT, *index)),
            *command,
            limit_s=limit_s,
        )

    def python(self) -> str:
        """Return the version of its Python, such as 3.11."""
        return self.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")


def asked_suite() -> str:
    return os.environ.get("FARM_TEST_SUITE", "bookworm")


def find_system() -> System:
    """Return the one that was asked for; skip the test where it cannot be had."""
    suite = asked_suite()
    if suite == OWN:
        return System(name=OWN, root=Path("/"))
    mirror, components = SUITES[suite]
    packages = (*PACKAGES, "systemd-sysv", "dbus")
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    root = kept_folder() / f"{suite}-{digest}"
    if not root.exists():
        unfinished = root.with_name(f"{root.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make(
            *("debootstrap", "--variant=minbase", f"--components={components}"),
            *(f"--include={','.join(packages)}", suite, str(unfinished), mirror, _script(suite)),
        )
        unfinished.rename(root)
    return System(name=suite, root=root)


def _script(suite: str) -> str:
    """Return what debootstrap has for a release; those of Ubuntu it may know by an older's name."""
    scripts = Path("/usr/share/debootstrap/scripts")
    return str(next(s for s in (scripts / suite, scripts / "gutsy") if s.exists()))


def missing_of_own() -> str | None:
    """Return what this machine's system lacks to be that of the machines; None if nothing."""
    if shutil.which("dpkg-query") is None:
        return "this machine's system is not Debian or Ubuntu"
    query = ("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES)
    known = run(*query).stdout.splitlines()
    missing = [package for package in PACKAGES if f"{package} installed" not in known]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if Path("/opt/benchfarm").exists():
        return "this machine has a farm of its own in /opt/benchfarm"
    return None


def make(*command: str, limit_s: float = _MAKE_S) -> str:
    """Run what may need a mirror or an index; skip the test where that is away."""
    made = run(*command, limit_s=limit_s)
    if made.returncode != 0:
        pytest.skip(f"{' '.join(command[:4])}: {(made.stdout + made.stderr).strip()[-300:]}")
    return made.stdout.strip()


def run(*command: str, limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=limit_s, check=False, cwd="/"
    )
