"""A copy of a training script with the files beside it, in a folder named by its content.

What goes in: what git tracks, else everything but hidden files, keys, virtual environments and
caches; always the script, and nothing that a `.farmignore` names. A rank runs the copy, so that a
change of the original changes no measurement that is under way.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from farm.configuration.model_files import is_file_name
from farm.errors import InvalidSpec
from farm.processes.private_files import make_private_folder
from farm.text.display import byte_count

MAX_BYTES = 20 * 10**6
_MOST_FILES = 5000
_IGNORE_FILE = ".farmignore"
_LEFT_OUT = ("__pycache__", "node_modules", "*.pyc", "*.pem", "*.key", "id_rsa*", "id_ed25519*")
_NAMED = 3  # of the largest files


@dataclass(frozen=True, slots=True)
class ScriptBundle:
    """`script`: the copy. `sha256`: of the names and contents of all its files."""

    script: Path
    sha256: str
    names: tuple[str, ...]


def bundle(script: Path, *, into: Path) -> ScriptBundle:
    """Copy the script and what belongs to it into a folder of `into`.

    Raises:
        InvalidSpec: there is no such script, its name is not allowed, or it is too much.
    """
    script = script.absolute()
    if not script.is_file():
        raise InvalidSpec("COMMAND", str(script), "a Python file that is there")
    if not is_file_name(script.name):
        expected = "a file's name of letters, digits, '_' and '-' that ends in .py"
        raise InvalidSpec("COMMAND", script.name, expected)
    files = files_of(script)
    contents = [(file.relative_to(script.parent).as_posix(), file.read_bytes()) for file in files]
    digest = hashlib.sha256()
    for name, content in contents:
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    sha256 = digest.hexdigest()
    folder = into / sha256[:16]
    if not folder.exists():
        partial = into / f"{sha256[:16]}.{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        make_private_folder(partial)
        for name, content in contents:
            target = partial / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o600)
        partial.rename(folder)
    return ScriptBundle(folder / script.name, sha256, tuple(name for name, _ in contents))


def files_of(script: Path) -> list[Path]:
    """Return the files of the script's bundle, by name.

    Raises:
        InvalidSpec: they are too many or too large; the largest are named.
    """
    folder = script.parent
    ignored = _ignored(folder)
    found = {script}
    for file in _tracked(folder) or _walk(folder):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not file.is_symlink() and not _matches(name, ignored):
            found.add(file)
        if len(found) > _MOST_FILES:
            expected = f"at most {_MOST_FILES} files beside it; name others in {_IGNORE_FILE}"
            raise InvalidSpec("COMMAND", str(script), expected)
    sizes = {file: file.stat().st_size for file in found}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = sorted(sizes, key=lambda file: -sizes[file])[:_NAMED]
        named = ", ".join(f"{f.relative_to(folder)} ({byte_count(sizes[f])})" for f in largest)
        expected = f"at most {byte_count(MAX_BYTES)} with the files beside it; largest: {named}"
        raise InvalidSpec("COMMAND", byte_count(total), f"{expected}; see {_IGNORE_FILE}")
    return sorted(found)


def _tracked(folder: Path) -> list[Path]:
    """Return what git tracks there; nothing where it tracks nothing, or is not there."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z"],  # noqa: S607 (the user's own)
            capture_output=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [folder / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and not _matches(name, _LEFT_OUT)
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in sorted(files):
            if not name.startswith(".") and not _matches(name, _LEFT_OUT):
                yield here / name


def _ignored(folder: Path) -> list[str]:
    try:
        lines = (folder / _IGNORE_FILE).read_text().splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names the file, or a folder above it."""
    parts = name.split("/")
    above = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(
        fnmatch.fnmatch(one, pattern.rstrip("/")) or fnmatch.fnmatch(parts[-1], pattern)
        for pattern in patterns
        for one in above
    )
