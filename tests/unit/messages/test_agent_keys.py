"""Keys of agents: derived as the standard says, each for one agent, written and read."""

from __future__ import annotations

import datetime as dt

import pytest

from farm.errors import InvalidSpec
from farm.messages.agent_keys import (
    AgentKey,
    KeyPurpose,
    KeyRecord,
    derive_key,
    hkdf,
    key_text,
    read_key,
)

FARM_KEY = bytes(range(32))
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


# RFC 5869, appendix A: test cases 1 and 3, the first 32 bytes of what they derive.
@pytest.mark.parametrize(
    ("salt", "info", "derived"),
    [
        (
            bytes(range(13)),
            bytes(range(0xF0, 0xFA)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
        ),
        (b"", b"", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"),
    ],
)
def test_keys_are_derived_as_the_standard_says(salt: bytes, info: bytes, derived: str) -> None:
    assert hkdf(b"\x0b" * 22, info=info, salt=salt).hex() == derived


def test_every_agent_number_and_purpose_has_a_key_of_its_own() -> None:
    made = {
        derive_key(farm_key, agent_id, number, purpose=purpose).secret
        for farm_key in (FARM_KEY, FARM_KEY[::-1])
        for agent_id in ("a", "b", "a1", "1")
        for number in (1, 11)
        for purpose in KeyPurpose
    }
    assert len(made) == 2 * 4 * 2 * len(KeyPurpose)


def test_a_key_is_read_as_it_was_written_and_never_shown() -> None:
    key = derive_key(FARM_KEY, "vm-1", 12)
    assert key_text(key).startswith("bfk_12_")
    assert read_key(key_text(key)) == key
    assert repr(key) == "AgentKey(number=12)"


@pytest.mark.parametrize(
    "text",
    ["", "bfk_", "bfk_0_" + "a" * 43, "bfk_1_" + "a" * 42, "bfk_x_" + "a" * 43, "secret", "\0"],
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^AGENT_KEY: expected a key as `farm agent add") as bad:
        read_key(text)
    assert "secret" not in str(bad.value)


def test_a_key_has_its_length() -> None:
    with pytest.raises(ValueError, match="32 bytes and not 31"):
        AgentKey(number=1, secret=bytes(31))


def test_the_key_before_counts_until_its_grace_is_over_and_none_after_a_removal() -> None:
    record = KeyRecord(agent_id="a", number=3, previous_until=NOW)
    assert record.accepted(now=NOW - dt.timedelta(seconds=1)) == (3, 2)
    assert record.accepted(now=NOW) == (3,)
    assert KeyRecord(agent_id="a", number=3).accepted(now=NOW) == (3,)
    assert KeyRecord(agent_id="a", number=3, revoked_at=NOW).accepted(now=NOW) == ()
