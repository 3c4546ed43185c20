"""One database: what these tests read from a store is asked of both by the tests of the store."""

from __future__ import annotations

import pytest


@pytest.fixture
def database_kind() -> str:
    """SQLite, where a test is not parametrised with another."""
    return "sqlite"
