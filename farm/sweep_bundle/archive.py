"""Packs a sweep bundle into one ZIP file, for downloads, and unpacks such files.

An attacker may have written all of a ZIP file, as of a folder. So the real size of the unpacked
files is limited, whatever size the file states.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from farm.configuration.bundle import ZIP_EPOCH
from farm.errors import FarmError, InvalidSpec
from farm.sweep_bundle.manifest import MANIFEST, MOST_BUNDLE_FILES, is_file_name
from farm.text.display import byte_count

MOST_UNPACKED_BYTES = 16 << 30
_MOST_MEMBERS = MOST_BUNDLE_FILES + 100  # folders have entries, too
_PIECE_BYTES = 1 << 20
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # Python unpacks the others without a limit
_PACKED = (".csv", ".html", ".json", ".svg", ".toml")  # the other files are packed already


def write_archive(folder: Path, file: Path) -> None:
    """Write the files of a bundle into a ZIP file; the same files give the same bytes."""
    with zipfile.ZipFile(file, "x") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = zipfile.ZipInfo(path.relative_to(folder).as_posix(), ZIP_EPOCH)
            member.external_attr = 0o644 << 16
            is_packed = path.suffix in _PACKED
            member.compress_type = zipfile.ZIP_DEFLATED if is_packed else zipfile.ZIP_STORED
            with path.open("rb") as source, archive.open(member, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _PIECE_BYTES)


@contextmanager
def bundle_folder(
    path: Path, *, most_bytes: int = MOST_UNPACKED_BYTES, within: Path | None = None
) -> Iterator[Path]:
    """Yield the folder of a bundle; a ZIP file is unpacked into one that lasts for the block.

    `within`: where that one is; None: where the system has temporary files.

    Raises:
        InvalidSpec: it is a file, and no ZIP file of a bundle, or has more than `most_bytes`.
        FarmError: it cannot be unpacked here.
    """
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="farm-bundle-", dir=within) as temporary:
        folder = Path(temporary)
        try:
            _unpack(path, folder, most_bytes=most_bytes)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
            # Of another version, or with a password: RuntimeError and its NotImplementedError.
            raise InvalidSpec("bundle", path.name, f"a ZIP file ({error})") from None
        except OSError as error:
            raise FarmError(f"{path.name} cannot be unpacked: {error.strerror or error}") from error
        yield folder


def _unpack(path: Path, folder: Path, *, most_bytes: int) -> None:
    """Unpack what may be of a bundle. Its files may be in a folder of the ZIP file."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) > _MOST_MEMBERS:
            raise InvalidSpec("bundle", f"{len(members)} files", f"at most {_MOST_MEMBERS}")
        names = [m.filename for m in members if PurePosixPath(m.filename).name == MANIFEST]
        if not names:
            raise InvalidSpec("bundle", path.name, f"a ZIP file with {MANIFEST}")
        root = min(names, key=len).removesuffix(MANIFEST)
        left = most_bytes
        for member in members:
            name = member.filename.removeprefix(root)
            if not (member.filename.startswith(root) and is_file_name(name)):
                continue
            if member.compress_type not in _KINDS:
                raise InvalidSpec(name, "another compression", "stored or deflated, as ZIP does")
            target = folder / name
            if target.exists():
                raise InvalidSpec(name, "there twice", "each file once")
            target.parent.mkdir(exist_ok=True)
            with archive.open(member) as source, target.open("xb") as file:
                while piece := source.read(_PIECE_BYTES):
                    left -= len(piece)
                    if left < 0:
                        expected = f"at most {byte_count(most_bytes)} in all"
                        raise InvalidSpec("bundle", "more when unpacked", expected)
                    file.write(piece)
