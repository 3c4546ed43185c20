"""PostgreSQL: connections cut, and a crash that it recovers from by itself."""

from __future__ import annotations

import os
import random
import signal

import psutil
import sqlalchemy as sa

from tests.chaos.farm import ChaosFarm
from tests.chaos.faults.contract import Fault, Heal, Scope, all_serve

OWN_SERVER = "FARM_TEST_POSTGRES"


def cut_connections(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    del agent, rng
    with farm.engine.connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    return lambda: None


def backend_of(farm: ChaosFarm) -> psutil.Process:
    with farm.engine.connect() as connection:
        return psutil.Process(connection.scalar(sa.text("SELECT pg_backend_pid()")))


def restart(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Kill one backend: the server takes its memory for damaged and starts all over from its log.

    It cuts every connection, and refuses new ones until it has recovered.
    """
    del agent, rng
    backend_of(farm).send_signal(signal.SIGKILL)
    return lambda: None


def freeze(farm: ChaosFarm, agent: str, rng: random.Random) -> Heal:
    """Stop its processes, as on a machine that hangs."""
    del agent, rng
    server = backend_of(farm).parent()
    assert server is not None
    frozen = [server, *server.children(recursive=True)]
    for process in frozen:
        process.suspend()

    def thaw() -> None:
        for process in frozen:
            process.resume()

    return thaw


def lacks_own_server() -> str | None:
    return f"{OWN_SERVER} names a server that is not ours" if os.environ.get(OWN_SERVER) else None


DATABASE_FAULTS = (
    Fault(
        name="PostgreSQL's connections cut",
        does="all of them are ended by the server",
        scope=Scope.FARM,
        lasts_s=(0.0, 0.0),
        limit_s=10.0,
        strike=cut_connections,
        serves=all_serve,
    ),
    Fault(
        name="PostgreSQL restarted",
        does="a crash, all connections lost, and its own recovery",
        scope=Scope.FARM,
        lasts_s=(0.0, 0.0),
        limit_s=10.0,
        strike=restart,
        serves=all_serve,
        lacks=lacks_own_server,
    ),
    Fault(
        name="PostgreSQL frozen",
        does="SIGSTOP of all its processes for up to half a lease",
        scope=Scope.FARM,
        lasts_s=(0.5, 2.0),
        limit_s=10.0,
        counts_from_end=True,
        strike=freeze,
        serves=all_serve,
        lacks=lacks_own_server,
        blinds=True,
    ),
)
