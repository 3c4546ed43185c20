"""Bundles on an agent's disk: a copy for each rank, and never another content."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from farm.configuration.bundle import ScriptBundle
from farm.errors import InvalidSpec
from worker_agent.rank.bundles import BundleFolder

BUNDLE = ScriptBundle({"src/train.py": b"print(1)", "data.csv": b"1,2"})
DIGITS = BUNDLE.sha256[:12]


@pytest.fixture
def bundles(tmp_path: Path) -> BundleFolder:
    return BundleFolder(tmp_path / "bundles")


def test_a_copy_has_the_files(bundles: BundleFolder, tmp_path: Path) -> None:
    assert not bundles.has(DIGITS)
    bundles.put(BUNDLE.archive)
    assert bundles.has(DIGITS)
    bundles.write(DIGITS, tmp_path / "copy")
    assert (tmp_path / "copy/src/train.py").read_bytes() == b"print(1)"
    assert (tmp_path / "copy/data.csv").read_bytes() == b"1,2"


def test_the_trainers_group_may_read_and_nobody_else(bundles: BundleFolder, tmp_path: Path) -> None:
    bundles.put(BUNDLE.archive)
    folder = tmp_path / "copy"
    bundles.write(DIGITS, folder, group=os.getgid())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    for path in folder.rglob("*"):
        expected = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == expected


def test_a_changed_archive_is_not_used_and_forgotten(bundles: BundleFolder, tmp_path: Path) -> None:
    bundles.put(BUNDLE.archive)
    [held] = (tmp_path / "bundles").iterdir()
    held.write_bytes(ScriptBundle({"src/train.py": b"evil"}).archive)
    with pytest.raises(InvalidSpec, match="unchanged"):
        bundles.write(DIGITS, tmp_path / "copy")
    assert not bundles.has(DIGITS)


def test_a_damaged_archive_is_fetched_again(bundles: BundleFolder, tmp_path: Path) -> None:
    bundles.put(BUNDLE.archive)
    [held] = (tmp_path / "bundles").iterdir()
    held.write_bytes(BUNDLE.archive[:-1])
    assert not bundles.has(DIGITS)
    held.mkdir()
    assert not bundles.has(DIGITS)


def test_nothing_is_left_of_an_archive_that_could_not_be_written(
    bundles: BundleFolder, tmp_path: Path
) -> None:
    bundles.put(BUNDLE.archive)
    [held] = (tmp_path / "bundles").iterdir()
    (tmp_path / "bundles/killed.part").write_bytes(b"x")
    held.unlink()
    held.mkdir()  # so that the last step fails
    with pytest.raises(OSError, match=r".*"):
        bundles.put(BUNDLE.archive)
    assert list((tmp_path / "bundles").iterdir()) == [held]


@pytest.mark.parametrize("digits", ["*", "../x", "", "0" * 12])
def test_odd_names_find_nothing(digits: str, bundles: BundleFolder) -> None:
    bundles.put(BUNDLE.archive)
    assert not bundles.has(digits)


def test_the_least_lately_used_goes_first(tmp_path: Path) -> None:
    made = [ScriptBundle({"x": bytes([n]) * 1000}) for n in range(3)]
    bundles = BundleFolder(tmp_path / "bundles", most_bytes=2 * len(made[0].archive))
    for age, bundle in enumerate(made[:2]):
        bundles.put(bundle.archive)
        os.utime(tmp_path / "bundles" / f"{bundle.sha256}.zip", (age, age))
    bundles.write(made[0].sha256[:12], tmp_path / "copy")
    bundles.put(made[2].archive)
    assert [bundles.has(bundle.sha256[:12]) for bundle in made] == [True, False, True]
