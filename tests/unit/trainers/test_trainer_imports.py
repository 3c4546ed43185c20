"""What the agent and the server may load without loading a framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "torch", "keras", "numpy", "sklearn", "sqlalchemy")


@pytest.mark.parametrize(
    "module",
    [
        "farm.registry",
        "farm.trainers.strategies",
        "farm.trainers.models",
        "farm.trainers.datasets",
        "farm.trainers.__main__",
    ],
)
def test_the_descriptions_load_no_framework(module: str) -> None:
    script = (
        f"import sys, {module}; import farm.registry; farm.registry.catalogue();"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n"
