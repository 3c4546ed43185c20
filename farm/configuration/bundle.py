"""Packs a training script and the other files of its folder into one archive. Pure.

The archive is a ZIP file without compression, named by its sha256. Its members have neither times
nor modes, so equal files make equal archives, and no member unpacks to more than its size in the
archive. An archive is refused unless each member is an ordinary file below its own folder.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from farm.errors import InvalidSpec
from farm.text.display import byte_count

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
MAX_SCRIPT_BUNDLE_BYTES = 20 * 10**6  # of an archive
MOST_SCRIPT_BYTES = 2**20  # of the file that is run
MOST_SCRIPT_FILES = 5000
MOST_FOLDERS = 2000
# Of an archive as people make it, with what is left out of it.
_MOST_MEMBERS = 50_000
_DEEPEST = 100
_MOST_COMPARED = 5_000_000  # names of files with names that are left out, some seconds
_MOST_IGNORE_BYTES = 50_000
_MOST_PARTS = 30  # of a path
_MOST_PATH_CHARACTERS = 250
SCRIPT_PATH = (
    "a path such as train.py or src/train.py: letters, digits, '_', '-' and '.' that does not "
    "begin with one"
)
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_SCRIPT_PATH = re.compile(rf"({_PART}/)*{_PART}\.py")
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, zlib.error),
    IndexError,
)
_ENCRYPTED = 0x1  # among the flags of a member
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a ZIP file knows


def is_script_path(text: str) -> bool:
    """Whether a sweep may name a script of a bundle so."""
    return len(text) <= _MOST_PATH_CHARACTERS and _SCRIPT_PATH.fullmatch(text) is not None


def check_script_size(size: int, where: str) -> None:
    """Refuse a script that is too large for any agent. Raises InvalidSpec of `where`."""
    if size > MOST_SCRIPT_BYTES:
        raise InvalidSpec(
            where, byte_count(size), f"at most {byte_count(MOST_SCRIPT_BYTES)} of Python"
        )


@dataclass(frozen=True)  # without slots, since the archive is kept
class ScriptBundle:
    """A script's files. `files`: content by path, with `/` between folders."""

    files: Mapping[str, bytes]

    @cached_property
    def archive(self) -> bytes:
        """Return all files as one ZIP file."""
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_STORED) as archive:
            for path, content in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(path, ZIP_EPOCH), content)
        return written.getvalue()

    @cached_property
    def sha256(self) -> str:
        """Return the archive's, 64 hexadecimal digits."""
        return hashlib.sha256(self.archive).hexdigest()


def read_archive(archive: bytes) -> ScriptBundle:
    """Return the files in an archive.

    Raises:
        InvalidSpec: it is longer than `MAX_SCRIPT_BUNDLE_BYTES`, no archive of this form, or one of
            its members is not an ordinary file below its folder.
    """
    if len(archive) > MAX_SCRIPT_BUNDLE_BYTES:
        raise InvalidSpec(
            "bundle", byte_count(len(archive)), f"at most {byte_count(MAX_SCRIPT_BUNDLE_BYTES)}"
        )
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            members = opened.infolist()
            if len(members) > MOST_SCRIPT_FILES:
                raise InvalidSpec("bundle", len(members), f"at most {MOST_SCRIPT_FILES} files")
            if sum(member.file_size for member in members) > len(archive):
                raise InvalidSpec("bundle", "members that overlap", "each byte in one member")
            for member in members:
                _check_member(member, files)
                files[member.filename] = opened.read(member)
    except _ZIP_ERRORS as error:
        raise InvalidSpec("bundle", "other bytes", f"a ZIP file ({error})") from None
    return _bundle_of(files)


def from_archiver(content: bytes) -> ScriptBundle:
    """Return the files in a ZIP file as people make it: compressed, with folders of its own.

    What `farm submit` leaves out of a folder is left out: hidden files, keys, caches, virtual
    environments, and what a `.farmignore` names. So is a folder that holds everything else.

    Raises:
        InvalidSpec: as `read_archive`; links and the like are refused, too.
    """
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            members = _wanted(opened)
            _check_sizes(members, len(content))
            for path, member in members.items():
                _check_kind(member)
                files[path] = _unpacked(opened, member)
    except _ZIP_ERRORS as error:
        raise InvalidSpec("bundle", "other bytes", f"a ZIP file ({error})") from None
    return _bundle_of(files)


def _bundle_of(files: Mapping[str, bytes]) -> ScriptBundle:
    """Return files that were in an archive, each checked alone, as a bundle."""
    check_files(files)
    bundle = ScriptBundle(files)
    if len(bundle.archive) > MAX_SCRIPT_BUNDLE_BYTES:  # names may be longer than they were
        found = byte_count(len(bundle.archive))
        raise InvalidSpec("bundle", found, f"at most {byte_count(MAX_SCRIPT_BUNDLE_BYTES)}")
    return bundle


