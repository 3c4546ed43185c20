"""Folders that ranks with scripts leave, and whose they are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from worker_agent.rank.script_folders import folder_prefix, remove_folders


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


def test_where_nothing_is_left_nothing_happens(folder: Path) -> None:
    remove_folders(folder / "agent-1", None)
    assert list(folder.iterdir()) == []
