"""Tokens in the store: who is found by what was presented, and until when."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from farm.errors import InvalidSpec, NotFound
from farm.keys.api_tokens import SECRET_BYTES, Scope, make_token, token_hash
from farm.store.access.api_tokens import (
    add_token,
    has_active_token,
    has_tokens,
    list_tokens,
    note_use,
    presented_token,
    remove_token,
    revoke_token,
    token_of_session,
)
from farm.store.engine import reading, writing
from farm.store.tables import ApiToken
from tests.factories import NOW, seconds

TOKENS = [make_token(bytes([number] * SECRET_BYTES)) for number in range(3)]
DAY = dt.timedelta(days=1)


def add(
    engine: sa.Engine,
    token: str,
    name: str,
    *,
    scope: Scope = Scope.READ,
    expires_at: dt.datetime | None = None,
) -> int:
    with writing(engine) as session:
        row = add_token(
            session,
            name=name,
            scope=scope,
            secret_hash=token_hash(token),
            now=NOW,
            expires_at=expires_at,
        )
        return row.id


def presented(engine: sa.Engine, text: str, *, now: dt.datetime = NOW) -> str | None:
    with reading(engine) as session:
        found = presented_token(session, text, now=now)
        return None if found is None else found.name


def test_a_token_is_found_by_itself_alone(engine: sa.Engine) -> None:
    add(engine, TOKENS[0], "one")
    add(engine, TOKENS[1], "two", scope=Scope.ADMIN)
    assert presented(engine, TOKENS[1]) == "two"
    stored = hashlib.sha256(TOKENS[0].encode()).hexdigest()
    for other in (TOKENS[2], "one", stored, "", "bf_%", "' OR 1=1 --", "\x00", "bf_" + "\x00" * 43):
        assert presented(engine, other) is None, other


def test_the_store_never_holds_a_token(engine: sa.Engine) -> None:
    add(engine, TOKENS[0], "one")
    with reading(engine) as session:
        row = session.execute(sa.select(ApiToken.__table__)).one()
        assert TOKENS[0] not in repr(row)
        assert TOKENS[0] not in repr(session.scalars(sa.select(ApiToken)).one())
        assert row.secret_hash == hashlib.sha256(TOKENS[0].encode()).hexdigest()


def test_a_token_counts_until_it_expires(engine: sa.Engine) -> None:
    token_id = add(engine, TOKENS[0], "short", expires_at=NOW + DAY)
    assert presented(engine, TOKENS[0], now=NOW + DAY - seconds(1)) == "short"
    assert presented(engine, TOKENS[0], now=NOW + DAY) is None
    with reading(engine) as session:
        assert token_of_session(session, token_id, now=NOW) is not None
        assert token_of_session(session, token_id, now=NOW + DAY) is None
        assert has_active_token(session, now=NOW)
        assert not has_active_token(session, now=NOW + DAY)
        assert has_tokens(session)


@pytest.mark.parametrize("which", ["one", TOKENS[0]])
def test_a_token_is_revoked_by_its_name_or_by_itself(engine: sa.Engine, which: str) -> None:
    token_id = add(engine, TOKENS[0], "one")
    add(engine, TOKENS[1], "two")
    for is_first in (True, False):
        with writing(engine) as session:
            revoked = revoke_token(session, which, now=NOW + seconds(5))
        assert revoked == ("one", is_first)
    assert presented(engine, TOKENS[0]) is None
    assert presented(engine, TOKENS[1]) == "two"
    with reading(engine) as session:
        assert token_of_session(session, token_id, now=NOW) is None
        assert [(row.name, row.revoked_at) for row in list_tokens(session)] == [
            ("one", NOW + seconds(5)),
            ("two", None),
        ]


def test_a_token_that_is_not_there_is_not_repeated(engine: sa.Engine) -> None:
    for which, shown in ((TOKENS[2], "this one"), ("nobody", "'nobody'"), ("bf_x", "this one")):
        with pytest.raises(NotFound) as missing, writing(engine) as session:
            revoke_token(session, which, now=NOW)
        assert str(missing.value).startswith(f"token {shown} does not exist")


def test_a_name_is_given_once_until_it_is_removed(engine: sa.Engine) -> None:
    add(engine, TOKENS[0], "ci")
    with writing(engine) as session:
        revoke_token(session, "ci", now=NOW)
    with pytest.raises(InvalidSpec, match=r"^NAME: expected a name that no token has"):
        add(engine, TOKENS[1], "ci")
    with writing(engine) as session:
        assert remove_token(session, "ci") == "ci"
    add(engine, TOKENS[1], "ci")
    assert presented(engine, TOKENS[1]) == "ci"


def test_the_id_of_a_removed_token_never_becomes_another_ones(engine: sa.Engine) -> None:
    removed_id = add(engine, TOKENS[0], "one")
    with writing(engine) as session:
        remove_token(session, "one")
    assert add(engine, TOKENS[1], "two") > removed_id


def test_the_database_keeps_names_and_hashes_apart(engine: sa.Engine) -> None:
    add(engine, TOKENS[0], "one")
    for column in ("name", "secret_hash"):
        fields = {"name": "two", "secret_hash": "f" * 64}
        with reading(engine) as session:
            fields[column] = getattr(session.scalars(sa.select(ApiToken)).one(), column)
        with pytest.raises(IntegrityError), writing(engine) as session:
            session.add(ApiToken(scope=Scope.READ, created_at=NOW, **fields))


def test_the_database_takes_no_other_scope(engine: sa.Engine) -> None:
    add(engine, TOKENS[0], "one")
    with pytest.raises(IntegrityError), writing(engine) as session:
        session.execute(sa.text("UPDATE api_tokens SET scope = 'root'"))


def test_the_use_of_a_token_is_noted_once_a_minute(engine: sa.Engine) -> None:
    token_id = add(engine, TOKENS[0], "one")
    noted = []
    for after_s in (0, 59, 60, 90, 121):
        with writing(engine) as session:
            note_use(session, token_id, now=NOW + seconds(after_s))
        with reading(engine) as session:
            last = session.get_one(ApiToken, token_id).last_used_at
            assert last is not None
            noted.append((last - NOW).total_seconds())
    assert noted == [0, 0, 60, 60, 121]
