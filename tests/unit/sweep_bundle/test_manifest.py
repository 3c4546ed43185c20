from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from farm.errors import FarmError, InvalidSpec
from farm.sweep_bundle.manifest import (
    FORMAT,
    MANIFEST,
    MEASUREMENTS,
    VERSION,
    Manifest,
    content_of,
    files_in,
    new_folder,
    read_manifest,
    write_manifest,
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    with new_folder(folder) as partial:
        (partial / "figures").mkdir()
        (partial / "figures" / "map.svg").write_text("<svg/>")
        (partial / MEASUREMENTS).write_text("world_size\n1\n")
        write_manifest(
            partial,
            Manifest(
                format=FORMAT,
                version=VERSION,
                benchfarm_version="0.1.0",
                farm_id="ab" * 16,
                sweep_id=3,
                sweep_name="a sweep",
                created_at="2026-03-01T12:00:00+00:00",
                files=files_in(partial),
            ),
        )
    return folder


def test_a_bundle_is_read_as_it_was_written(bundle: Path) -> None:
    (bundle / "notes.txt").write_text("of a reader")
    manifest = read_manifest(bundle)
    assert (manifest.origin, sorted(manifest.files)) == (
        "farm-abababab-sweep-3",
        ["figures/map.svg", MEASUREMENTS],
    )
    assert content_of(bundle, manifest, MEASUREMENTS, most=100) == b"world_size\n1\n"
    with pytest.raises(InvalidSpec, match=r"measurements\.csv: expected at most 5 bytes"):
        content_of(bundle, manifest, MEASUREMENTS, most=5)


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="cannot be written: File exists"):
        _fill(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").mkdir()
    with pytest.raises(FarmError, match="is there already"), new_folder(tmp_path / "out"):
        pass


def _fill(folder: Path) -> None:
    with new_folder(folder) as partial:
        (partial / "a").mkdir()
        (partial / "a").mkdir()


def _change(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**data, **changes}))

    return change


def _rename(name: str) -> Callable[[Path], None]:
    def rename(folder: Path) -> None:
        data = json.loads((folder / MANIFEST).read_text())
        data["files"][name] = data["files"].pop("figures/map.svg")
        (folder / MANIFEST).write_text(json.dumps(data))

    return rename


def _link(name: str) -> Callable[[Path], None]:
    def link(folder: Path) -> None:
        (folder / name).rename(folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return link


def _pipe(folder: Path) -> None:
    (folder / MEASUREMENTS).unlink()
    os.mkfifo(folder / MEASUREMENTS)


def _huge(folder: Path) -> None:
    with (folder / MANIFEST).open("ab") as file:
        file.truncate(1 << 32)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / MEASUREMENTS).write_text("world_size\n2\n"), "it was changed"),
        (lambda f: os.truncate(f / MEASUREMENTS, 4), "of 13 bytes"),
        (lambda f: (f / MEASUREMENTS).unlink(), "measurements.csv: expected a file"),
        (lambda f: (f / MANIFEST).unlink(), "manifest.json: expected a file"),
        (lambda f: os.truncate(f / MANIFEST, 40), "expected JSON"),
        (lambda f: (f / MANIFEST).write_text("[" * 100_000), "expected JSON"),
        (lambda f: (f / MANIFEST).write_text("[]"), "manifest.json: format"),
        (_change(format="a zip"), "got 'a zip'"),
        (_change(version=2), "a newer program wrote it"),
        (_change(version=True), "version: expected a whole number"),
        (_change(files={}), "measurements.csv in them"),
        (_change(sweep_id=0), "sweep_id: expected"),
        (_change(farm_id="x" * 33), "farm_id: expected"),
        (_change(files=None), "files: expected"),
        (_change(more=1), "more: expected"),
        (_rename("../elsewhere"), "the name of a file of the bundle, got '../elsewhere'"),
        (_rename("/etc/passwd"), "the name of a file of the bundle"),
        (_rename("figures/../../x"), "the name of a file of the bundle"),
        (_rename("figures/.."), "the name of a file of the bundle"),
        (_rename("a\x00b"), "the name of a file of the bundle"),
        (_rename("figures/\u202e"), "the name of a file of the bundle"),
        (_link(MEASUREMENTS), "expected a file"),
        (_link(MANIFEST), "expected a file"),
        (_link("figures"), "and no link"),
        (_pipe, "expected a file"),
        (_huge, "expected at most"),
    ],
)
def test_a_bundle_that_was_spoilt_is_refused_in_one_line(
    bundle: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(bundle)
    with pytest.raises(InvalidSpec) as refused:
        read_manifest(bundle)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_changed_after_it_was_checked_is_refused(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    (bundle / MEASUREMENTS).write_text("world_size\n2\n")
    with pytest.raises(InvalidSpec, match="it was changed"):
        content_of(bundle, manifest, MEASUREMENTS, most=100)
