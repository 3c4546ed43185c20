"""Both targets of the Dockerfile, built without a registry and without an index.

The official images that the files name are stood in for by ones with Debian's packages. They
honour what the files use of the official ones, and no more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.compose.podman import Podman

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TARGETS = ("server", "agent")
STAND_INS = {
    "python": "docker.io/library/python:3.11-slim-bookworm",
    "redis": "docker.io/library/redis:7.2-alpine",
    "postgres": "docker.io/library/postgres:16-alpine",
}
_DEBIAN = "localhost/debian:bookworm"
_MIRROR = "http://deb.debian.org/debian"
_HERE = Path(__file__).parent / "stand_ins"
_LIMIT_S = 1800.0
# Debian 12 has Python 3.11.2, and needs what 3.11.3 no longer does.
_OLD_PATCH_LEVEL = r" ; python_full_version < '3\.11\.[0-9]*'"


def make_stand_ins(podman: Podman) -> None:
    """Make the images that the files name, unless they are there from an earlier run."""
    if not podman.has_image(_DEBIAN):
        root = podman.folder / "debian"
        _run("debootstrap", "--variant=minbase", "bookworm", str(root), _MIRROR)
        # What tells one machine from the others is in no image.
        (root / "etc" / "machine-id").unlink(missing_ok=True)
        archive = podman.folder / "debian.tar"
        _run("tar", "--create", "--file", str(archive), "--directory", str(root), ".")
        podman.run("import", str(archive), _DEBIAN, limit_s=_LIMIT_S)
        archive.unlink()
    for name, tag in STAND_INS.items():
        if not podman.has_image(tag):
            podman.run(
                *("build", "--pull=never", "--format=docker", "--network=host", f"--tag={tag}"),
                *("--file", str(_HERE / f"{name}.Containerfile"), str(_HERE)),
                limit_s=_LIMIT_S,
            )


def gather_wheels(folder: Path) -> None:
    """Put every package that the images are built from into `folder`, by this Python's pip."""
    folder.mkdir(exist_ok=True)
    for name in (*TARGETS, "build"):
        named = (DEPLOY / f"requirements-{name}.txt").read_text()
        # Pip asks this Python for its patch level, whatever version it is told to download for.
        wanted = folder / f"requirements-{name}.txt"
        wanted.write_text(re.sub(_OLD_PATCH_LEVEL, "", named))
        _run(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--only-binary=:all:", "--python-version=3.11", "--find-links", str(folder)),
            *("--dest", str(folder), "-r", str(wanted)),
        )


def build(podman: Podman, *, wheels: Path) -> None:
    """Build both targets. They see no network, so they have what is in `wheels` alone."""
    settings = podman.folder / "pip.conf"
    settings.write_text("[global]\nno-index = true\nfind-links = /offline\n")
    for target in TARGETS:
        podman.run(
            # OCI's own format has no health checks.
            *("build", "--pull=never", "--format=docker", "--network=none", f"--target={target}"),
            *("--volume", f"{wheels}:/offline:ro", "--volume", f"{settings}:/etc/pip.conf:ro"),
            *("--file", str(DEPLOY / "Dockerfile")),
            *("--ignorefile", str(DEPLOY / "Dockerfile.dockerignore")),
            *(f"--tag=benchfarm-{target}", str(ROOT)),
            limit_s=_LIMIT_S,
        )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL)
