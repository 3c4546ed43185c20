"""Checks incoming messages: version, signature, quota.

A refused message is logged and not passed on. Messages of an account that has used up its quota
are dropped. Nothing is stored here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from farm import __version__
from farm.broker.health_records import HealthReporter
from farm.broker.refusals import RefusalCounts
from farm.collector.quotas import Quotas
from farm.errors import InvalidSpec, Unreachable
from farm.keys.keyring import Keyring
from farm.messages.commands import BeatConfirmed, Command
from farm.messages.envelope import WIRE_VERSION, UnknownVersion, unknown_version_in
from farm.messages.signing import claimed_agent

logger = logging.getLogger(__name__)

Answer = Callable[[Sequence[tuple[str, Command]]], None]
_Message = TypeVar("_Message")


class MessageFilter:
    """With a `keyring` only signed messages are accepted. `health` gets the failures.

    `quotas`: by task, of the accounts that the keyring proves; without one, of names as claimed.
    """

    def __init__(
        self,
        *,
        keyring: Keyring | None,
        health: HealthReporter,
        answer: Answer,
        quotas: Mapping[str, Quotas] | None = None,
    ) -> None:
        self._keyring = keyring
        self._quotas = quotas or {}
        self._health = health
        self._answer = answer
        self._refusals = RefusalCounts()

    def accept(
        self,
        task: str,
        envelopes: Sequence[object],
        read: Callable[[object], _Message],
        *,
        row_count: Callable[[_Message, int], int] | None = None,
    ) -> list[_Message]:
        """Return, in their order, the messages that `read` makes of the acceptable envelopes.

        `read` raises InvalidSpec for what it cannot read; other messages are not affected.
        `row_count`: how many rows the store would get of a message, from it and its bytes; they are
        charged, too. It raises InvalidSpec as well.
        """
        messages: list[_Message] = []
        if not self._health.is_ours:
            return messages  # nothing is confirmed, so agents send it again
        quotas = self._quotas.get(task)
        is_any_dropped = False
        for envelope in envelopes:
            sender = unknown_version_in(envelope)
            if sender is not None:
                self._refuse(sender)
                continue
            account = claimed_agent(envelope)
            # With keys only what it has signed, or has added to its own queue, was charged to it,
            # so that nobody else who claims its name can have used this up.
            empty = quotas.exhausted(account) if quotas is not None and account else None
            if quotas is not None and account and empty is not None:
                self._refusals.add(account, f"beyond {quotas.limit(empty)}")
                is_any_dropped = True
                continue
            try:
                opened = envelope
                if self._keyring is not None:
                    opened = self._keyring.opened(task, envelope)
                byte_count = _byte_count(opened)
                if quotas is not None and account:
                    quotas.charge(account, messages=1, bytes=byte_count)
                message = read(opened)
                if row_count is not None:
                    rows = row_count(message, byte_count)
                    if quotas is not None and account:
                        quotas.charge(account, rows=rows)
                messages.append(message)
            except InvalidSpec as error:
                self._refusals.add(account or "unnamed", str(error))
            except Unreachable as error:
                # Keys are in the store, so the others could not be stored either.
                logger.warning("%d messages not read: %s", len(envelopes), error)
                self._health.failed(str(error))
                return []
            except Exception as error:
                logger.exception("message not read", extra={"agent_id": account})
                self._health.failed(repr(error))
        if quotas is not None and is_any_dropped:
            self._health.hold_back(task, quotas.dropped())
        return messages

    def _refuse(self, sender: UnknownVersion) -> None:
        """Say in our own log that an agent speaks another version, and let it say so in its own.

        It cannot read what we answer, and that is what it will log: every version looks at the
        number first, and names the one that it expected.
        """
        if self._health.note_unknown_version(sender):
            logger.warning(
                "agent speaks wire version %d, and this server %d: install this server's benchfarm "
                "%s there; nothing of it is taken until then",
                sender.version,
                WIRE_VERSION,
                __version__,
                extra={"agent_id": sender.agent_id},
            )
            nobody = BeatConfirmed(boot_id="", counter=0, server_time_s=0.0)
            self._answer([(sender.agent_id, nobody)])


def _byte_count(envelope: object) -> int:
    """Return how long a message is as the store writes JSON, however its sender has written it.

    Raises:
        InvalidSpec: it is too nested to be written.
    """
    message = envelope.get("message") if isinstance(envelope, dict) else envelope
    try:
        return len(json.dumps(message))
    except RecursionError:
        raise InvalidSpec("envelope", "a message", "one that is not so nested") from None