def _unpacked(opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member's content, unpacking no more than the size that it names.

    `ZipFile.read` unpacks up to 2 GiB and then cuts, and of other methods than deflation all.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidSpec("bundle", member.filename, "a member in the usual compression, deflate")
    if member.flag_bits & _ENCRYPTED:
        raise InvalidSpec("bundle", member.filename, "a ZIP file without a password")
    with opened.open(member) as stream:
        return stream.read(member.file_size)


def _wanted(opened: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members that belong to a script, by path below the folder that holds them all."""
    members = opened.infolist()
    if len(members) > _MOST_MEMBERS:
        raise InvalidSpec("bundle", len(members), f"at most {_MOST_MEMBERS} members")
    for member in members:
        if member.filename.count("/") > _DEEPEST:
            raise InvalidSpec("bundle", member.filename, f"at most {_DEEPEST} folders in a path")
    kept = [
        member
        for member in members
        if not member.filename.endswith("/") and not any(map(is_left_out, _parts(member)))
    ]
    tops = {_parts(member)[0] for member in kept}
    is_folder = len(tops) == 1 and all(len(_parts(member)) > 1 for member in kept)
    top = f"{tops.pop()}/" if is_folder else ""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in kept:
        path = member.filename.removeprefix(top)
        if path in found:
            raise InvalidSpec("bundle", path, "each path once")
        found[path] = member
    ignored = _ignored(opened, f"{top}{IGNORE_FILE}")
    paths = _outside_environments(found)
    if len(ignored) * sum(path.count("/") + 1 for path in paths) > _MOST_COMPARED:
        expected = f"fewer names in {IGNORE_FILE} for {len(paths)} files"
        raise InvalidSpec("bundle", len(ignored), expected)
    return {path: found[path] for path in paths if not matches(path, ignored)}


def _parts(member: zipfile.ZipInfo) -> list[str]:
    return member.filename.split("/")


def _ignored(opened: zipfile.ZipFile, name: str) -> list[str]:
    try:
        member = opened.getinfo(name)
    except KeyError:
        return []
    if member.file_size > _MOST_IGNORE_BYTES:
        raise InvalidSpec("bundle", name, f"a file of at most {byte_count(_MOST_IGNORE_BYTES)}")
    return read_ignored(_unpacked(opened, member), name=name)


def _check_sizes(members: Mapping[str, zipfile.ZipInfo], archive_bytes: int) -> None:
    if len(members) > MOST_SCRIPT_FILES:
        expected = f"at most {MOST_SCRIPT_FILES} files; name others in {IGNORE_FILE}"
        raise InvalidSpec("bundle", len(members), expected)
    total = sum(member.file_size for member in members.values())
    if total > MAX_SCRIPT_BUNDLE_BYTES:
        largest = max(members, key=lambda path: members[path].file_size)
        expected = (
            f"at most {byte_count(MAX_SCRIPT_BUNDLE_BYTES)} unpacked (the largest is {largest}, "
            f"{byte_count(members[largest].file_size)}); name others in {IGNORE_FILE}"
        )
        raise InvalidSpec("bundle", byte_count(total), expected)
    if sum(member.compress_size for member in members.values()) > archive_bytes:
        raise InvalidSpec("bundle", "members that overlap", "each byte in one member")


def _check_member(member: zipfile.ZipInfo, known: Mapping[str, bytes]) -> None:
    path = member.filename
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise InvalidSpec("bundle", path, "a member that is not compressed")
    _check_kind(member)
    if path in known:
        raise InvalidSpec("bundle", path, "each path once")


def _check_kind(member: zipfile.ZipInfo) -> None:
    path = member.filename
    # The upper half is the mode of Unix, where what wrote the archive has kept it.
    kind = (member.external_attr >> 16) & 0o170000
    if path.endswith("/") or kind not in (0, 0o100000):
        raise InvalidSpec("bundle", path, "ordinary files alone")
    if not is_member_path(path):
        raise InvalidSpec("bundle", path, "a path below the bundle's own folder")


def is_member_path(path: str) -> bool:
    """Whether a file of a bundle may have this path: relative, printable, without `..`."""
    parts = path.split("/")
    return (
        0 < len(path.encode(errors="replace")) <= 4 * _MOST_PATH_CHARACTERS
        and path.isprintable()
        and "\\" not in path
        and len(parts) <= _MOST_PARTS
        and all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)
    )


def check_files(files: Mapping[str, bytes]) -> None:
    """Refuse an empty bundle, a path that is both file and folder, and too many folders.

    Raises:
        InvalidSpec: as said.
    """
    if not files:
        raise InvalidSpec("bundle", "no file", "at least the script")
    folders: set[str] = set()
    for path in files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise InvalidSpec("bundle", path, f"a path whose folder {parent} is no file")
            folders.add(str(parent))
    if len(folders) > MOST_FOLDERS:
        raise InvalidSpec("bundle", len(folders), f"at most {MOST_FOLDERS} folders")


def is_left_out(name: str) -> bool:
    """Whether a file or folder of this name stays behind, without the folders above it."""
    is_hidden = name.startswith(".") and name not in (".", "..")
    return is_hidden or _LEFT_OUT.match(name) is not None


def _outside_environments(paths: Collection[str]) -> list[str]:
    """Return the paths that lie in no virtual environment below their own folder."""
    end = f"/{ENVIRONMENT_FILE}"
    environments = {path.removesuffix(end) for path in paths if path.endswith(end)}
    return [path for path in paths if environments.isdisjoint(_folders(path))]


def _folders(path: str) -> Iterator[str]:
    return (path[:at] for at, character in enumerate(path) if character == "/")


def read_ignored(content: bytes, *, name: str) -> list[str]:
    """Return the patterns of a `.farmignore`; `name`: its path.

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
