"""What is installed on booted machines: the project's releases, with the wheels of all they need.

Gathering wheels takes minutes and a package index; they are kept beside the roots of
`tests.e2e.deploy.booted_system`, so that the next time needs neither.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.deploy.booted_system import System, kept_folder, make
from tests.e2e.live_farm import REPOSITORY

# What an agent needs beside its trainers where those are fake, and of it what no server needs.
FAKE_AGENT = """\
celery[redis]>=5.6,<5.8
click>=8.1,<9
numpy>=2,<3
psutil>=7,<8
pyroute2>=0.9.7,<0.10
rich>=14,<16
"""
_FAKE_AGENT_ALONE = "pyroute2>=0.9.7,<0.10"
_RELEASED = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "farm",
    "worker_agent",
    "web",
    "benchfarm",
    "deploy",
)


def trains_for_real() -> bool:
    return os.environ.get("FARM_TEST_TRAINERS") == "tensorflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The project in one version: its tree, as one has it from the repository, and all wheels."""

    version: str
    tree: Path
    wheels: Path


def make_release(folder: Path, suffix: str, *, system: System) -> Release:
    """Make one with this suffix of its version; "" is the version as it is."""
    packages = _package_wheels(system)
    release = Release(version=_version() + suffix, tree=folder / "tree", wheels=folder / "wheels")
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
    for wheel in (*packages.glob("*.whl"), *_builders_wheels().glob("*.whl")):
        if not wheel.name.startswith("benchfarm-") and not (release.wheels / wheel.name).exists():
            _link(wheel, release.wheels / wheel.name)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "-w", str(release.wheels))
    make(
        *("env", f"PYTHONPATH={packages / 'builder'}", sys.executable, "-m", "pip", "wheel"),
        *(*options, str(release.tree)),
    )
    return release


def _package_wheels(system: System) -> Path:
    """Return the folder with the wheels of all that is pinned, and with what builds ours."""
    deploy = REPOSITORY / "deploy"
    roles = ("server", "agent") if trains_for_real() else ("server",)
    pinned = b"".join(file.read_bytes() for file in sorted(deploy.glob("requirements-*.txt")))
    digest = hashlib.sha256(pinned + FAKE_AGENT.encode()).hexdigest()[:8]
    wheels = kept_folder() / f"wheels-{'-'.join((system.python(), *roles, digest))}"
    if not wheels.exists():
        unfinished = wheels.with_name(f"{wheels.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        system.run(
            *("bash", f"{deploy}/install.sh", "wheels", str(unfinished), *roles),
            binds=(str(unfinished), str(REPOSITORY)),
        )
        pip = (sys.executable, "-m", "pip")
        make(*pip, "download", "--quiet", "--no-deps", "-d", str(unfinished), _FAKE_AGENT_ALONE)
        builder = ("--target", str(unfinished / "builder"))
        make(*pip, "install", "--quiet", *builder, "-r", str(deploy / "requirements-build.txt"))
        unfinished.rename(wheels)
    return wheels


def _builders_wheels() -> Path:
    """Return the folder with what builds the project where it is installed from its tree."""
    named = REPOSITORY / "deploy" / "requirements-build.txt"
    digest = hashlib.sha256(named.read_bytes()).hexdigest()[:8]
    wheels = kept_folder() / f"builder-{digest}"
    if not wheels.exists():
        unfinished = wheels.with_name(f"{wheels.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
        make(*pip, "--dest", str(unfinished), "-r", str(named))
        unfinished.rename(wheels)
    return wheels


def _version() -> str:
    found = re.search(r'^version = "(.*)"$', (REPOSITORY / "pyproject.toml").read_text(), re.M)
    assert found is not None
    return found[1]


def _link(wheel: Path, name: Path) -> None:
    try:
        os.link(wheel, name)
    except OSError:  # the cache is on another disk
        shutil.copy(wheel, name)
