"""A whole farm on this machine: Redis, store, scheduler, collector, web server and agents.

The processes are the same as in production, but this program starts them. Each inherits a mark in
its environment, and so do its children, even in another session or with another parent. So orphaned
processes of the farm can always be found.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from farm.broker.health_records import find_idle_reason
from farm.broker.url import is_local_broker
from farm.embedded.home import Endpoints, locked, read_endpoints, write_endpoints
from farm.embedded.processes import LoggedProcess, ProcessSupervisor, Program
from farm.embedded.redis import LOOPBACK_ADDRESS, is_free, start_redis
from farm.embedded.signals import StopSignals
from farm.embedded.sites import LocalAgent, local_site, share_cores
from farm.errors import FarmError, InvalidSpec
from farm.keys.signing_key import make_signing_key, read_signing_key
from farm.measuring.noise import NoisePolicy
from farm.messages.agent_keys import derive_key, key_text
from farm.messages.agents import HEARTBEAT_S
from farm.processes.marked import EMBEDDED_MARK, MarkedProcesses, processes_marked
from farm.settings.declaration import secret_names
from farm.settings.server import Settings, environment_of
from farm.settings.web_listening import check_web_listening, web_url

if TYPE_CHECKING:
    import sqlalchemy as sa

_READY_LIMIT_S = 180.0  # on a machine that is busy, imports alone take long
_LEFTOVERS_GRACE_S = 5.0
_WEB_PORTS_TRIED = 50
# An agent ends its rank and flushes its spool; a trainer inside TensorFlow may need the SIGKILL.
_AGENT_GRACE_S = 15.0
_SERVER_GRACE_S = 10.0
_STAGE_SERVERS, _STAGE_AGENTS = 1, 2
# Agents reach the broker, too.
_SECRETS = {*secret_names(Settings), "FARM_SIGNING_KEY_FILE"} - {"FARM_BROKER_URL"}
_END_POLL_S = 0.05
_KILLED_WITHIN_S = 5.0


class EmbeddedFarm:
    """Start everything on entering, end everything on leaving. For the main thread.

    `settings` becomes what is really used: the embedded Redis, and a web port that was free.
    `report` gets a line for whatever the user should see. Without `sites` there are `agents` of
    this machine, which share its cores; those elsewhere find the broker at `broker_host`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        agents: int = 0,
        sites: Sequence[LocalAgent] = (),
        broker_host: str = LOOPBACK_ADDRESS,
        signals: StopSignals,
        report: Callable[[str], None],
        ready_limit_s: float = _READY_LIMIT_S,
    ) -> None:
        # The servers share the agents' cores here, so that some foreign load is part of every
        # measurement. To void them for it would leave a newcomer without any.
        self.settings = dataclasses.replace(
            settings,
            home=settings.home.absolute(),
            noise_policy=settings.noise_policy or NoisePolicy.FLAG,
        )
        self._sites = tuple(sites) or tuple(
            local_site(number, count=agents, cpus=cpus, home=self.settings.home)
            for number, cpus in enumerate(
                share_cores(sorted(os.sched_getaffinity(0)), agents=agents)
            )
        )
        self._broker_host = broker_host
        self._ready_limit_s = ready_limit_s
        self._signals = signals
        self._report = report
        self._supervisor = ProcessSupervisor(report)
        self._stack = ExitStack()

    @property
    def agent_ids(self) -> tuple[str, ...]:
        return tuple(site.agent_id for site in self._sites)

    @property
    def dashboard_url(self) -> str:
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.settings.web_host)  # noqa: S104 (nothing is bound here)
        return web_url(self.settings, host=shown)

    def __enter__(self) -> EmbeddedFarm:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def check_processes(self) -> None:
        """Restart what ended by itself; call it about twice a second.

        Raises:
            FarmError: something ends again and again.
        """
        self._supervisor.check()

    def log_tails(self) -> str:
        """Return the end of every process's log, for a report of what went wrong."""
        return "\n".join(
            f"--- {child.log_path}\n{child.log_tail()}" for child in self._supervisor.children
        )

    def _start(self, stack: ExitStack) -> None:
        home = self.settings.home
        check_web_listening(self.settings)
        stack.enter_context(locked(home))
        if count := end_marked(str(home), grace_s=_LEFTOVERS_GRACE_S):
            self._report(f"ended {count} processes that an earlier farm had left in {home}")
        # Trainers lead sessions of their own; whatever slips through its agent's hands ends here.
        stack.callback(end_marked, str(home), grace_s=0.0)
        stack.callback(self._stop)
        self._upgrade_store()
        self._start_redis()
        web_port, claim = claim_web_port(self.settings.web_host, self.settings.web_port)
        stack.enter_context(claim)
        self.settings = dataclasses.replace(self.settings, web_port=web_port)
        begun_at = dt.datetime.now(dt.UTC)
        self._run(*self._server_programs("collector", "web"), *self._agent_programs())
        write_endpoints(
            home,
            Endpoints(
                broker_url=self.settings.broker_url,
                broker_port=self._redis_port,
                dashboard_url=self.dashboard_url,
            ),
        )
        self._wait_until_up(begun_at)
        # Jobs may wait from an earlier farm of this home: given out before all agents are there,
        # their ranks would share cores that they need not.
        self._run(*self._server_programs("scheduler"))
        self._wait_for(self._missing_scheduler)

    def _run(self, *programs: Program) -> None:
        for program in programs:
            # A child started after the request to stop would only be ended again.
            self._signals.pause(0)
            child = LoggedProcess(program, log_dir=self.settings.home / "logs")
            child.start()
            self._supervisor.add(child)

    def _stop(self) -> None:
        begun = self._signals.count
        # A second signal means: do not wait.
        self._supervisor.stop(skip_waiting=lambda: self._signals.count > max(1, begun))

    def _upgrade_store(self) -> None:
        from farm.store.engine import make_engine
        from farm.store.identity import settle_here
        from farm.store.schema import upgrade

        engine = make_engine(self.settings.database_url)
        try:
            upgrade(engine)
            settle_here(engine)
        finally:
            engine.dispose()

    def _start_redis(self) -> None:
        home = self.settings.home
        known = read_endpoints(home)
        redis = start_redis(
            home / "redis",
            host=self._broker_host,
            port=known.broker_port if known else None,
            log_dir=home / "logs",
            environ=self._environ(),
            pause=self._signals.pause,
        )
        self._supervisor.add(redis.child)
        self._redis_port = redis.port
        self.settings = with_signing_key(dataclasses.replace(self.settings, broker_url=redis.url))
        if not is_local_broker(redis.url):  # a lab's network, which is this machine's own
            allowed = dataclasses.replace(self.settings.plaintext, broker=True)
            self.settings = dataclasses.replace(self.settings, plaintext=allowed)

    def _server_programs(self, *names: str) -> list[Program]:
        environ = self._environ()
        return [
            Program(
                name=name,
                argv=(sys.executable, "-P", "-m", "farm.cli.main", "run", name),
                environ=environ,
                stage=_STAGE_SERVERS,
                grace_s=_SERVER_GRACE_S,
            )
            for name in names
        ]

    def _agent_programs(self) -> list[Program]:
        shared = without_secrets(self._environ())
        # Small leases, as tests have them, need quicker beats.
        shared.setdefault("AGENT_HEARTBEAT_S", f"{min(HEARTBEAT_S, self.settings.lease_s / 4):g}")
        keys = agent_keys(self.settings, self.agent_ids)
        return [
            Program(
                name=site.agent_id,
                argv=(*site.prefix, sys.executable, "-P", "-m", "worker_agent"),
                environ={
                    **shared,
                    **site.settings,
                    "AGENT_ID": site.agent_id,
                    "AGENT_KEY": keys.get(site.agent_id, ""),
                },
                stage=_STAGE_AGENTS,
                grace_s=_AGENT_GRACE_S,
            )
            for site in self._sites
        ]

    def _environ(self) -> dict[str, str]:
        """Return the environment of every child: ours, with the settings as they are now."""
        return {
            **os.environ,
            **environment_of(self.settings),
            EMBEDDED_MARK: str(self.settings.home),
        }

    def _wait_until_up(self, begun_at: dt.datetime) -> None:
        from farm.store.engine import make_engine

        engine = make_engine(self.settings.database_url)
        try:
            self._wait_for(lambda: self._missing(engine, begun_at))
        finally:
            engine.dispose()

    def _wait_for(self, missing: Callable[[], Sequence[str]]) -> None:
        deadline = time.monotonic() + self._ready_limit_s
        while names := missing():
            if time.monotonic() > deadline:
                limit = f"{self._ready_limit_s:.0f} s"
                raise FarmError(f"not up within {limit}: {', '.join(names)}\n{self.log_tails()}")
            self.check_processes()
            self._signals.pause(0.2)

    def _missing_scheduler(self) -> list[str]:
        """Name the scheduler while none works: a sweep that waits would give that as the reason."""
        return [] if find_idle_reason(self.settings.broker_url) is None else ["scheduler"]

    def _missing(self, engine: sa.Engine, begun_at: dt.datetime) -> list[str]:
        """Name who is not up yet: agents without a heartbeat, the web server while deaf."""
        from farm.store.agents.agents import list_agents
        from farm.store.engine import reading

        with reading(engine) as session:
            beating = {
                agent.id
                for agent in list_agents(session)
                if agent.heartbeat_at is not None and agent.heartbeat_at >= begun_at
            }
        missing = sorted(set(self.agent_ids) - beating)
        return missing if _answers(self.dashboard_url) else [*missing, "web"]


