"""Which facts a text tells, whatever its wording."""

from __future__ import annotations

import re


def lacking(text: str | None, *facts: object) -> list[str]:
    """Return those of the facts that a text does not tell: numbers, names, states, whole words."""
    return [
        f"{fact}"
        for fact in facts
        if not re.search(rf"(?<![\w.]){re.escape(f'{fact}')}(?!\w|\.\d)", text or "")
    ]
