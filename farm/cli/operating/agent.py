"""`farm agent`: admit agents, replace their keys, remove them."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import click

from farm.broker import plaintext
from farm.broker.accounts import BrokerAccounts, agent_url
from farm.broker.url import authorities_file, is_local_broker
from farm.cli.output import json_option, print_json, print_table
from farm.cli.session import settings, store, wake_scheduler
from farm.errors import InvalidSpec
from farm.keys.signing_key import make_signing_key, read_signing_key
from farm.messages.agent_keys import KeyPurpose, KeyRecord, derive_key, key_text, secret_text
from farm.settings.server import Settings
from farm.store.agents.agent_keys import (
    add_agent_key,
    key_records,
    list_agent_keys,
    remove_agent,
    rotate_agent_key,
)
from farm.store.engine import reading, writing
from farm.store.tables import AgentKeyRow
from farm.text import display
from farm.text.columns import Column

_LONGEST_GRACE_HOURS = 24 * 90
# What is longer has the system's authorities, which each machine has of its own.
_OWN_AUTHORITY_BYTES = 16384
_CERTIFICATE = re.compile(
    r"^-----BEGIN CERTIFICATE-----\n(?:[A-Za-z0-9+/=]+\n)+-----END CERTIFICATE-----\n", re.MULTILINE
)
_COLUMNS = (
    Column("agent"),
    Column("key", is_right=True),
    Column("state"),
    Column("made"),
    Column("the one before counts until"),
)


@click.group()
def agent() -> None:
    """Admit agents to the farm, replace their keys, and remove them.

    `farm agents` lists what they are doing.
    """


@agent.command()
@click.argument("name")
@json_option
def add(name: str, *, as_json: bool) -> None:
    """Admit the agent NAME, and print what to install on its machine.

    The first one makes the file that FARM_SIGNING_KEY_FILE names, if it is not there yet.
    """
    loaded = settings()
    now = dt.datetime.now(dt.UTC)
    with store(loaded) as engine:
        with reading(engine) as session:
            is_first = not list_agent_keys(session)
        farm_key = _farm_key(loaded, may_make=is_first)
        with writing(engine) as session:
            record = add_agent_key(session, name, now=now)
    _put_account(loaded, record, farm_key, now=now)
    _end_old_passwords(loaded, farm_key, now=now)
    _print_key(loaded, record, farm_key, as_json=as_json)


@agent.command()
@click.argument("name")
@click.option(
    "--grace-hours",
    type=click.FloatRange(0, _LONGEST_GRACE_HOURS),
    default=24.0,
    show_default=True,
    metavar="N",
    help="How long its old key stays valid. 0: not at all, as for a key that leaked.",
)
@json_option
def rotate(name: str, *, grace_hours: float, as_json: bool) -> None:
    """Replace the key of the agent NAME, and print what to install on its machine."""
    loaded = settings()
    farm_key = _farm_key(loaded, may_make=False)
    now, grace = dt.datetime.now(dt.UTC), dt.timedelta(hours=grace_hours)
    with store(loaded) as engine, writing(engine) as session:
        record = rotate_agent_key(session, name, now=now, grace=grace)
    _put_account(loaded, record, farm_key, now=now)
    if not grace and loaded.broker_admin_url is not None:
        BrokerAccounts(loaded.broker_admin_url).end_connections(name)
    _end_old_passwords(loaded, farm_key, now=now)
    _print_key(loaded, record, farm_key, as_json=as_json)
    if not as_json and record.previous_until is not None:
        until = display.clock(record.previous_until)
        click.echo(f"its old credentials are valid until {until}: restart it before then", err=True)
        if loaded.broker_admin_url is not None:
            click.echo(
                "its old password at the broker ends with the next `farm agent` command after that",
                err=True,
            )


@agent.command()
@click.argument("name")
@json_option
def remove(name: str, *, as_json: bool) -> None:
    """Remove the agent NAME: its keys end, and its gang is free at once."""
    loaded = settings()
    with store(loaded) as engine, writing(engine) as session:
        remove_agent(session, name, now=dt.datetime.now(dt.UTC))
    wake_scheduler(loaded)
    if loaded.broker_admin_url is not None:
        _warn_unless_kept(BrokerAccounts(loaded.broker_admin_url).delete(name))
    if as_json:
        # `agent` is the former name, until 0.2.0.
        print_json({"agent_id": name, "agent": name, "is_removed": True})
    else:
        click.echo(f"{name} is removed: its messages are refused from now on")


@agent.command()
@json_option
def sync(*, as_json: bool) -> None:
    """Write the broker accounts of all agents again. Needs FARM_BROKER_ADMIN_URL.

    Use it after the broker has lost them.
    """
    loaded = settings()
    if loaded.broker_admin_url is None:
        raise InvalidSpec(
            "FARM_BROKER_ADMIN_URL", None, "the broker's URL with an account that manages others"
        )
    farm_key = _farm_key(loaded, may_make=False)
    now = dt.datetime.now(dt.UTC)
    with store(loaded) as engine, reading(engine) as session:
        removed = [row.agent_id for row in list_agent_keys(session) if row.revoked_at is not None]
        records = key_records(session).values()
    for record in records:
        _put_account(loaded, record, farm_key, now=now)
    for name in removed:
        BrokerAccounts(loaded.broker_admin_url).delete(name)
    if as_json:
        print_json({"account_count": len(records), "removed_count": len(removed)})
    else:
        click.echo(f"{len(records)} accounts are as they should be, {len(removed)} are none")


@agent.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the agents that have a valid key. No key is shown."""
    now, loaded = dt.datetime.now(dt.UTC), settings()
    with store(loaded) as engine, reading(engine) as session:
        found = list_agent_keys(session)
    if loaded.broker_admin_url is not None and found:
        _end_old_passwords(loaded, _farm_key(loaded, may_make=False), now=now)
    if as_json:
        print_json([_as_json(row, now=now) for row in found])
    elif found:
        print_table(_COLUMNS, [_cells(row, now=now) for row in found])
    else:
        click.echo("no agent has a key: messages are not signed, which is for loopback only")


