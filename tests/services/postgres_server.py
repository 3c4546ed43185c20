"""A real PostgreSQL for tests: one that is named, the system's, or the binaries of a wheel.

FARM_TEST_POSTGRES may hold the URL of one, with an account that may create databases.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from farm.embedded.redis import free_port
from farm.store.engine import SQLITE, make_engine
from farm.store.schema import upgrade
from tests.services.certificates import Authority
from tests.services.orphans import unmarked
from tests.services.postgres_programs import VARIABLE, binary_folder, reachable, unprivileged_user

_START_TIMEOUT_S = 60
# Nothing listens on the network.
_OPTIONS = {"listen_addresses": "", "max_connections": "200"}
# A test's rows need not survive a loss of power.
_CARELESS = {
    **{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"},
    # A copy of a database is logged whole; by default that grows to a gigabyte.
    **{"min_wal_size": "32MB", "max_wal_size": "128MB"},
}
# The end of its input comes with the end of the test process, by whatever that dies: then it stops
# the server and removes what that wrote.
_SUPERVISOR = """
folder=$1 data=$2; shift 2
"$@" & server=$!
read -r _
kill -INT "$server" 2>/dev/null
wait "$server"
rm -rf "$folder" "$data"
"""
# Making and dropping a database of 300 files took 40 to 250 ms of the kernel's time on a disk, and
# 15 here; with two thousand of them that was a third of all that the tests cost. A container has
# little of it unless asked for more.
_MEMORY = Path("/dev/shm")
# For each process of a parallel run: they all begin at once, each with a server of its own.
_LEAST_MEMORY_BYTES = 1 * 2**30


def wait_until_blocked(engine: sa.Engine, *, count: int = 1) -> None:
    """Wait until so many transactions of a test's database wait for locks.

    SQLite's writers always do, and it tells nobody.
    """
    if engine.dialect.name == SQLITE:
        return
    blocked = sa.text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    deadline = time.monotonic() + 30
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while (connection.scalar(blocked) or 0) < count:
            assert time.monotonic() < deadline, f"expected {count} to wait for a lock"
            time.sleep(0.01)


class PostgresServer:
    """A PostgreSQL that hands out databases; ours unless FARM_TEST_POSTGRES names another.

    Ours forgets commits when the power is lost, and has its data in memory if there is room, unless
    it `is_durable`.
    """

    def __init__(self, *, is_durable: bool = False) -> None:
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._template: str | None = None
        named = os.environ.get(VARIABLE)
        if named:
            self._url = sa.make_url(named).set(drivername="postgresql+psycopg")
        else:
            options = {} if is_durable else _CARELESS
            self._supervisor, self._url = _start(options, in_memory=not is_durable)
        # A test may have crashed it meanwhile.
        self._admin = sa.create_engine(self._url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    @contextmanager
    def database(self, *, is_migrated: bool) -> Iterator[str]:
        """Create a database, empty or with the farm's schema; yield its URL, and drop it."""
        # Migrated once for all: a copy takes a fraction of the time.
        if is_migrated and self._template is None:
            self._template = self._create()
            engine = make_engine(self._url_of(self._template))
            upgrade(engine)
            engine.dispose()
        name = self._create(template=self._template if is_migrated else None)
        try:
            yield self._url_of(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Leave nothing behind, on a server of another's either."""
        if self._template is not None:
            self._execute(f"DROP DATABASE {self._template} WITH (FORCE)")
        self._admin.dispose()
        if self._supervisor is not None:
            assert self._supervisor.stdin
            self._supervisor.stdin.close()
            self._supervisor.wait(timeout=60)

    def _create(self, *, template: str | None = None) -> str:
        name = f"farm_test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template0'}")
        return name

    def _url_of(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)