def claim_web_port(host: str, wanted: int) -> tuple[int, socket.socket]:
    """Return the first free port from `wanted` on, with a socket that reserves it until closed.

    The web server listens only some seconds later, and a farm that starts meanwhile must not take
    the same port. So each farm binds the port's name as an abstract address, which goes with it.

    Raises:
        InvalidSpec: the address is not one of this machine's.
        FarmError: no port is free.
    """
    if not is_free(host, 0):  # whatever port the system would choose
        raise InvalidSpec("FARM_WEB_HOST", host, "an address of this machine, such as 127.0.0.1")
    for port in range(wanted, min(wanted + _WEB_PORTS_TRIED, 65536)):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0benchfarm-web-{host}-{port}")
        except OSError:  # another farm's
            claim.close()
            continue
        if is_free(host, port):
            return port, claim
        claim.close()
    raise FarmError(f"no free port for the web server from {wanted} on: set FARM_WEB_PORT")


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1):
            return True
    except OSError:
        return False


def with_signing_key(settings: Settings) -> Settings:
    """Return the settings with a signing key in the farm's home, if one is needed."""
    if settings.signing_key_file is not None or is_local_broker(settings.broker_url):
        return settings
    path = settings.home / "signing.key"
    if not path.exists():
        make_signing_key(path)
    return dataclasses.replace(settings, signing_key_file=path)


