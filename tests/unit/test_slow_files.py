"""The list of files that only `make test-all` runs."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import SLOW_FILES

TESTS = Path(__file__).parents[1]


def test_every_slow_file_exists() -> None:
    listed = {TESTS / folder / name for folder, names in SLOW_FILES.items() for name in names}
    assert {file for file in listed if not file.is_file()} == set()