def _farm_key(loaded: Settings, *, may_make: bool) -> bytes:
    """Return the farm's key. A second one is never made: with it no agent's key would count."""
    path = loaded.signing_key_file
    if path is None:
        raise InvalidSpec(
            "FARM_SIGNING_KEY_FILE", None, "a file for the farm's signing key, which is made there"
        )
    if may_make and not path.exists():
        return make_signing_key(path)
    return read_signing_key(path)


def _put_account(loaded: Settings, record: KeyRecord, farm_key: bytes, *, now: dt.datetime) -> None:
    """Give the agent its account at the broker, if this farm's agents have accounts."""
    if loaded.broker_admin_url is None:
        return
    passwords = [
        _password(farm_key, record.agent_id, number) for number in record.accepted(now=now)
    ]
    _warn_unless_kept(BrokerAccounts(loaded.broker_admin_url).put(record.agent_id, passwords))


def _end_old_passwords(loaded: Settings, farm_key: bytes, *, now: dt.datetime) -> None:
    """Have the broker forget the passwords of keys whose grace is over: it knows no end of them."""
    if loaded.broker_admin_url is None:
        return
    with store(loaded) as engine, reading(engine) as session:
        records = key_records(session).values()
    for record in records:
        if record.previous_until is not None and record.previous_until <= now:
            _put_account(loaded, record, farm_key, now=now)


def _warn_unless_kept(is_kept: bool) -> None:
    if not is_kept:
        click.echo(
            "the broker forgets its accounts when it restarts: start Redis with an aclfile, or run "
            "`farm agent sync` after each restart",
            err=True,
        )


def _password(farm_key: bytes, agent_id: str, number: int) -> str:
    return secret_text(derive_key(farm_key, agent_id, number, purpose=KeyPurpose.BROKER))


def _print_key(loaded: Settings, record: KeyRecord, farm_key: bytes, *, as_json: bool) -> None:
    text = key_text(derive_key(farm_key, record.agent_id, record.number))
    url = None
    if loaded.broker_admin_url is not None:
        password = _password(farm_key, record.agent_id, record.number)
        url = agent_url(loaded.broker_url, record.agent_id, password)
    trusted = authorities_file(url) if url is not None else None
    authority = _own_authority(trusted) if trusted is not None else None
    if as_json:
        print_json(
            {
                "agent_id": record.agent_id,
                "agent": record.agent_id,  # the former name, until 0.2.0
                "number": record.number,
                "key": text,
                "broker_url": url,
                "authority": authority,
            }
        )
        return
    click.echo(f"AGENT_ID={record.agent_id}")
    click.echo(f"AGENT_KEY={text}")
    if url is not None:
        click.echo(f"FARM_BROKER_URL={url}")
        if loaded.plaintext.broker:
            click.echo(f"{plaintext.FARM_PLAINTEXT}=broker")
        if is_local_broker(url):
            click.echo("put the server's address into FARM_BROKER_URL for other machines", err=True)
    if authority is not None:
        # Comments, so that the lines are an environment file with them.
        click.echo(f"# What it trusts, for its {trusted} (deploy/install.sh puts it there):")
        click.echo("\n".join(f"# {line}" for line in authority.splitlines()))
    # Beside standard output, so that a script can take the lines from there.
    click.echo("put these lines into its environment, such as /etc/benchfarm/agent.env", err=True)


def _own_authority(file: Path) -> str | None:
    """Return the certificates that an agent's machine lacks; None where it has them, or nobody."""
    try:
        if file.stat().st_size > _OWN_AUTHORITY_BYTES:
            return None
        text = file.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return "".join(_CERTIFICATE.findall(text)) or None


def _state(row: AgentKeyRow) -> str:
    return "counts" if row.revoked_at is None else "removed"


def _previous_until(row: AgentKeyRow, *, now: dt.datetime) -> dt.datetime | None:
    is_over = row.previous_until is None or row.previous_until <= now
    return None if is_over else row.previous_until


def _as_json(row: AgentKeyRow, *, now: dt.datetime) -> dict[str, object]:
    return {
        "agent_id": row.agent_id,
        "agent": row.agent_id,  # the former name, until 0.2.0
        "number": row.number,
        "state": _state(row),
        "created_at": row.made_at,
        "made_at": row.made_at,  # the former name, until 0.2.0
        "previous_until": _previous_until(row, now=now),
        "revoked_at": row.revoked_at,
    }


def _cells(row: AgentKeyRow, *, now: dt.datetime) -> list[str]:
    return [
        row.agent_id,
        str(row.number),
        _state(row),
        display.clock(row.made_at),
        display.clock(_previous_until(row, now=now)),
    ]