def agent_keys(settings: Settings, agent_ids: Sequence[str]) -> dict[str, str]:
    """Return the keys of these agents, creating missing ones; empty without a signing key."""
    from farm.store.agents.agent_keys import add_agent_key, key_records
    from farm.store.engine import make_engine, writing

    if settings.signing_key_file is None:
        return {}
    farm_key = read_signing_key(settings.signing_key_file)
    now = dt.datetime.now(dt.UTC)
    engine = make_engine(settings.database_url)
    try:
        with writing(engine) as session:
            known = key_records(session)
            records = [known.get(one) or add_agent_key(session, one, now=now) for one in agent_ids]
    finally:
        engine.dispose()
    return {r.agent_id: key_text(derive_key(farm_key, r.agent_id, r.number)) for r in records}


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what only the server may know."""
    return {name: text for name, text in environ.items() if name not in _SECRETS}


def find_marked(home: str) -> list[int]:
    """Return the pids of living processes that were started for a farm of this folder."""
    return processes_marked(EMBEDDED_MARK, home)


def end_marked(home: str, *, grace_s: float) -> int:
    """End all processes of a farm's folder: SIGTERM, then SIGKILL. Return how many there were.

    Raises:
        FarmError: one survived even that.
    """
    found: set[int] = set()
    with MarkedProcesses(EMBEDDED_MARK, home) as marked:
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILLED_WITHIN_S)):
            deadline = time.monotonic() + wait_s
            while marked.look(number):
                found.update(marked.pids)
                if time.monotonic() >= deadline:
                    break
                marked.wait(_END_POLL_S)
        if left := marked.pids:
            pids = ", ".join(map(str, left))
            raise FarmError(f"processes {pids} cannot be ended; restart the machine")
    return len(found)
