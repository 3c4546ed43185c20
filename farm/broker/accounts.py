"""Redis ACL users for agents: create, renew, remove."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from farm.broker.celery_app import (
    HEARTBEATS_QUEUE,
    OWN_QUEUES_WAKE_KEY,
    REPORTS_QUEUE,
    agent_queue,
    open_client,
    own_queue,
)
from farm.broker.errors import broker_errors
from farm.broker.url import redact, without_credentials
from farm.errors import FarmError, Unreachable
from farm.messages.agents import check_agent_id

logger = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_OLDEST = 7  # the first Redis with selectors; Valkey says the Redis that it is compatible with
# Without `client|setinfo`, by which redis-py tells its version: Redis 7.0 does not know it.
# Of every client of redis-py and of Kombu's consumer, in the versions that are installed here; the
# test that runs jobs under these rules says when they change.
_COMMANDS = ("hello", "ping", "select", "client|setname")
# Were its queue a hash, each batch of commands with one for it would fail, and the server take its
# broker for dead.
_OF_QUEUE = ("brpop", "lpush", "rpush", "llen", "del")


class BrokerAccounts:
    """Talks to the broker as an account that may manage accounts."""

    def __init__(self, admin_url: str) -> None:
        self._url = admin_url

    def put(self, agent_id: str, passwords: Collection[str]) -> bool:
        """Set the passwords and rights of an agent's account, replacing all earlier ones.

        Return whether a restart of the broker keeps it.

        Raises:
            FarmError: the broker does not answer, is too old, or does not let this account.
        """
        rules = account_rules(
            agent_id,
            passwords,
            queue=agent_queue(agent_id),
            sent_queues=(
                *(own_queue(shared, agent_id) for shared in (REPORTS_QUEUE, HEARTBEATS_QUEUE)),
                OWN_QUEUES_WAKE_KEY,
            ),
        )
        with self._client() as client:
            version = str(client.info("server").get("redis_version", "0"))
            if int(version.partition(".")[0]) < _OLDEST:
                raise FarmError(
                    f"broker {redact(self._url)} is Redis {version}: accounts that only add to a "
                    f"queue need Redis {_OLDEST} or newer, or Valkey"
                )
            client.execute_command("ACL SETUSER", account_name(agent_id), *rules)
            return _save(client)

    def end_connections(self, agent_id: str) -> None:
        """Close the connections of this agent, so that it signs in again. Raises FarmError."""
        with self._client() as client:
            client.execute_command("CLIENT KILL", "USER", account_name(agent_id))

    def delete(self, agent_id: str) -> bool:
        """End the account and its connections; return whether a restart keeps that.

        Raises:
            FarmError: the broker does not answer, or does not let this account.
        """
        with self._client() as client:
            client.execute_command("ACL DELUSER", account_name(agent_id))
            return _save(client)

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            with open_client(self._url, timeout_s=_TIMEOUT_S) as client:
                yield client
        except broker_errors() as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise Unreachable(
                f"broker {redact(self._url)} did not change its accounts ({reason}): correct "
                "FARM_BROKER_ADMIN_URL, then `farm agent sync`"
            ) from error


def agent_url(broker_url: str, agent_id: str, password: str) -> str:
    """Return the broker's URL with an agent's account and password, and no other credentials."""
    parts = urlsplit(without_credentials(broker_url))
    user = f"{quote(account_name(agent_id), safe='')}:{quote(password, safe='')}"
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc}"))


def _save(client: Any) -> bool:
    from redis import ResponseError

    try:
        client.execute_command("ACL SAVE")
    except ResponseError as error:  # there is no file for it
        logger.debug("accounts were not saved: %s", error)
        return False
    return True


def account_name(agent_id: str) -> str:
    """Name an agent's account at the broker."""
    return f"agent.{check_agent_id(agent_id)}"


def account_rules(
    agent_id: str, passwords: Collection[str], *, queue: str, sent_queues: Collection[str]
) -> list[str]:
    """Return what `ACL SETUSER` takes behind the name; whatever the account could do before ends.

    The queue of its commands is its own. To its queues of reports and heartbeats it may add, and
    ask for their length; what lies there it can neither see nor remove. That takes a selector, and
    so Redis 7 or Valkey. Names of agents have no character that means more than itself in a pattern
    of keys.

    `queue`: of its commands. `sent_queues`: to which it may add. The passwords are hashed, as
    Redis keeps them, so that none stands in a log of commands.
    """
    hashes = [f"#{hashlib.sha256(password.encode()).hexdigest()}" for password in passwords]
    adding = " ".join(f"%W~{name}" for name in sent_queues)
    return [
        *("reset", "on", *hashes),
        *(f"+{command}" for command in _COMMANDS),
        f"({' '.join(f'+{command}' for command in _OF_QUEUE)} ~{queue})",
        f"(+lpush +llen {adding})",
    ]
