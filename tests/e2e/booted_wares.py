"""What booted machines are made of: a base root, and the project's releases with their wheels.

Making them takes minutes, a mirror of Debian and a package index; FARM_TEST_ROOTS names the folder
that keeps them (`~/.cache/benchfarm-roots`), so that the next time needs neither.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.live_farm import REPOSITORY

MIRROR = "http://deb.debian.org/debian"
DEBIAN = "bookworm"
PYTHON = (3, 11)  # of that Debian
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "redis-server", "postgresql"),
    *("nftables", "iproute2", "procps", "ca-certificates", "openssl"),
)
_MAKE_S = 1800.0
_RELEASED = ("pyproject.toml", "README.md", "LICENSE", "farm", "worker_agent", "web", "deploy")


def kept_folder() -> Path:
    named = os.environ.get("FARM_TEST_ROOTS")
    folder = Path(named) if named else Path.home() / ".cache" / "benchfarm-roots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def base_root() -> Path:
    """Return a root with what a farm needs of Debian; skip the test where the mirror is away."""
    digest = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
    root = kept_folder() / f"{DEBIAN}-{digest}"
    if not root.exists():
        unfinished = root.with_name(f"{root.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _make(
            *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
            *(DEBIAN, str(unfinished), MIRROR),
        )
        unfinished.rename(root)
    return root


@dataclass(frozen=True, slots=True)
class Release:
    """The project in one version: its tree, as one has it from the repository, and all wheels."""

    version: str
    tree: Path
    wheels: Path


def releases(folder: Path, *suffixes: str) -> list[Release]:
    """Make a release for each suffix of the version; "" is the version as it is."""
    packages = _package_wheels()
    return [
        _release(folder / f"release-{number}", suffix, packages)
        for number, suffix in enumerate(suffixes, start=1)
    ]


def _package_wheels() -> Path:
    """Return the folder with the wheels of all that is pinned, and with what builds ours."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"{DEBIAN} has Python {PYTHON[0]}.{PYTHON[1]}, and this is {sys.version[:6]}")
    deploy = REPOSITORY / "deploy"
    pinned = b"".join(file.read_bytes() for file in sorted(deploy.glob("requirements-*.txt")))
    wheels = kept_folder() / f"wheels-{hashlib.sha256(pinned).hexdigest()[:8]}"
    if not wheels.exists():
        unfinished = wheels.with_name(f"{wheels.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _make(str(deploy / "install.sh"), "wheels", str(unfinished))
        builder = unfinished / "builder"
        _make(sys.executable, "-m", "venv", str(builder))
        requirements = str(deploy / "requirements-build.txt")
        _make(str(builder / "bin/python"), "-m", "pip", "install", "--quiet", "-r", requirements)
        unfinished.rename(wheels)
    return wheels


def _release(folder: Path, suffix: str, packages: Path) -> Release:
    release = Release(_version() + suffix, folder / "tree", folder / "wheels")
    for directory in (release.tree, release.wheels):
        directory.mkdir(parents=True)
    for name in (*_RELEASED, "tests/fakes"):
        source, copy = REPOSITORY / name, release.tree / name
        copy.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    for name in ("pyproject.toml", "farm/__init__.py"):
        file = release.tree / name
        file.write_text(file.read_text().replace(f'"{_version()}"', f'"{release.version}"', 1))
    for wheel in packages.glob("*.whl"):
        if not wheel.name.startswith("benchfarm-"):
            _link(wheel, release.wheels / wheel.name)
    python = str(packages / "builder/bin/python")
    options = ("--quiet", "--no-deps", "--no-build-isolation")
    _make(python, "-m", "pip", "wheel", *options, "-w", str(release.wheels), str(release.tree))
    return release


def _version() -> str:
    found = re.search(r'^version = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(), re.M)
    assert found is not None
    return found[1]


def _link(wheel: Path, name: Path) -> None:
    try:
        os.link(wheel, name)
    except OSError:  # the cache is on another disk
        shutil.copy(wheel, name)


def _make(*command: str) -> None:
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=_MAKE_S, check=False, cwd="/"
    )
    if made.returncode != 0:
        pytest.skip(f"{' '.join(command[:4])}: {(made.stdout + made.stderr).strip()[-300:]}")
