"""A farm in its strictest setting: TLS everywhere, an account for everybody, nothing unsigned.

It listens on an address beyond loopback, so that whatever the farm refuses there is refused. Redis
asks its clients for certificates, and has the accounts of `deploy/redis/users.acl.example`; the
agents are made by `farm agent add`, the tokens by `farm token create`, as an operator would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from farm.cli.main import main
from farm.embedded.redis import LOOPBACK_ADDRESS, free_port
from farm.keys.keyring import FRESH_S
from tests.e2e.live_farm import REPOSITORY, LiveFarm, wait_until
from tests.machine.own_address import own_address
from tests.services.certificates import Authority, Certificate
from tests.services.postgres_server import TlsPostgresServer
from tests.services.redis_server import TlsRedisServer, speaks_tls

ACCOUNTS = REPOSITORY / "deploy" / "redis" / "users.acl.example"
NAMES = ("agent-1", "agent-2")
SERVER, ADMIN = "server:CHANGE-ME-SERVER", "admin:CHANGE-ME-ADMIN"  # as the example has them
_TRAINING = {"FAKE_TRAINER": "steps_s:0.01"}
# A machine that stands still for seconds must not look like an attack.
_LEASE_S = "60"
# Five processes start at once, on a machine that may have one core.
_START_S = 240.0


@dataclass(frozen=True, slots=True)
class AgentSecrets:
    """What somebody has who has taken over an agent's machine."""

    name: str
    key: str
    broker_url: str


class StrictFarm(LiveFarm):
    """Its processes are those of a `LiveFarm`, and the web server."""

    def __init__(
        self,
        home: Path,
        *,
        authority: Authority,
        address: str,
        store: TlsPostgresServer,
        url: str,
        agents: Mapping[str, str],
    ) -> None:
        self._url = url
        self.authority, self.address, self.store = authority, address, store
        self.web = authority.issue("web", address)
        self.web_port = free_port(address)
        accounts = home / "users.acl"
        accounts.write_text(ACCOUNTS.read_text())
        self.broker = TlsRedisServer(
            home, authority=authority, address=address, access_file=accounts, admin=ADMIN
        )
        server = {
            "FARM_BROKER_URL": self.broker.url_of(SERVER),
            "FARM_SIGNING_KEY_FILE": str(home / "signing.key"),
            "FARM_WEB_HOST": address,
            "FARM_WEB_PORT": str(self.web_port),
            "FARM_WEB_CERTIFICATE_FILE": str(self.web.file),
            "FARM_WEB_KEY_FILE": str(self.web.key),
            "FARM_LEASE_S": _LEASE_S,
            "FARM_PREPARE_TIMEOUT_S": "120",
            "FARM_START_TIMEOUT_S": "120",
        }
        self.secrets: dict[str, AgentSecrets] = {}
        self.tokens: dict[str, str] = {}
        self._keys_changed_at = 0.0
        self.agent_settings = {name: {**_TRAINING, **agents} for name in NAMES}
        super().__init__(home, server=server, agents=self.agent_settings)
        self.redis = self.broker

    @property
    def database_url(self) -> str:
        return self._url

    @property
    def web_url(self) -> str:
        return f"https://{self.address}:{self.web_port}"

    def begin(self) -> None:
        """Start everything; wait until both agents may be leased and pages are served."""
        self.redis.start()
        self.command("db", "upgrade")
        for name in NAMES:
            taken = self.add_agent(name)
            self.agent_settings[name] |= {
                "AGENT_KEY": taken.key,
                "FARM_BROKER_URL": taken.broker_url,
                "FARM_LEASE_S": _LEASE_S,
            }
        for scope in ("read", "submit"):
            made = self.printed("token", "create", scope, "--scope", scope)
            self.tokens[scope] = made["token"]
        for name in ("scheduler", "collector", "web"):
            self.start_server(name)
        for number in range(1, len(NAMES) + 1):
            self.start_agent(number)
        try:
            self.wait_for_idle_agents(len(NAMES), within_s=_START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(0)}") from None
        served = f"dashboard at {self.web_url}/"
        wait_until(lambda: served in self.log("web"), "pages are served", within_s=_START_S)

    def add_agent(self, name: str) -> AgentSecrets:
        """Let an agent in, as an operator does; its client certificate is added by hand."""
        added = self.printed("agent", "add", name)
        self._keys_changed_at = time.monotonic()
        issued = self.authority.issue(name)
        url = f"{added['broker_url']}&ssl_certfile={issued.file}&ssl_keyfile={issued.key}"
        self.secrets[name] = AgentSecrets(name, added["key"], url)
        return self.secrets[name]

    def remove_agent(self, name: str) -> None:
        """Cut an agent off, as an operator does."""
        self.command("agent", "remove", name)
        self._keys_changed_at = time.monotonic()

    def let_keys_be_known(self) -> None:
        """Wait for as long as a server's process may know other keys than there are by now.

        Whatever it reads after that it judges by the present ones, however slow it is.
        """
        time.sleep(max(0.0, self._keys_changed_at + 1.1 * FRESH_S - time.monotonic()))

    def printed(self, *arguments: str) -> Any:
        """Run a command of the operator's and return the JSON that it printed."""
        return json.loads(self.command(*arguments, "--json").stdout)

    def command(self, *arguments: str) -> Result:
        """Run a command of the operator's, which has to succeed."""
        ended = self.tried(*arguments)
        assert ended.exit_code == 0, ended.output
        return ended

    def tried(self, *arguments: str, **changes: str) -> Result:
        """Run a command of the operator's with some settings changed."""
        environment = self.server_environment()
        environment["FARM_BROKER_ADMIN_URL"] = self.broker.url
        settings = {name: text for name, text in environment.items() if name.startswith("FARM_")}
        return CliRunner().invoke(main, list(arguments), env={**settings, **changes})

    def log(self, name: str) -> str:
        return (self.home / "logs" / f"{name}.log").read_text(errors="replace")

    def certify(self, name: str) -> Certificate:
        """Have the farm's own authority certify somebody of another name."""
        return self.authority.issue(name, f"{name}.example.org")


def what_lacks() -> str | None:
    """Say what this machine lacks for a strict farm; None: nothing."""
    if not speaks_tls():
        return "its Redis was built without TLS"
    if own_address() == LOOPBACK_ADDRESS:
        return "it has no address but its loopback, where less is refused"
    return None


@contextmanager
def strict_farm(home: Path, *, agents: Mapping[str, str] | None = None) -> Iterator[StrictFarm]:
    """Run a strict farm for the length of a block. `agents`: further settings of its agents."""
    home.mkdir(parents=True, exist_ok=True)
    address, authority = own_address(), Authority(home / "certificates")
    store = TlsPostgresServer(authority=authority, address=address)
    try:
        with store.database(is_migrated=False) as url:
            farm = StrictFarm(
                home,
                authority=authority,
                address=address,
                store=store,
                url=url,
                agents=agents or {},
            )
            try:
                farm.begin()
                yield farm
            finally:
                farm.stop()
    finally:
        store.stop()
