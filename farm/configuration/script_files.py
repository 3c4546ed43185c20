"""Selects the files of a folder that travel with a training script. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Sequence

from farm.errors import InvalidSpec

IGNORE_FILE = ".farmignore"
ENVIRONMENT_FILE = "pyvenv.cfg"  # a folder that has it is a virtual environment
# As one expression, since an archive may have a million names.
_LEFT_OUT = re.compile(
    "|".join(
        map(
            fnmatch.translate,
            (
                *("__pycache__", "__MACOSX", "node_modules", "*.pyc"),
                *("*.pem", "*.key", "id_rsa*", "id_ed25519*"),
            ),
        )
    )
)


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name stays behind, without the folders above it."""
    is_hidden = name.startswith(".") and name not in (".", "..")
    return is_hidden or _LEFT_OUT.match(name) is not None


def outside_environments(paths: Collection[str]) -> list[str]:
    """Return the paths that lie in no virtual environment below their own folder."""
    end = f"/{ENVIRONMENT_FILE}"
    environments = {path.removesuffix(end) for path in paths if path.endswith(end)}
    return [path for path in paths if environments.isdisjoint(_folders(path))]


def _folders(path: str) -> Iterator[str]:
    return (path[:at] for at, character in enumerate(path) if character == "/")


def read_ignored(content: bytes, *, name: str) -> list[str]:
    """Return the patterns of a `.farmignore`; `name`: where it is.

    Raises:
        InvalidSpec: it is no text, or a pattern asks for what was left out.
    """
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise InvalidSpec("script", name, "a file of text in UTF-8") from None
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for pattern in found:
        if pattern.startswith("!"):
            raise InvalidSpec(IGNORE_FILE, pattern, "names of what is left out alone")
    return found


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names the file, or a folder above it, as in a .gitignore.

    One with a `/` that is not its last character begins at the top.
    """
    parts = path.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(
        fnmatch.fnmatch(one, pattern.strip("/"))
        for pattern in patterns
        for one in (above if "/" in pattern.rstrip("/") else parts)
    )
