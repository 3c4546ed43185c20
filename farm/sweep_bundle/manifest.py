"""The folder of a sweep bundle: its manifest, which has the SHA-256 of every file, and its checks.

An attacker may have written all of a bundle. So nothing in it is executed, its names lead to no
file outside, and limits bound how much of it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

from farm.errors import FarmError, InvalidSpec
from farm.values.codec import from_json, parsed, to_json
from farm.values.ranges import Length, Range

FORMAT, VERSION = "benchfarm sweep bundle", 1
MANIFEST = "manifest.json"
MEASUREMENTS, SAMPLE_FILE = "measurements.csv", "samples.parquet"  # which an import reads
MOST_BUNDLE_FILES = 10_000
_NAME = re.compile(r"(figures/)?[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}", re.ASCII)
_MANIFEST_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20
_Name = Annotated[str, Length(1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleFile:
    sha256: Annotated[str, Length(64)]  # hexadecimal
    byte_count: Annotated[int, Range(0, 2**60)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a bundle is of. `farm_id` None: no farm has run on that store. `files`: by name."""

    format: _Name
    version: int
    benchfarm_version: _Name
    farm_id: Annotated[str, Length(32)] | None
    sweep_id: Annotated[int, Range(1, 2**63 - 1)]
    sweep_name: _Name
    created_at: _Name  # of the sweep
    files: Annotated[dict[str, BundleFile], Length(MOST_BUNDLE_FILES)]

    @property
    def farm(self) -> str:
        """Return how people name the farm."""
        return "unknown" if self.farm_id is None else self.farm_id[:8]

    @property
    def origin(self) -> str:
        """Return the origin that its measurements get elsewhere, unless another is asked for."""
        return f"farm-{self.farm}-sweep-{self.sweep_id}"


def is_file_name(name: str) -> bool:
    """Whether a file of a bundle may be called so: it is in the folder, or in `figures`."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill, which takes its place at the end of the block; not after an error.

    Raises:
        FarmError: it is there already, or cannot be written.
    """
    if folder.exists() or folder.is_symlink():
        raise FarmError(f"{folder} is there already: expected the name of a new folder")
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        try:
            partial.mkdir(parents=True)
            yield partial
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise FarmError(f"{folder} cannot be written: {error.strerror or error}") from error


def files_in(folder: Path) -> dict[str, BundleFile]:
    """Return the files of a folder and its subfolders, by their names in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _file(path) for path in paths}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it, after all other files."""
    text = json.dumps(to_json(manifest), indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder whose files are those that it lists. Others are not read.

    Raises:
        InvalidSpec: it is no bundle, of a newer format, cut short, or a file was changed.
    """
    with opened(folder, MANIFEST) as file:
        content = file.read(_MANIFEST_BYTES + 1)
    if len(content) > _MANIFEST_BYTES:
        raise InvalidSpec(MANIFEST, f"{len(content)} bytes", f"at most {_MANIFEST_BYTES} bytes")
    data = parsed(content, where=MANIFEST)
    found = data.get("format") if isinstance(data, dict) else data
    if not isinstance(data, dict) or found != FORMAT:
        raise InvalidSpec(f"{MANIFEST}: format", found, f"{FORMAT!r}")
    if data.get("version") != VERSION:
        expected = f"{VERSION}: a newer program wrote it, so read it with that one"
        raise InvalidSpec(f"{MANIFEST}: version", data.get("version"), expected)
    manifest = from_json(Manifest, data, where=MANIFEST)
    for name, listed in manifest.files.items():
        if not is_file_name(name):
            raise InvalidSpec(f"{MANIFEST}: files", name, "the name of a file of the bundle")
        with opened(folder, name) as file:
            _check(name, _digest(file, most=listed.byte_count), listed)
    if MEASUREMENTS not in manifest.files:
        raise InvalidSpec(f"{MANIFEST}: files", sorted(manifest.files), f"{MEASUREMENTS} in them")
    return manifest


def content_of(folder: Path, manifest: Manifest, name: str, *, most: int) -> bytes:
    """Return the content of a file of the bundle.

    Raises:
        InvalidSpec: it has more than `most` bytes, or was changed.
    """
    listed = manifest.files[name]
    if listed.byte_count > most:
        raise InvalidSpec(name, f"{listed.byte_count} bytes", f"at most {most} bytes")
    with opened(folder, name) as file:
        content = file.read(listed.byte_count + 1)
    found = BundleFile(sha256=hashlib.sha256(content).hexdigest(), byte_count=len(content))
    _check(name, found, listed)
    return content


@contextmanager
def opened(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a regular file of a bundle; a link may lead anywhere, and a pipe would be waited for.

    Raises:
        InvalidSpec: there is none.
    """
    path = folder / name
    try:
        if path.parent != folder and path.parent.is_symlink():
            raise InvalidSpec(name, str(path), "a file in the bundle, and no link")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidSpec(name, str(path), "a file")
            yield file
    except OSError as error:
        expected = f"a file of a {FORMAT} ({error.strerror or error})"
        raise InvalidSpec(name, str(path), expected) from None


def _check(name: str, found: BundleFile, listed: BundleFile) -> None:
    if found != listed:
        expected = f"the file of {listed.byte_count} bytes that {MANIFEST} lists: it was changed"
        raise InvalidSpec(name, f"{found.byte_count} bytes, SHA-256 {found.sha256[:8]}", expected)


def _file(path: Path) -> BundleFile:
    with path.open("rb") as file:
        return _digest(file, most=path.stat().st_size)


def _digest(file: IO[bytes], *, most: int) -> BundleFile:
    """Read a file to one byte beyond `most`, in pieces."""
    digest, count = hashlib.sha256(), 0
    while piece := file.read(min(_PIECE_BYTES, most + 1 - count)):
        digest.update(piece)
        count += len(piece)
    return BundleFile(sha256=digest.hexdigest(), byte_count=count)
