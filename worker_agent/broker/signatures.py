"""What an agent's messages are signed with, and what it takes from its server."""

from __future__ import annotations

from farm.errors import InvalidSpec
from farm.messages.agent_keys import AgentKey
from farm.messages.signing import MessageDirection, is_signed, sign, verified

_ADVICE = "a new one from `farm agent add` or `farm agent rotate` on the server, if this persists"


class Signatures:
    """Of one agent. Without a key, which is for loopback only, messages go as they are."""

    def __init__(self, agent_id: str, key: AgentKey | None) -> None:
        self._agent_id = agent_id
        self._keys = () if key is None else (key,)

    def signed(self, task: str, envelope: dict[str, object]) -> dict[str, object]:
        """Return a sealed report or heartbeat as the collector takes it."""
        if not self._keys:
            return envelope
        to_server = MessageDirection.TO_SERVER
        return sign(envelope, self._keys, agent_id=self._agent_id, direction=to_server, kind=task)

    def opened(self, task: str, envelope: object) -> object:
        """Return a command as its server has sealed it.

        Raises:
            InvalidSpec: it is not signed for this agent by its server; or it is, and there is no
                key here to check that.
        """
        if not self._keys:
            if is_signed(envelope):
                expected = "the key of this agent, since its server signs: `farm agent add` there"
                raise InvalidSpec("AGENT_KEY", None, expected)
            return envelope
        to_agent = MessageDirection.TO_AGENT
        try:
            return verified(
                envelope, self._keys, agent_id=self._agent_id, direction=to_agent, kind=task
            )
        except InvalidSpec as error:
            if error.field != "signature":
                raise
            expected = f"{error.expected}; or {_ADVICE}"
            raise InvalidSpec(error.field, error.value, expected) from None
