"""An archive of a script's files: the same for the same files, and nothing else is read."""

from __future__ import annotations

import io
import random
import stat
import tracemalloc
import zipfile
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.configuration import bundle as bundles
from farm.configuration.bundle import (
    ScriptBundle,
    from_archiver,
    is_member_path,
    read_archive,
)
from farm.errors import InvalidSpec

PATHS = st.from_regex(r"([a-z0-9 _.-]{1,6}/){0,2}[a-z0-9 _.\u00e9-]{1,6}", fullmatch=True)


def archive_of(*members: tuple[zipfile.ZipInfo | str, bytes], compression: int = 0) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for member, content in members:
            archive.writestr(member, content)
    return written.getvalue()


def named_twice(archive: bytes, name: bytes, again: bytes) -> bytes:
    """Add a second directory entry, which names the bytes of the only member."""
    whole = bytearray(archive)
    at = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    entry = bytes(whole[at:end])
    whole[end:end] = entry.replace(name, again, 1)
    tail = len(whole) - 22
    whole[tail + 8 : tail + 12] = (2).to_bytes(2, "little") * 2
    whole[tail + 12 : tail + 16] = (2 * len(entry)).to_bytes(4, "little")
    return bytes(whole)


def of_kind(path: str, kind: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(path)
    member.create_system = 3
    member.external_attr = (kind | 0o777) << 16
    return member


@given(
    st.dictionaries(PATHS.filter(is_member_path), st.binary(max_size=40), min_size=1, max_size=5)
)
def test_files_come_back_as_they_were(files: dict[str, bytes]) -> None:
    bundle = ScriptBundle(files)
    shuffled = ScriptBundle(dict(reversed(files.items())))
    assert bundle.archive == shuffled.archive
    parents = {"/".join(p.split("/")[:n]) for p in files for n in range(1, p.count("/") + 1)}
    if parents & files.keys():
        with pytest.raises(InvalidSpec):
            read_archive(bundle.archive)
    else:
        assert read_archive(bundle.archive).files == files


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/", "..", ".", "C:\\x"),
        *("a\nb", "x" * 300, "a/" * 600 + "b", "a/" * 30 + "b"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidSpec, match="bundle"):
        read_archive(archive_of((zipfile.ZipInfo(path), b"x")))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK])
def test_links_pipes_and_devices_are_refused(kind: int) -> None:
    with pytest.raises(InvalidSpec, match="ordinary files"):
        read_archive(archive_of((of_kind("x", kind), b"/etc/passwd")))


def test_what_grows_when_it_is_read_is_refused() -> None:
    bomb = archive_of(("x", bytes(10**6)), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InvalidSpec, match="bundle"):
        read_archive(bomb)
    once = archive_of(("x", b"x" * 1000))
    with pytest.raises(InvalidSpec, match="bundle"):
        read_archive(named_twice(once, b"x", b"y"))


@pytest.mark.parametrize("archive", [b"", b"PK", b"no archive", b"\0" * 100])
def test_what_is_no_archive_is_refused(archive: bytes) -> None:
    with pytest.raises(InvalidSpec, match="a ZIP file"):
        read_archive(archive)


def test_a_name_that_begins_with_nul_is_refused() -> None:
    archive = archive_of(("xy", b"1")).replace(b"xy", b"\0y")
    with pytest.raises(InvalidSpec, match="a path below"):
        read_archive(archive)


def test_an_archive_without_a_file_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="at least the script"):
        read_archive(archive_of())


def test_an_archive_that_is_longer_once_it_is_written_anew_is_refused() -> None:
    """Names of an old code page are longer in UTF-8."""
    name = "\u2592" * 80
    members = {f"{name}{number}": b"" for number in range(40)}
    written = ScriptBundle(members).archive
    short = archive_of(*((f"{'x' * 80}{number}", b"") for number in range(40)))
    old = short.replace(b"x" * 80, name.encode("cp437"))
    assert read_archive(old).files == members
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "MAX_SCRIPT_BUNDLE_BYTES", (len(old) + len(written)) // 2)
        with pytest.raises(InvalidSpec, match="at most"):
            read_archive(old)


