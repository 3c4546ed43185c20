from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from farm.errors import FarmError
from farm.processes.whole_file import open_whole, write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        write_whole(tmp_path / "out.csv", content)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"out.csv": b"new"}


def test_a_file_stays_as_it_was_where_writing_fails(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_bytes(b"old")
    broken: Any = [b"half of it", None]
    with pytest.raises(TypeError), open_whole(file) as new:
        new.writelines(broken)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"out.csv": b"old"}


def test_a_pipe_stays_one_and_gets_the_content(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"all of it")
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_one_and_its_target_is_written(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link = folder / "target", tmp_path / "link"
    if is_there:
        target.write_bytes(b"old")
    (tmp_path / "other").symlink_to("elsewhere/target")
    link.symlink_to("other")
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()


def test_what_standard_output_goes_to_already_is_not_replaced(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from farm.processes.whole_file import write_whole\n"
        "print('before', flush=True); write_whole(Path('/proc/self/fd/1'), b'content')"
    )
    out = tmp_path / "out"
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
        assert os.path.samestat(out.stat(), os.fstat(file.fileno()))
    assert out.read_bytes() == b"before\ncontent"


@pytest.mark.parametrize("name", ["", ".", "..", "/", "folder", "folder/"])
def test_a_folder_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FarmError, match=r"^\S+ is a folder: expected the name of a file$"):
        write_whole(Path(name), b"content")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_what_cannot_be_written_is_named_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # an address of a socket is short
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    for name in ("loop", "socket", "missing/out.csv", "n" * 300):
        before = set(tmp_path.iterdir())
        with pytest.raises(FarmError, match=f"{name} cannot be written: [A-Z]"):
            write_whole(tmp_path / name, b"content")
        assert set(tmp_path.iterdir()) == before
    assert (tmp_path / "loop").is_symlink()
    assert (tmp_path / "socket").is_socket()
