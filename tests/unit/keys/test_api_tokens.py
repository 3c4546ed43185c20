"""What a token looks like, what it allows, and what is never shown of it."""

from __future__ import annotations

import datetime as dt
import hashlib
import re

import pytest

from farm.errors import InvalidSpec
from farm.keys.api_tokens import (
    SECRET_BYTES,
    Scope,
    TokenState,
    check_token_name,
    is_token,
    make_token,
    token_hash,
    token_state,
)

NOW = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
ZEROS = make_token(bytes(SECRET_BYTES))


def test_a_token_is_found_by_its_beginning_and_holds_all_of_its_secret() -> None:
    tokens = {make_token(bytes([first, *bytes(30), last])) for first in (0, 255) for last in (0, 1)}
    assert len(tokens) == 4
    assert all(re.fullmatch(r"bf_[A-Za-z0-9_-]{43}", token) for token in tokens)
    assert all(is_token(token) for token in tokens)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_token_is_never_made_of_fewer_bits(length: int) -> None:
    with pytest.raises(ValueError, match=f"not of {length}"):
        make_token(bytes(length))


@pytest.mark.parametrize(
    "text",
    [
        *("", "bf_", "x" * 46, "bf_" + "é" * 43, "bf_" + "\x00" * 43, "bf_" + "A" * 1000),
        *(ZEROS[:-1], f"{ZEROS}A", f"{ZEROS}\n", f" {ZEROS}", ZEROS.upper()),
    ],
)
def test_what_is_no_token_is_not_looked_for(text: str) -> None:
    assert not is_token(text)


def test_the_hash_is_of_the_whole_token() -> None:
    assert token_hash(ZEROS) == hashlib.sha256(ZEROS.encode()).hexdigest()
    assert len(token_hash("\ud800")) == 64


@pytest.mark.parametrize(
    ("scope", "included"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.SUBMIT, {Scope.READ, Scope.SUBMIT}),
        (Scope.ADMIN, {Scope.READ, Scope.SUBMIT, Scope.ADMIN}),
    ],
)
def test_a_scope_includes_the_lesser_ones(scope: Scope, included: set[Scope]) -> None:
    assert {other for other in Scope if scope.includes(other)} == included


@pytest.mark.parametrize("name", ["ci", "A", "my-laptop_2.old", "x" * 64])
def test_a_token_may_be_called_so(name: str) -> None:
    assert check_token_name(name) == name


@pytest.mark.parametrize("name", ["", " ", "-x", ".x", "a b", "x" * 65, "ü", "a\n", "a/b", "<b>"])
def test_a_token_may_not_be_called_so(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^NAME: expected up to 64 letters"):
        check_token_name(name)


def test_a_token_given_for_its_name_is_not_repeated() -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_token_name(ZEROS)
    assert ZEROS not in str(refused.value)
    assert ZEROS not in repr(refused.value.__dict__)


@pytest.mark.parametrize(
    ("expires_at", "revoked_at", "state"),
    [
        (None, None, TokenState.ACTIVE),
        (NOW + HOUR, None, TokenState.ACTIVE),
        (NOW, None, TokenState.EXPIRED),
        (NOW - HOUR, None, TokenState.EXPIRED),
        (NOW + HOUR, NOW, TokenState.REVOKED),
        (NOW - HOUR, NOW - HOUR, TokenState.REVOKED),
    ],
)
def test_a_token_counts_until_it_expires_or_is_revoked(
    expires_at: dt.datetime | None, revoked_at: dt.datetime | None, state: TokenState
) -> None:
    assert token_state(expires_at=expires_at, revoked_at=revoked_at, now=NOW) is state