@given(st.data())
def test_a_damaged_archive_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    archive = bytearray(ScriptBundle({"train.py": b"print(1)", "a/b.py": b"2"}).archive)
    for _ in range(data.draw(st.integers(1, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = read_archive(bytes(archive)).files
    except InvalidSpec:
        return
    assert all(map(is_member_path, files))


def test_too_many_and_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ScriptBundle({"a": b"1", "b": b"2", "c": b"3"}).archive
    monkeypatch.setattr(bundles, "MOST_SCRIPT_FILES", 2)
    with pytest.raises(InvalidSpec, match="at most 2 files"):
        read_archive(archive)
    monkeypatch.setattr(bundles, "MOST_FOLDERS", 4)
    with pytest.raises(InvalidSpec, match="at most 4 folders"):
        read_archive(ScriptBundle({"a/b/c/d/e": b"1"}).archive)
    monkeypatch.setattr(bundles, "MAX_SCRIPT_BUNDLE_BYTES", 100)
    with pytest.raises(InvalidSpec, match="at most 100"):
        read_archive(archive)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_unpacks_to_more_than_it_says_takes_no_memory(method: int) -> None:
    bomb = bytearray(archive_of(("train.py", bytes(10**8)), compression=method))
    for header, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        begin = bomb.index(header) + at
        bomb[begin : begin + 4] = (1000).to_bytes(4, "little")
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSpec, match="bundle"):
            from_archiver(bytes(bomb))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_members_that_share_their_bytes_are_refused_unread() -> None:
    once = archive_of(("x.py", random.Random(7).randbytes(5000)), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InvalidSpec, match="overlap"):
        from_archiver(named_twice(once, b"x.py", b"y.py"))


def zipped(*paths: str, ignored: str = "", top: str = "own/") -> bytes:
    """A compressed archive of a folder, each file with its path as its content."""
    files = {path: path.encode() for path in paths} | {".farmignore": ignored.encode()}
    return archive_of(
        *((f"{top}{path}", content) for path, content in files.items()),
        compression=zipfile.ZIP_DEFLATED,
    )


@pytest.mark.parametrize("top", ["own/", ""])
def test_of_an_archive_the_same_is_left_out_as_of_a_folder(top: str) -> None:
    archive = zipped(
        *("train.py", "data/labels.csv", "nets/small.py", "big/model.bin", "notes.log"),
        *(".env", ".git/config", "server.pem", "id_rsa", "nets/__pycache__/small.pyc"),
        *("env/pyvenv.cfg", "env/lib/x.py", "node_modules/x.js", "__MACOSX/x", "root.txt"),
        "nets/root.txt",
        ignored="# large\nbig/\n*.log\n/root.txt\n",
        top=top,
    )
    kept = ("data/labels.csv", "nets/root.txt", "nets/small.py", "train.py")
    assert from_archiver(archive).files == {path: path.encode() for path in kept}


def test_a_link_in_a_virtual_environment_is_left_out_and_no_other() -> None:
    link = of_kind("env/bin/python", stat.S_IFLNK)
    members = (("train.py", b"1"), ("env/pyvenv.cfg", b""), (link, b"/usr/bin/python"))
    assert list(from_archiver(archive_of(*members)).files) == ["train.py"]
    with pytest.raises(InvalidSpec, match="ordinary files"):
        from_archiver(archive_of(("train.py", b"1"), (of_kind("x", stat.S_IFLNK), b"/etc")))


@pytest.mark.parametrize(
    "path", ["../x.py", "a/../../x.py", "/x.py", "./x.py", "a\\x.py", "C:\\x.py"]
)
def test_an_archive_that_leads_out_of_its_folder_is_refused(path: str) -> None:
    for members in ([path], [path, "train.py"]):
        with pytest.raises(InvalidSpec, match="a path below"):
            from_archiver(archive_of(*((zipfile.ZipInfo(one), b"1") for one in members)))


def test_an_archive_that_is_too_large_says_what_to_leave_out() -> None:
    archive = archive_of(
        ("train.py", b"1"), ("model.bin", bytes(21_000_000)), compression=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(InvalidSpec, match=r"model\.bin, 21\.0 MB\); name others in \.farmignore"):
        from_archiver(archive)


@pytest.mark.parametrize(
    ("ignored", "message"),
    [("!train.py", "left out alone"), ("x" * 60_000, "50.0 kB"), ("x\n" * 20_000, "fewer names")],
)
def test_an_ignore_file_that_is_none_is_refused(ignored: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        from_archiver(zipped(*(f"{number}.py" for number in range(300)), ignored=ignored))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([f"{'a/' * 5000}{number}" for number in range(50)], "100 folders"),
        (map(str, range(50_001)), "50000 members"),
        (map(str, range(5001)), "5000 files"),
    ],
)
def test_an_archive_of_endless_paths_is_refused_at_once(paths: Iterable[str], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        from_archiver(archive_of(*((path, b"") for path in paths)))


def test_an_archive_with_a_password_is_refused_in_plain_words() -> None:
    archive = bytearray(archive_of(("train.py", b"print(1)"), compression=zipfile.ZIP_DEFLATED))
    for mark, flags_at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        archive[archive.index(mark) + flags_at] |= 0x1
    with pytest.raises(InvalidSpec) as refusal:
        from_archiver(bytes(archive))
    assert str(refusal.value) == ("bundle: expected a ZIP file without a password, got 'train.py'")
