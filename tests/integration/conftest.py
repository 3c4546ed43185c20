"""Real databases: an SQLite file, and PostgreSQL too where FARM_TEST_POSTGRES holds its URL."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.store.engine import make_engine
from farm.store.schema import upgrade

# An account of it that may create databases: every test gets one of its own.
_POSTGRES = os.environ.get("FARM_TEST_POSTGRES")
_DATABASES = ["sqlite", "postgresql"] if _POSTGRES else ["sqlite"]


@pytest.fixture(params=_DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store/farm.db"
    else:
        with _postgres_database() as url:
            yield url


@pytest.fixture
def empty_engine(database_url: str) -> Iterator[sa.Engine]:
    """A store without a schema."""
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(empty_engine: sa.Engine) -> sa.Engine:
    """A migrated, empty store."""
    upgrade(empty_engine)
    return empty_engine


@contextmanager
def _postgres_database() -> Iterator[str]:
    assert _POSTGRES is not None
    url = sa.make_url(_POSTGRES).set(
        drivername="postgresql+psycopg", database=f"farm_test_{uuid.uuid4().hex}"
    )
    admin = sa.create_engine(
        sa.make_url(_POSTGRES).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT"
    )
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {url.database}")
        try:
            yield url.render_as_string(hide_password=False)
        finally:
            connection.exec_driver_sql(f"DROP DATABASE {url.database} WITH (FORCE)")
    admin.dispose()
