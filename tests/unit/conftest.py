"""What several unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.store.base import Table


@pytest.fixture
def session() -> Iterator[Session]:
    """A session on an empty store in memory."""
    engine = sa.create_engine("sqlite://")
    Table.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()
