"""The type that readers of data set files return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from farm.trainers.contracts import Examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Both splits, and the files they were read from, in the order they are hashed."""

    train: Examples
    test: Examples
    paths: tuple[Path, ...]
