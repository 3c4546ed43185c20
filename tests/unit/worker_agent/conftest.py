"""What several tests of the agent share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    """NVML with two GPUs, in which nothing runs."""
    fake = FakeNvml(tmp_path)
    fake.set("gpu_count", 2)
    fake.use()
    yield fake
    fake.leave()
