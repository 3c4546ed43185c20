"""Real databases: every test of a store runs on an SQLite file and on PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.store.engine import make_engine
from farm.store.schema import upgrade
from tests.services.postgres_programs import NoPostgres
from tests.services.postgres_server import PostgresServer
from tests.services.redis_server import RedisServer

# What a web server does beside its requests. A connection that such a thread holds while the engine
# is disposed of is closed by nobody.
SERVERS_THREADS = ("advice", "background", "changes", "kept")
THREAD_LIMIT_S = 10.0


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    server, reason = None, ""
    try:
        server = PostgresServer()
    except NoPostgres as error:
        reason = str(error)
    if server is None:
        pytest.fail(reason, pytrace=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file to copy: migrations take ten times as long."""
    file = tmp_path_factory.mktemp("template") / "farm.db"
    engine = make_engine(f"sqlite:///{file}")
    upgrade(engine)
    engine.dispose()
    return file


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty Redis of the test's own."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Tests that make sense on one database only are parametrised with that one."""
    kind: str = request.param
    return kind


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_kind: str) -> Iterator[str]:
    """The URL of the test's database, without any table unless it asks for `engine` too."""
    is_migrated = "engine" in request.fixturenames
    with new_database(request, database_kind, is_migrated=is_migrated) as url:
        yield url


@pytest.fixture
def empty_engine(database_url: str) -> Iterator[sa.Engine]:
    """A store without a schema."""
    engine = make_engine(database_url)
    yield engine
    for thread in threading.enumerate():
        if thread.name in SERVERS_THREADS:
            thread.join(THREAD_LIMIT_S)
    engine.dispose()


@pytest.fixture
def engine(empty_engine: sa.Engine) -> sa.Engine:
    """A migrated, empty store."""
    return empty_engine


@contextmanager
def new_database(request: pytest.FixtureRequest, kind: str, *, is_migrated: bool) -> Iterator[str]:
    """Create a database of a kind, empty or migrated; yield its URL, and remove it."""
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with server.database(is_migrated=is_migrated) as url:
            yield url
        return
    tmp_path: Path = request.getfixturevalue("tmp_path")
    file = Path(tempfile.mkdtemp(dir=tmp_path)) / "farm.db"
    if is_migrated:
        shutil.copy(request.getfixturevalue("migrated_file"), file)
    yield f"sqlite:///{file}"
