"""`farm token`: what is printed once, what never, and how it ends."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.keys.api_tokens import Scope, is_token
from farm.store.access.api_tokens import presented_token
from farm.store.engine import reading
from tests.commands.farm_command import FarmCommand


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def _scope(engine: sa.Engine, token: str) -> Scope | None:
    with reading(engine) as session:
        found = presented_token(session, token, now=dt.datetime.now(dt.UTC))
        return None if found is None else found.scope


@pytest.mark.parametrize("scope", list(Scope))
def test_create_prints_the_token_alone_and_this_once(
    farm: FarmCommand, engine: sa.Engine, scope: Scope
) -> None:
    result = farm.run("token", "create", "ci", "--scope", scope.value)
    assert result.exit_code == 0
    token = result.stdout.removesuffix("\n")
    assert is_token(token)
    assert _scope(engine, token) is scope
    assert f"ci may {scope.value} for good" in result.stderr
    assert token not in result.stderr
    assert token not in farm.text("token", "list")
    assert token not in farm.text("token", "list", "--json")


def test_tokens_differ(farm: FarmCommand) -> None:
    made = {farm.text("token", "create", f"t{i}", "--scope", "read") for i in range(5)}
    assert len(made) == 5


def test_list_says_which_tokens_count(farm: FarmCommand) -> None:
    assert "there is no token" in farm.text("token", "list")
    made = farm.json("token", "create", "short", "--scope", "read", "--expires-days", "30")
    assert is_token(made["token"])
    farm.text("token", "create", "gone", "--scope", "admin")
    assert farm.text("token", "revoke", "gone") == "gone is revoked\n"
    assert farm.text("token", "revoke", "gone") == "gone was revoked already\n"
    gone, short = farm.json("token", "list")
    assert (gone["name"], gone["scope"], gone["state"]) == ("gone", "admin", "revoked")
    assert (short["name"], short["scope"], short["state"]) == ("short", "read", "active")
    assert "secret_hash" not in short
    expires_at = dt.datetime.fromisoformat(short["expires_at"])
    assert (expires_at - dt.datetime.fromisoformat(short["created_at"])).days == 30
    assert expires_at.isoformat() == made["expires_at"]
    shown = farm.text("token", "list")
    assert "revoked" in shown
    assert "never" in shown


def test_a_token_that_was_found_somewhere_is_revoked_by_itself(
    farm: FarmCommand, engine: sa.Engine
) -> None:
    token = farm.text("token", "create", "leaked", "--scope", "submit").strip()
    assert farm.text("token", "revoke", token) == "leaked is revoked\n"
    assert _scope(engine, token) is None


def test_a_removed_name_is_free(farm: FarmCommand, engine: sa.Engine) -> None:
    old = farm.text("token", "create", "ci", "--scope", "read").strip()
    line = farm.refusal("token", "create", "ci", "--scope", "read", status=2)
    assert "farm token revoke --remove" in line
    assert farm.text("token", "revoke", "ci", "--remove") == "ci is revoked and removed\n"
    new = farm.text("token", "create", "ci", "--scope", "submit").strip()
    assert (_scope(engine, old), _scope(engine, new)) == (None, Scope.SUBMIT)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "ci"),
        ("create", "ci", "--scope", "root"),
        ("create", "ci", "--scope", "ADMIN"),
        ("create", "", "--scope", "read"),
        ("create", "a b", "--scope", "read"),
        ("create", "x" * 65, "--scope", "read"),
        ("create", "'; DROP TABLE jobs; --", "--scope", "read"),
        ("create", "ci", "--scope", "read", "--expires-days", "0"),
        ("create", "ci", "--scope", "read", "--expires-days", "1e9"),
        ("create", "ci", "--scope", "read", "--expires-days", "36501"),
        ("revoke",),
    ],
)
def test_wrong_usage_is_one_line_and_makes_no_token(
    farm: FarmCommand, arguments: tuple[str, ...]
) -> None:
    farm.refusal("token", *arguments, status=2)
    assert farm.json("token", "list") == []


def test_a_token_in_place_of_a_name_is_not_repeated(farm: FarmCommand) -> None:
    token = farm.text("token", "create", "ci", "--scope", "read").strip()
    assert token not in farm.refusal("token", "create", token, "--scope", "read", status=2)
    other = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert other not in farm.refusal("token", "revoke", other, status=1)


def test_an_unknown_name_is_one_line(farm: FarmCommand) -> None:
    assert "farm token list" in farm.refusal("token", "revoke", "nobody", status=1)
