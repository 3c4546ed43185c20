"""A column of a table that a command prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column; numbers read better flush right."""

    title: str
    is_right: bool = False
