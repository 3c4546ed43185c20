"""Which files beside a script are copied with it, and how their content names the copy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from farm.cli.start import bundle as bundles
from farm.cli.start.bundle import read_bundle
from farm.errors import FarmError, InvalidSpec


def written(folder: Path, *names: str) -> Path:
    """Write files that hold their names; return the script."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder / "train.py"


def test_keys_hidden_files_environments_and_what_is_ignored_stay_behind(tmp_path: Path) -> None:
    script = written(
        tmp_path / "own",
        *("train.py", "data/labels.csv", "nets/small.py", "big/model.bin", "notes.log"),
        *(".env", ".git/config", "server.pem", "id_rsa", "nets/__pycache__/small.pyc"),
        *("env/pyvenv.cfg", "env/lib/x.py", "node_modules/x.js"),
    )
    (tmp_path / "own/.farmignore").write_text("# large\nbig/\n*.log\n")
    made = read_bundle(script)
    assert list(made.files) == ["data/labels.csv", "nets/small.py", "train.py"]
    copy = made.copy(tmp_path / "home")
    assert copy.read_text() == "train.py"
    assert (copy.parent / "nets/small.py").read_text() == "nets/small.py"


def test_of_a_repository_what_git_tracks_is_copied_and_always_the_script(tmp_path: Path) -> None:
    own = tmp_path / "own"
    script = written(own, "train.py", "tracked.py", "scratch.py", "sub/tracked.py")
    subprocess.run(["git", "init", "-q", str(own)], check=True)
    subprocess.run(["git", "-C", str(own), "add", "tracked.py", "sub"], check=True)
    assert list(read_bundle(script).files) == ["sub/tracked.py", "tracked.py", "train.py"]


def test_another_content_is_another_copy_and_the_same_content_the_same(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py", "net.py")
    first = read_bundle(script)
    copy = first.copy(tmp_path / "home")
    assert read_bundle(script).sha256 == first.sha256
    (tmp_path / "own/net.py").write_text("changed")
    second = read_bundle(script)
    assert second.sha256 != first.sha256
    assert second.copy(tmp_path / "home") != copy
    assert (copy.parent / "net.py").read_text() == "net.py"
    (copy.parent / "net.py").unlink()
    assert (first.copy(tmp_path / "home").parent / "net.py").read_text() == "net.py"


def test_a_copy_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py", "sub/net.py")
    script.chmod(0o666)
    copy = read_bundle(script).copy(tmp_path / "home")
    for path in (copy, copy.parent, copy.parent / "sub", copy.parent / "sub/net.py"):
        assert path.stat().st_mode & 0o077 == 0


def test_links_are_not_followed_but_the_scripts_own_is(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py", "net.py")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "own/link").symlink_to(tmp_path / "secret")
    (tmp_path / "link.py").symlink_to(script)
    assert list(read_bundle(script).files) == ["net.py", "train.py"]
    assert list(read_bundle(tmp_path / "link.py").files) == ["net.py", "train.py"]


def test_odd_files_beside_a_script_do_no_harm(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    os.mkfifo(tmp_path / "own/pipe")
    os.mkfifo(tmp_path / "own/.farmignore")
    (tmp_path / "own" / os.fsdecode(b"\xff.txt")).write_text("")
    made = read_bundle(script)
    assert len(made.files) == 2
    assert made.copy(tmp_path / "home").is_file()


def test_an_ignore_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "own/.farmignore").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec, match="a file of text in UTF-8"):
        read_bundle(script)


def test_a_home_that_is_no_folder_is_named(tmp_path: Path) -> None:
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "home").write_text("")
    with pytest.raises(FarmError, match="cannot be written"):
        read_bundle(script).copy(tmp_path / "home")


def test_too_much_is_refused_and_the_largest_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "MAX_BYTES", 20)
    script = written(tmp_path / "own", "train.py")
    (tmp_path / "own/large.bin").write_bytes(b"x" * 100)
    with pytest.raises(InvalidSpec, match=r"largest: large\.bin") as refused:
        read_bundle(script)
    assert ".farmignore" in str(refused.value)


@pytest.mark.parametrize("name", ["absent.py", "train.txt", "a b.py", "."])
def test_what_is_no_script_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("")
    (tmp_path / "a b.py").write_text("")
    with pytest.raises(InvalidSpec, match="COMMAND"):
        read_bundle(tmp_path / name)
