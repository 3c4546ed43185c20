"""What is asked of a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa


@contextmanager
def statements(engine: sa.Engine) -> Iterator[list[str]]:
    """Note the text of each statement."""
    seen: list[str] = []

    def note(_: object, __: object, text: str, *___: object) -> None:
        seen.append(text)

    sa.event.listen(engine, "before_cursor_execute", note)
    yield seen
    sa.event.remove(engine, "before_cursor_execute", note)
