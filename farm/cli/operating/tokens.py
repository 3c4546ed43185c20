"""`farm token`: creates, lists and revokes API tokens."""

from __future__ import annotations

import datetime as dt
import secrets

import click

from farm.cli.output import json_option, print_json, print_table
from farm.cli.session import settings, store
from farm.keys.api_tokens import SECRET_BYTES, Scope, make_token, token_hash, token_state
from farm.store.access.api_tokens import add_token, list_tokens, remove_token, revoke_token
from farm.store.engine import reading, writing
from farm.store.tables import ApiToken
from farm.text import display
from farm.text.columns import Column

_LONGEST_DAYS = 36_500
_COLUMNS = (
    Column("token"),
    Column("scope"),
    Column("state"),
    Column("created"),
    Column("expires"),
    Column("last used"),
)


@click.group()
def token() -> None:
    """Create, list and revoke tokens of the web server.

    Its pages and API require a token as soon as one exists, even a revoked one.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    required=True,
    help="read: look. submit: also enqueue, cancel, retry, import. admin: everything.",
)
@click.option(
    "--expires-days",
    type=click.IntRange(1, _LONGEST_DAYS),
    metavar="N",
    help="Let it expire after N days.",
)
@json_option
def create(name: str, *, scope: str, expires_days: int | None, as_json: bool) -> None:
    """Create the token NAME and print it, only this once: the store keeps its hash."""
    now = dt.datetime.now(dt.UTC)
    expires_at = None if expires_days is None else now + dt.timedelta(days=expires_days)
    made = make_token(secrets.token_bytes(SECRET_BYTES))
    with store(settings()) as engine, writing(engine) as session:
        add_token(
            session,
            name=name,
            scope=Scope(scope),
            secret_hash=token_hash(made),
            now=now,
            expires_at=expires_at,
        )
    if as_json:
        print_json({"name": name, "scope": scope, "expires_at": expires_at, "token": made})
        return
    click.echo(made)
    until = "for good" if expires_at is None else f"until {display.clock(expires_at)}"
    # Beside standard output, so that a script can take the token from there.
    click.echo(f"{name} may {scope} {until}; the token is not shown again", err=True)


@token.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the tokens, also expired and revoked ones. No token itself is shown.

    last used: to about a minute.
    """
    now = dt.datetime.now(dt.UTC)
    with store(settings()) as engine, reading(engine) as session:
        found = list_tokens(session)
    if as_json:
        print_json([_as_json(row, now=now) for row in found])
    elif found:
        print_table(_COLUMNS, [_cells(row, now=now) for row in found])
    else:
        click.echo("there is no token: on loopback, and only there, the web server asks for none")


@token.command()
@click.argument("name")
@click.option("--remove", is_flag=True, help="Delete it as well, so its name is free again.")
@json_option
def revoke(name: str, *, remove: bool, as_json: bool) -> None:
    """Revoke the token NAME, and end every session that signed in with it.

    For a leaked token, give the token itself instead of NAME.
    """
    now = dt.datetime.now(dt.UTC)
    with store(settings()) as engine, writing(engine) as session:
        found, was_active = revoke_token(session, name, now=now)
        if remove:
            remove_token(session, name)
    if as_json:
        print_json({"name": found, "was_revoked": was_active, "is_removed": remove})
    elif remove:
        click.echo(f"{found} is revoked and removed")
    else:
        click.echo(f"{found} is revoked" if was_active else f"{found} was revoked already")


def _state(row: ApiToken, *, now: dt.datetime) -> str:
    return token_state(expires_at=row.expires_at, revoked_at=row.revoked_at, now=now).value


def _as_json(row: ApiToken, *, now: dt.datetime) -> dict[str, object]:
    return {
        "name": row.name,
        "scope": row.scope,
        "state": _state(row, now=now),
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "last_used_at": row.last_used_at,
    }


def _cells(row: ApiToken, *, now: dt.datetime) -> list[str]:
    return [
        row.name,
        row.scope.value,
        _state(row, now=now),
        display.clock(row.created_at),
        display.clock(row.expires_at),
        display.ago(row.last_used_at, now),
    ]
