"""Folders that ranks with scripts leave, and whose they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from worker_agent.rank.bundles import folder_prefix, remove_folders


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def made(prefix: Path, name: str) -> Path:
    path = prefix.with_name(f"{prefix.name}{name}")
    (path / "sub").mkdir(parents=True)
    (path / "sub/checkpoint").write_text("x")
    return path


def test_all_folders_of_the_agent_go_and_those_of_others_stay(folder: Path) -> None:
    own, other = folder_prefix(folder / "agent-1"), folder_prefix(folder / "agent-2")
    gone = [made(own, name) for name in ("a", "b c", "-rf")]
    stays = made(other, "a")
    (gone[0] / "sub").chmod(0o500)  # a script may do that, too
    (gone[1] / "link").symlink_to(stays)
    remove_folders(folder / "agent-1", None)
    assert [path.exists() for path in gone] == [False] * 3
    assert (stays / "sub/checkpoint").exists()


def test_more_folders_than_a_command_line_has_room_for_go(folder: Path) -> None:
    own = folder_prefix(folder / "agent-1")
    for number in range(2500):
        own.with_name(f"{own.name}{number:0200}").mkdir()
    remove_folders(folder / "agent-1", None)
    assert list(folder.iterdir()) == []


def test_what_a_link_names_is_left_alone(folder: Path) -> None:
    own = folder_prefix(folder / "agent-1")
    (folder / "other").mkdir()
    (folder / "other/file").write_text("")
    (folder / "other/file").chmod(0o400)
    own.with_name(f"{own.name}evil").symlink_to(folder / "other")
    remove_folders(folder / "agent-1", None)
    assert [path.name for path in folder.iterdir()] == ["other"]
    assert (folder / "other/file").stat().st_mode & 0o777 == 0o400


def test_where_nothing_is_left_nothing_happens(folder: Path) -> None:
    remove_folders(folder / "agent-1", None)
    assert list(folder.iterdir()) == []
