"""A signature is good for one message, one agent, one direction and one kind, and no other."""

from __future__ import annotations

import hmac
import json
from typing import Any

import pytest

from farm.errors import InvalidSpec
from farm.messages.agent_keys import AgentKey, derive_key
from farm.messages.commands import StopAttempt
from farm.messages.envelope import WIRE_VERSION, UnknownVersion, seal, unknown_version_in
from farm.messages.signing import MessageDirection, claimed_agent, is_signed, sign, verified

KEY, NEXT = (derive_key(bytes(32), "a", number) for number in (1, 2))
OTHERS = derive_key(bytes(32), "b", 1)
SEALED = seal(StopAttempt(token=7, reason="it is over \u00e9"))
TASK = "agent.stop_attempt"


def signed(**changes: Any) -> dict[str, Any]:
    given = {"agent_id": "a", "direction": MessageDirection.TO_AGENT, "kind": TASK, **changes}
    keys = given.pop("keys", [KEY])
    return json.loads(json.dumps(sign(SEALED, keys, **given)))  # type: ignore[no-any-return]


def opened(envelope: object, **changes: Any) -> object:
    given = {"agent_id": "a", "direction": MessageDirection.TO_AGENT, "kind": TASK, **changes}
    keys = given.pop("keys", [KEY])
    return verified(envelope, keys, **given)


def test_what_was_signed_comes_out_as_it_was() -> None:
    assert opened(signed()) == SEALED


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": [OTHERS]},
        {"keys": [NEXT]},
        {"keys": []},
        {"direction": MessageDirection.TO_SERVER},
        {"kind": "agent.confirm"},
        {"agent_id": "b"},
        {"agent_id": "b", "keys": [OTHERS]},
    ],
)
def test_it_is_good_for_nothing_else(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=r"^(signature|agent_id): expected"):
        opened(signed(), **changes)
    with pytest.raises(InvalidSpec, match=r"^(signature|agent_id): expected"):
        opened(signed(**changes))


def test_the_name_beside_a_message_and_the_keys_number_are_signed_too() -> None:
    """Even where one secret were two agents', or were given out under another number."""
    envelope = signed()
    with pytest.raises(InvalidSpec, match=r"^signature: expected"):
        opened({**envelope, "agent_id": "b"}, agent_id="b")
    renumbered = {**envelope, "signatures": {"2": envelope["signatures"]["1"]}}
    with pytest.raises(InvalidSpec, match=r"^signature: expected"):
        opened(renumbered, keys=[AgentKey(number=2, secret=KEY.secret)])


def test_a_changed_character_is_noticed_wherever_it_is() -> None:
    envelope = signed()
    for i in range(len(envelope["signed"])):
        text = envelope["signed"]
        changed = text[:i] + ("y" if text[i] == "x" else "x") + text[i + 1 :]
        with pytest.raises(InvalidSpec, match=r"^signature: expected one by the agent's key 1"):
            opened({**envelope, "signed": changed})


@pytest.mark.parametrize("length", [0, 1, 63, 65])
def test_a_part_of_a_signature_is_none(length: int) -> None:
    envelope = signed()
    cut = (envelope["signatures"]["1"] + "0")[:length]
    with pytest.raises(InvalidSpec, match=r"^signature"):
        opened({**envelope, "signatures": {"1": cut}})


def test_while_a_key_replaces_another_both_know_the_message() -> None:
    envelope = signed(keys=[NEXT, KEY])
    for key in (KEY, NEXT):
        assert opened(envelope, keys=[key]) == SEALED
    assert opened(signed(keys=[NEXT]), keys=[NEXT, KEY]) == SEALED


def test_a_message_without_a_signature_and_one_of_another_version_are_told_apart() -> None:
    with pytest.raises(InvalidSpec, match=r"^signature: expected a signed message, got None"):
        opened(SEALED)
    with pytest.raises(InvalidSpec, match=r"^version: expected wire version"):
        opened({**signed(), "version": WIRE_VERSION + 1})


def test_a_refusal_shows_no_signature() -> None:
    envelope = signed()
    with pytest.raises(InvalidSpec) as refused:
        opened(envelope, keys=[OTHERS])
    assert envelope["signatures"]["1"][:8] not in str(refused.value)


def test_the_sender_of_a_signed_message_is_known_before_it_is_trusted() -> None:
    envelope = signed()
    assert claimed_agent(envelope) == "a"
    assert is_signed(envelope)
    assert not is_signed(SEALED)
    assert unknown_version_in({**envelope, "version": 99}) == UnknownVersion("a", 99)
    assert claimed_agent({"version": 6, "message": {"agent_id": "b"}}) == "b"
    nobodies: list[object] = [
        None,
        [],
        {},
        {"signed": "", "agent_id": 3},
        {"message": {"agent_id": "a b"}},
    ]
    for nobody in nobodies:
        assert claimed_agent(nobody) is None


def test_signed_nonsense_is_refused_too() -> None:
    deep: dict[str, object] = {"version": WIRE_VERSION, "message": None}
    for text in ("{", "[" * 100_000, ""):
        good = sign(deep, [KEY], agent_id="a", direction=MessageDirection.TO_AGENT, kind=TASK)
        assert opened(good) == deep
        meant_for = f"benchfarm\n{WIRE_VERSION}\nto agent\na\n{KEY.number}\n{TASK}\n"
        mac = hmac.digest(KEY.secret, (meant_for + text).encode(), "sha256").hex()
        with pytest.raises(InvalidSpec, match=r"^signed: expected JSON"):
            opened({**good, "signed": text, "signatures": {"1": mac}})
