"""What holds for all tests."""

from __future__ import annotations

import contextlib
import importlib

import pytest
from hypothesis import HealthCheck, settings

# PyTorch built for GPUs, which is what PyPI has, brings Triton, and loads it with its first
# optimizer. Loaded after TensorFlow it ends the process by a segmentation fault, and here tests of
# both meet in one. A trainer has only one of them.
with contextlib.suppress(ImportError):
    importlib.import_module("triton")

# Machines that test stand still for seconds: an example that takes long says nothing of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# What takes longest begins first, so that no worker is left with it while the others have ended.
LONGEST = ("e2e", "property")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.parent.name not in LONGEST)
