"""Escapes text that a spreadsheet would run as a formula. Pure."""

from __future__ import annotations

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def without_formula(text: str) -> str:
    """Return a text as a cell that no spreadsheet runs: with an apostrophe before a formula."""
    return f"'{text}" if text.lstrip("'").startswith(_FORMULA) else text


def with_formula(cell: str) -> str:
    """Return the text that `without_formula` made a cell of."""
    return cell[1:] if cell.startswith("'") and without_formula(cell) != cell else cell