class TlsPostgresServer(PostgresServer):
    """A PostgreSQL of ours that others reach at one address, by TLS and with a password alone."""

    PASSWORD = "of a test"

    def __init__(self, *, authority: Authority, address: str) -> None:
        self.address, self._authority = address, authority
        issued = authority.issue("postgres", address)
        files = {"server.crt": issued.file.read_bytes(), "server.key": issued.key.read_bytes()}
        files["access"] = (
            b"local all all trust\nhostssl all all 0.0.0.0/0 scram-sha-256\n"
            b"hostssl all all ::/0 scram-sha-256\n"
        )
        self.port = free_port()
        options = {"listen_addresses": address, "port": str(self.port), "ssl": "on"}
        self._supervisor, self._url = _start({**_CARELESS, **options}, files=files, in_memory=True)
        self._template = None
        self._admin = sa.create_engine(self._url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
        self._execute(f"ALTER USER farm PASSWORD '{self.PASSWORD}'")

    def _url_of(self, name: str) -> str:
        return self.url_of(name).render_as_string(hide_password=False)

    def url_of(self, name: str, **query: str) -> sa.URL:
        """The URL of a database as the farm is to have it, but for what `query` says."""
        verified = {"sslmode": "verify-full", "sslrootcert": str(self._authority.file)}
        return sa.URL.create(
            "postgresql+psycopg",
            username="farm",
            password=self.PASSWORD,
            host=self.address,
            port=self.port,
            database=name,
            query={**verified, **query},
        )


def _start(
    options: Mapping[str, str], *, in_memory: bool, files: Mapping[str, bytes] | None = None
) -> tuple[subprocess.Popen[bytes], sa.URL]:
    """Start a private server; as root it runs as another user, since it refuses root.

    `in_memory`: with its data where no disk is, if there is room.
    `files` are put beside its socket: server.crt and server.key, and who has access.
    """
    binaries = binary_folder()
    user = unprivileged_user() if os.geteuid() == 0 else None
    # Not one of pytest's folders: those are closed to the other user.
    folder = Path(tempfile.mkdtemp(prefix="farm-postgres-"))
    within = _MEMORY if in_memory and _has_room(_MEMORY) else None
    data = Path(tempfile.mkdtemp(prefix="farm-postgres-data-", dir=within))
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    if user is not None:
        binaries = reachable(binaries, folder)
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", folder, data], check=True)
    uid, gid = (user.pw_uid, user.pw_gid) if user else (None, None)
    groups: list[int] | None = [] if user else None
    command: list[str | Path] = [
        binaries / "initdb",
        "-D",
        data,
        "--auth=trust",
        "--username=farm",
        "--no-sync",
    ]
    initialised = subprocess.run(
        [*command, "--encoding=UTF8", "--locale=C"],
        user=uid,
        group=gid,
        extra_groups=groups,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_START_TIMEOUT_S,
        check=False,
    )
    assert initialised.returncode == 0, initialised.stderr
    if files:
        options = {
            **options,
            "ssl_cert_file": str(folder / "server.crt"),
            "ssl_key_file": str(folder / "server.key"),
            "hba_file": str(folder / "access"),
        }
    given = [f"--{name}={value}" for name, value in {**_OPTIONS, **options}.items()]
    server: list[str | Path] = [
        binaries / "postgres",
        "-D",
        data,
        f"--unix_socket_directories={folder}",
        *given,
    ]
    with (folder / "log").open("ab") as log:
        supervisor = subprocess.Popen(
            ["sh", "-c", _SUPERVISOR, "supervisor", folder, data, *server],
            user=uid,
            group=gid,
            extra_groups=groups,
            cwd="/",
            env=unmarked(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the tests, which stop the server at their end
        )
    query = {"host": str(folder)} | ({"port": options["port"]} if "port" in options else {})
    url = sa.URL.create("postgresql+psycopg", username="farm", database="postgres", query=query)
    _wait_until_it_answers(url, supervisor, log=folder / "log")
    return supervisor, url


def _has_room(folder: Path) -> bool:
    """Whether it is there, and its limit and the machine's memory let it grow."""
    if not os.access(folder, os.W_OK):
        return False
    free_bytes = min(shutil.disk_usage(folder).free, psutil.virtual_memory().available)
    server_count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return free_bytes >= server_count * _LEAST_MEMORY_BYTES


def _wait_until_it_answers(url: sa.URL, supervisor: subprocess.Popen[bytes], *, log: Path) -> None:
    engine = sa.create_engine(url)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            engine.connect().close()
        except OperationalError as error:
            has_ended = supervisor.poll() is not None
            if has_ended or time.monotonic() > deadline:
                raise AssertionError(log.read_text()) from error
            time.sleep(0.02)
        else:
            engine.dispose()
            return
