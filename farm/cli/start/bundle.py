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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from farm.configuration.model_files import FILE_NAME, is_file_name
from farm.errors import FarmError, InvalidSpec
from farm.processes.private_files import make_private_folder
from farm.text.display import byte_count

MAX_BYTES = 20 * 10**6
_MOST_FILES = 5000
_IGNORE_FILE = ".farmignore"
_LEFT_OUT = ("__pycache__", "node_modules", "*.pyc", "*.pem", "*.key", "id_rsa*", "id_ed25519*")
_FOLDER_DIGITS = 16
_NAMED = 3  # of the largest files


@dataclass(frozen=True)  # without slots, since its hash is kept
class ScriptBundle:
    """What was read. `files`: content by name. `sha256`: of the names and contents of all."""

    script_name: str
    files: Mapping[str, bytes]

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for name, content in self.files.items():
            written = os.fsencode(name)
            digest.update(b"%d %d\n" % (len(written), len(content)) + written + content)
        return digest.hexdigest()

    def copy(self, into: Path) -> Path:
        """Write the files into a folder of `into`, and return where the script is."""
        folder = into / self.sha256[:_FOLDER_DIGITS]
        partial = into / f"{folder.name}.{os.getpid()}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            make_private_folder(partial)
            for name, content in self.files.items():
                target = partial / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o400)
            # A script that writes beside itself has changed the former copy.
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        except OSError as error:
            raise FarmError(f"{folder} cannot be written ({error.strerror or error})") from None
        return folder / self.script_name


def read_bundle(script: Path) -> ScriptBundle:
    """Read the script and what belongs to it.

    Raises:
        InvalidSpec: there is no such script, its name is not allowed, it is too much, or a file
            cannot be read.
    """
    script = script.absolute()
    if not script.is_file():
        raise InvalidSpec("COMMAND", str(script), "a Python file that is there")
    script = script.resolve()  # as Python does, which looks for modules beside it
    if not is_file_name(script.name):
        raise InvalidSpec("COMMAND", script.name, FILE_NAME)
    files = {}
    for file in files_of(script):
        try:
            files[file.relative_to(script.parent).as_posix()] = file.read_bytes()
        except OSError as error:
            expected = f"a file that can be read ({error.strerror}), or its name in {_IGNORE_FILE}"
            raise InvalidSpec("COMMAND", str(file), expected) from None
    return ScriptBundle(script.name, files)


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
    sizes = {file: file.lstat().st_size for file in found}
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
    ignored = folder / _IGNORE_FILE
    if not ignored.is_file():
        return []
    try:
        lines = ignored.read_text().splitlines()
    except (OSError, UnicodeError):
        raise InvalidSpec("COMMAND", str(ignored), "a file of text in UTF-8") from None
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
