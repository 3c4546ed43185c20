"""The keys of all agents, with which the server signs commands and checks reports."""

from __future__ import annotations

import datetime as dt
import functools
import threading
import time

from sqlalchemy import Engine

from farm.errors import InvalidSpec, NotFound
from farm.messages.agent_keys import AgentKey, KeyRecord, derive_key
from farm.messages.signing import MessageDirection, claimed_agent, sign, verified
from farm.store.agents.agent_keys import key_records
from farm.store.engine import reading

# What a person changes counts everywhere after this. All are read at once: asked for each message,
# the store would be asked as often for keys as for everything else.
FRESH_S = 1.0
_ADVICE = "`farm agent add NAME` on the server prints what to install there"


class Keyring:
    """Reads which keys count from the store, about once a second while it is used."""

    def __init__(self, engine: Engine, farm_key: bytes) -> None:
        self._engine = engine
        self._records: dict[str, KeyRecord] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        # Bounded, since each rotation leaves one behind.
        self._derive = functools.lru_cache(maxsize=65_536)(functools.partial(derive_key, farm_key))

    def signed(self, agent_id: str, task: str, envelope: dict[str, object]) -> dict[str, object]:
        """Sign a message to an agent: a `farm.broker.sending.Signer`.

        Raises:
            NotFound: the agent has no key that counts.
            Unreachable: the store does not answer.
        """
        keys = self._keys(agent_id)
        if not keys:
            raise NotFound(f"agent {agent_id!r} has no key that counts; {_ADVICE}")
        to_agent = MessageDirection.TO_AGENT
        return sign(envelope, keys, agent_id=agent_id, direction=to_agent, kind=task)

    def opened(self, task: str, envelope: object) -> object:
        """Return the verified message of an agent, which names that agent as its sender.

        Raises:
            InvalidSpec: it is not signed, not by a key that counts, or speaks for another agent.
            Unreachable: the store does not answer.
        """
        agent_id = claimed_agent(envelope)
        if agent_id is None:
            raise InvalidSpec("agent_id", None, "a signed message with its agent's name")
        to_server = MessageDirection.TO_SERVER
        keys = self._keys(agent_id)
        try:
            plain = verified(envelope, keys, agent_id=agent_id, direction=to_server, kind=task)
        except InvalidSpec as error:
            if error.field != "signature":
                raise
            raise InvalidSpec(error.field, error.value, f"{error.expected}; {_ADVICE}") from None
        if claimed_agent(plain) != agent_id:
            raise InvalidSpec("agent_id", claimed_agent(plain), f"{agent_id!r}, who has signed")
        return plain

    def agent_ids(self) -> list[str]:
        """Return the agents that have or had a key: one that was removed may still send.

        Raises:
            Unreachable: the store does not answer.
        """
        return sorted(self._fresh())

    def _fresh(self) -> dict[str, KeyRecord]:
        with self._lock:
            if time.monotonic() - self._read_at > FRESH_S:
                with reading(self._engine) as session:
                    self._records = key_records(session, with_removed=True)
                self._read_at = time.monotonic()
            return self._records

    def _keys(self, agent_id: str) -> tuple[AgentKey, ...]:
        record = self._fresh().get(agent_id)
        if record is None:
            return ()
        now = dt.datetime.now(dt.UTC)
        return tuple(self._derive(agent_id, number) for number in record.accepted(now=now))
