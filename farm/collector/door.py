"""What the collector reads of what arrives: messages of this version, by whom they claim to be.

What is refused is told of here, and nothing of it goes on. Nothing is stored here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from farm import __version__
from farm.core.commands import BeatConfirmed, Command
from farm.core.messages import WIRE_VERSION, Stranger, stranger_in
from farm.core.signing import claimed_agent
from farm.errors import InvalidSpec, Unreachable
from farm.keyring import Keyring
from farm.life_signs import SignOfLife
from farm.refusals import Refusals

logger = logging.getLogger(__name__)

Answer = Callable[[Sequence[tuple[str, Command]]], None]
_Message = TypeVar("_Message")


class Door:
    """With a `keyring` nothing comes in that is not signed. `life` learns how that goes."""

    def __init__(self, *, keyring: Keyring | None, life: SignOfLife, answer: Answer) -> None:
        self._keyring = keyring
        self._life = life
        self._answer = answer
        self._refusals = Refusals()

    def let_in(
        self, task: str, envelopes: Sequence[object], read: Callable[[object], _Message]
    ) -> list[_Message]:
        """Return, in their order, the messages that `read` makes of what may come in.

        `read` raises InvalidSpec for what it cannot read, which costs no other message anything.
        """
        messages: list[_Message] = []
        if not self._life.is_ours:
            return messages  # nothing is confirmed, so agents send it again
        for envelope in envelopes:
            stranger = stranger_in(envelope)
            if stranger is not None:
                self._refuse(stranger)
                continue
            try:
                opened = envelope if self._keyring is None else self._keyring.opened(task, envelope)
                messages.append(read(opened))
            except InvalidSpec as error:
                self._refusals.add(claimed_agent(envelope) or "unnamed", str(error))
            except Unreachable as error:
                # Keys are in the store, so the others could not be stored either.
                logger.warning("%d messages not read: %s", len(envelopes), error)
                self._life.failed(str(error))
                return []
            except Exception as error:
                logger.exception("message not read", extra={"agent_id": claimed_agent(envelope)})
                self._life.failed(repr(error))
        return messages

    def _refuse(self, stranger: Stranger) -> None:
        """Say in our own log that an agent speaks another version, and let it say so in its own.

        It cannot read what we answer, and that is what it will log: every version looks at the
        number first, and names the one that it expected.
        """
        if self._life.met(stranger):
            logger.warning(
                "agent speaks wire version %d, and this server %d: install this server's benchfarm "
                "%s there; nothing of it is taken until then",
                stranger.version,
                WIRE_VERSION,
                __version__,
                extra={"agent_id": stranger.agent_id},
            )
            nobody = BeatConfirmed(boot_id="", counter=0, server_time_s=0.0)
            self._answer([(stranger.agent_id, nobody)])
