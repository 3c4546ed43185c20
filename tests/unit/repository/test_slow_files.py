"""The list of files that only `make test-all` runs."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SLOW_FILES

TESTS = Path(__file__).parents[2]


def test_every_slow_file_exists() -> None:
    listed = {(folder, name) for folder, names in SLOW_FILES.items() for name in names}
    there = {(file.relative_to(TESTS).parts[0], file.name) for file in TESTS.rglob("test_*.py")}
    assert listed <= there
