"""Look in a changed copy of the tree for something that was added to it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import sqlalchemy as sa

from farm.store.engine import make_engine
from farm.store.schema import upgrade


def look(places: Callable[[str, sa.Engine], Iterable[tuple[str, bool]]], name: str) -> int:
    """Print the places where what has that name was found; 1: one of them lacks it.

    `places` gets the name and an empty store, and yields each place with whether it is there.
    """
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(f"sqlite:///{Path(folder) / 'store.db'}")
        upgrade(engine)
        for place, is_found in places(name, engine):
            if not is_found:
                sys.stderr.write(f"not found: {place}\n")
                return 1
            sys.stdout.write(f"{place}\n")
        engine.dispose()
    return 0
