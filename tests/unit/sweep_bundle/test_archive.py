from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from farm.errors import InvalidSpec
from farm.recommend.prices import Prices
from farm.sweep_bundle import reading as bundle_reading
from farm.sweep_bundle import writing as bundle_writing
from farm.sweep_bundle.archive import bundle_folder, write_archive

FILES = {"manifest.json": "{}", "figures/map.svg": "<svg/>", "measurements.csv": "a\n1\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "bundle" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bundle" / name).write_text(text)
    return tmp_path / "bundle"


def contents(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


def test_an_archive_is_unpacked_as_it_was_packed(folder: Path, tmp_path: Path) -> None:
    write_archive(folder, tmp_path / "one.zip")
    (folder / "manifest.json").touch()
    write_archive(folder, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with bundle_folder(tmp_path / "one.zip") as unpacked:
        assert contents(unpacked) == FILES
    assert not unpacked.exists()
    with bundle_folder(folder) as same:
        assert same == folder
    assert folder.exists()


def zipped(tmp_path: Path, fill: Callable[[zipfile.ZipFile], None]) -> Path:
    with zipfile.ZipFile(tmp_path / "some.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        fill(archive)
    return tmp_path / "some.zip"


def test_the_files_may_be_in_a_folder_of_the_archive(folder: Path, tmp_path: Path) -> None:
    def fill(archive: zipfile.ZipFile) -> None:
        archive.mkdir("my sweep")
        for name, text in FILES.items():
            archive.writestr(f"my sweep/{name}", text)
        archive.writestr("elsewhere.csv", "not of it")

    with bundle_folder(zipped(tmp_path, fill)) as unpacked:
        assert contents(unpacked) == FILES


@pytest.mark.parametrize(
    "name", ["../up.csv", "/etc/up.csv", "a/b/c.csv", "figures/../../up", "..", ".hidden", "a\\b"]
)
def test_nothing_is_written_elsewhere(tmp_path: Path, name: str) -> None:
    def fill(archive: zipfile.ZipFile) -> None:
        archive.writestr("manifest.json", "{}")
        archive.writestr(name, "x")

    with bundle_folder(zipped(tmp_path, fill)) as unpacked:
        assert contents(unpacked) == {"manifest.json": "{}"}
        assert [path.name for path in unpacked.parent.glob("up*")] == []


def test_a_link_is_unpacked_as_a_file(tmp_path: Path) -> None:
    def fill(archive: zipfile.ZipFile) -> None:
        archive.writestr("manifest.json", "{}")
        link = zipfile.ZipInfo("measurements.csv")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")

    with bundle_folder(zipped(tmp_path, fill)) as unpacked:
        assert not (unpacked / "measurements.csv").is_symlink()
        assert (unpacked / "measurements.csv").read_text() == "/etc/passwd"


def _bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("manifest.json", "{}")
    archive.writestr("samples.parquet", bytes(2_000_000))


def _twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("manifest.json", "{}")
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("manifest.json", "{}")


def _other_compression(archive: zipfile.ZipFile) -> None:
    archive.writestr("manifest.json", "{}", compress_type=zipfile.ZIP_BZIP2)


def _no_manifest(archive: zipfile.ZipFile) -> None:
    archive.writestr("measurements.csv", "a\n")


def _many(archive: zipfile.ZipFile) -> None:
    for number in range(10_200):
        archive.writestr(f"{number}.csv", "")


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (_bomb, r"at most 1\.00 MB in all"),
        (_twice, "each file once"),
        (_other_compression, "stored or deflated"),
        (_no_manifest, r"a ZIP file with manifest\.json"),
        (_many, "at most 10100"),
    ],
)
def test_an_archive_that_is_no_bundle_is_refused(
    tmp_path: Path, fill: Callable[[zipfile.ZipFile], None], message: str
) -> None:
    path = zipped(tmp_path, fill)
    with (
        pytest.raises(InvalidSpec, match=message),
        bundle_folder(path, most_bytes=1_000_000),
    ):
        pass


@pytest.mark.parametrize("spoil", ["cut", "changed", "encrypted", "empty", "other"])
def test_a_damaged_archive_is_refused(folder: Path, tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "some.zip"
    write_archive(folder, path)
    content = bytearray(path.read_bytes())
    if spoil == "cut":
        del content[len(content) // 2 :]
    elif spoil == "changed":
        content[content.index(b"figures/map.svg") + 40] ^= 0xFF  # of its packed content
    elif spoil == "encrypted":
        for begin in (b"PK\x03\x04", b"PK\x01\x02"):
            place = content.index(begin) + (6 if begin == b"PK\x03\x04" else 8)
            content[place] |= 1
    elif spoil == "empty":
        content.clear()
    else:
        content[:] = b"no archive"
    path.write_bytes(content)
    with pytest.raises(InvalidSpec, match="bundle: expected a ZIP file"), bundle_folder(path):
        pass


def test_what_a_crash_of_the_process_leaves_is_beside_the_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, file = f"sqlite:///{tmp_path / 'farm.db'}", tmp_path / "some.zip"
    used: list[Path] = []

    def write(session: object, sweep_id: int, target: Path, *, prices: Prices) -> None:
        used.append(target)
        shutil.copytree(folder, target)

    def read(unpacked: Path, **_: object) -> None:
        used.append(unpacked)
        raise InvalidSpec("bundle", "all of it", "another")

    monkeypatch.setattr(bundle_writing, "write_bundle", write)
    monkeypatch.setattr(bundle_reading, "read_bundle", read)
    bundle_writing.export_archive(
        bundle_writing.ArchiveExport(database_url=server, sweep_id=1, file=file, prices=Prices())
    )
    archive = bundle_reading.ArchiveImport(
        database_url=server,
        file=file,
        origin=None,
        is_replacing=False,
        most_bytes=1_000_000,
        most_samples=1,
    )
    with pytest.raises(InvalidSpec, match="expected another"):
        bundle_reading.import_archive(archive)
    assert [path.is_relative_to(tmp_path) for path in used] == [True, True]
    assert not any(path.exists() for path in used)
