"""`farm notifications`: lists the latest messages, and whether each was delivered."""

from __future__ import annotations

import click

from farm.cli.output import json_option, print_json, print_table
from farm.cli.ranges import CountRange
from farm.cli.session import settings, store
from farm.notifications.addresses import masked
from farm.store.engine import reading
from farm.store.notifications import LoggedDelivery, list_deliveries, targets_of_farm
from farm.store.sweeps.sweeps import find_sweep
from farm.text import display
from farm.text.columns import Column
from farm.text.log_text import one_line

_COLUMNS = (
    Column("at"),
    Column("message"),
    Column("about"),
    Column("to"),
    Column("state"),
    Column("sent", is_right=True),
    Column("last answer"),
)


@click.command()
@click.argument("sweep", required=False)
@click.option(
    "--limit",
    type=CountRange(1, 10_000),
    default=20,
    show_default=True,
    help="Largest number of messages.",
)
@click.option(
    "--secrets", is_flag=True, help="Print what messages of FARM_NOTIFY_URLS are signed with."
)
@json_option
def notifications(sweep: str | None, *, limit: int, secrets: bool, as_json: bool) -> None:
    """List the latest messages, or those of one SWEEP (its id or name), and their delivery.

    --json prints items: id, at, type, about, sweep_id, address (without what may be secret in it),
    state (waiting, delivered or given_up), attempt_count, last_at and last_answer. With --secrets:
    address and secret.
    """
    with store(settings()) as engine, reading(engine) as session:
        sweep_id = None if sweep is None else find_sweep(session, sweep).id
        if secrets:
            kept = [(masked(one.address), one.secret) for one in targets_of_farm(session)]
        else:
            found = list_deliveries(session, sweep_id=sweep_id, limit=limit)
    if secrets:
        if as_json:
            print_json({"items": [{"address": a, "secret": secret} for a, secret in kept]})
        elif not kept:
            click.echo("there is none: FARM_NOTIFY_URLS is not set, or no scheduler has run since")
        else:
            print_table((Column("to"), Column("secret")), kept)
    elif as_json:
        print_json({"items": [one.to_json() for one in found]})
    elif not found:
        click.echo("no message was to be sent")
    else:
        print_table(_COLUMNS, [_cells(one) for one in found])


def _cells(one: LoggedDelivery) -> list[str]:
    return [
        display.clock(one.at),
        one.kind,
        one.subject,
        masked(one.address),
        one.state.value.replace("_", " "),
        str(one.attempt_count),
        one_line(one.last_said or display.MISSING),
    ]
