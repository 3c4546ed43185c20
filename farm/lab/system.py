"""Creates namespaces, interfaces and addresses through the commands of iproute2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Network
from pathlib import Path

from farm.errors import FarmError

_TIMEOUT_S = 20.0
_PACKAGES = {
    "vde_switch": "vde2",
    "wirefilter": "vde-wirefilter",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
_TUN = Path("/dev/net/tun")
_NAMESPACES = Path("/run/netns")


def what_is_missing() -> str | None:
    """Return what this machine lacks for a lab, in one line, or None."""
    if os.geteuid() != 0:
        return "a lab needs root, to make network namespaces: run it with sudo"
    absent = [name for name in _PACKAGES if shutil.which(name) is None]
    if absent:
        packages = " ".join(dict.fromkeys(_PACKAGES[name] for name in absent))
        return f"a lab needs {' and '.join(absent)}: apt-get install {packages}"
    if not _TUN.exists():
        return f"a lab needs {_TUN}: load the kernel's module tun, or let the container have it"
    return None


def run(*argv: str, stdin: str | None = None) -> str:
    """Run a command to its end; return what it printed.

    It inherits the locks of the slots that this process holds, so a later cleaner waits for it.

    Raises:
        FarmError: it failed or took too long; the message has its own words.
    """
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            close_fds=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FarmError(f"{' '.join(argv)}: {error}") from error
    if done.returncode != 0:
        words = " ".join((done.stderr or done.stdout).split())
        raise FarmError(f"{' '.join(argv)}: {words or f'status {done.returncode}'}")
    return done.stdout


def ip_batch(lines: Sequence[str], *, namespace: str | None = None) -> None:
    """Carry out several lines of `ip`, in the namespace or in our own; all or an error."""
    inside = ("-n", namespace) if namespace else ()
    run("ip", *inside, "-batch", "-", stdin="".join(f"{line}\n" for line in lines))


def known_networks() -> list[IPv4Network]:
    """Return the networks of this machine's addresses and routes, without default routes.

    Raises:
        FarmError: the system does not say.
    """
    links = json.loads(run("ip", "-json", "-4", "address", "show"))
    # Of an interface without an address some versions write nothing but braces.
    found = [
        f"{one['local']}/{one['prefixlen']}" for link in links for one in link.get("addr_info", ())
    ]
    # Every table: that of a VPN counts, too.
    routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all"))
    found += [route["dst"] for route in routes if route["dst"] != "default"]
    return [IPv4Network(text, strict=False) for text in found]


def namespaces(prefix: str) -> list[str]:
    """Return the named network namespaces that begin with `prefix`."""
    if not _NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in _NAMESPACES.iterdir() if path.name.startswith(prefix))


def interfaces(prefix: str) -> list[str]:
    """Return the interfaces of our own network namespace that begin with `prefix`."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    names = (line.partition(":")[0].strip() for line in lines)
    return sorted(name for name in names if name.startswith(prefix))


def prefix_into(namespace: str) -> tuple[str, ...]:
    """Return what to put before a command that shall run in the namespace.

    It becomes that command, with the same process id. `ip netns exec` would also mount /sys again,
    which hides the memory control groups from an agent.
    """
    nsenter = shutil.which("nsenter")
    assert nsenter is not None, "checked before"
    return (nsenter, f"--net={_NAMESPACES / namespace}", "--")


def processes_in(namespace: str) -> list[int]:
    """Return who lives in a named network namespace; zombies do not count."""
    try:
        wanted = (_NAMESPACES / namespace).stat()
    except FileNotFoundError:
        return []
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            its = (folder / "ns" / "net").stat()
        except OSError:
            continue  # it has ended meanwhile
        if (its.st_ino, its.st_dev) == (wanted.st_ino, wanted.st_dev):
            found.append(int(folder.name))
    return found
