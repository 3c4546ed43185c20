"""`farm db`: schema, retention, backup and copying of the store."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.cli.output import json_option, print_json, print_table, row_bar
from farm.cli.session import require_file, settings, store
from farm.errors import InvalidSpec
from farm.text.columns import Column

if TYPE_CHECKING:
    import sqlalchemy as sa

    from farm.settings.server import Settings
    from farm.store.maintenance.copy import CopiedTable
    from farm.store.maintenance.prune import PrunePlan

_BACKUP_FILE = click.Path(dir_okay=False, path_type=Path)
# What is shown where nothing is asked for, and what the systemd unit asks for.
_DEFAULT_THIN_AFTER, _DEFAULT_DROP_AFTER = "30d", "365d"
_OLDEST_AGE = "36500d"
_AGE_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@click.group()
def db() -> None:
    """Upgrade, convert or check the store, prune it, back it up, or copy it."""


@db.command()
def upgrade() -> None:
    """Create the store, or bring it to this program's schema.

    Its data is kept. On PostgreSQL, samples of days without a partition are moved into one of their
    own, and storing reports may have to wait for that.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.partitions import make_partitions
    from farm.store.schema import upgrade as upgrade_schema

    loaded = settings()
    engine = make_engine(loaded.database_url)
    try:
        upgrade_schema(engine)
        make_partitions(engine, today=dt.datetime.now(dt.UTC).date(), longest_move_s=None)
    finally:
        engine.dispose()
    click.echo(f"{redacted(loaded.database_url)} has the schema of this program")


@db.command()
def convert() -> None:
    """Convert a store from before the first release, in place.

    The store is converted as a whole or, after an error, not at all. The store must have schema
    0014 or a later one. Stop scheduler, collector and web server first. A backup file is converted
    in the same way if FARM_DATABASE_URL names it; `farm db restore` converts its own copy.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.convert import convert as convert_store

    loaded = settings()
    require_file(loaded.database_url)
    engine = make_engine(loaded.database_url)
    try:
        is_converted = convert_store(engine)
    finally:
        engine.dispose()
    outcome = "is converted" if is_converted else "needs no conversion"
    click.echo(f"{redacted(loaded.database_url)} {outcome}")


@db.command()
@click.option("--force", is_flag=True, help="Even if others use the broker.")
def takeover(*, force: bool) -> None:
    """Make this store the one that the farm's broker serves.

    For a store that replaces another: a copy, one restored by other means than `farm db restore`,
    or a new farm on a broker that had another one. The other store is refused from then on. Stop
    scheduler and collector first.
    """
    from farm.broker.claim import take_broker_over
    from farm.store.engine import redacted

    loaded = settings()
    with store(loaded) as engine:
        farm_id = take_broker_over(engine, loaded.broker_url, is_forced=force)
    click.echo(f"{redacted(loaded.database_url)} is the store of farm {farm_id[:8]} now")


@db.command()
def check() -> None:
    """Fail unless the store answers and has this program's schema."""
    from farm.store.engine import redacted
    from farm.store.schema import check_tables

    loaded = settings()
    with store(loaded) as engine:
        check_tables(engine)
        click.echo(f"{redacted(loaded.database_url)} has the schema of this program")


@db.command()
@click.option(
    "--from", "source_url", metavar="URL", help="The store to read, by default the farm's own."
)
@click.option("--to", "target_url", metavar="URL", required=True, help="An empty database.")
@click.option("--force", is_flag=True, help="Copy although the farm is running.")
@json_option
def copy(source_url: str | None, *, target_url: str, force: bool, as_json: bool) -> None:
    """Copy a whole store into an empty database, and compare both.

    The target has all rows afterwards or, after an error, none; the source is only read. A
    password need not be typed: PostgreSQL's PGPASSWORD and ~/.pgpass work too. --json prints the
    tables with row_count and checksum.
    """
    from farm.settings.database_url import check_database_url
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.copy import copy_store

    loaded = settings()
    may_be_plain = loaded.plaintext.database
    check = partial(check_database_url, environ=os.environ, may_be_plain=may_be_plain)
    if source_url is None:
        source_url = loaded.database_url
        require_file(source_url)
    else:
        require_file(source_url, origin="--from")
        check(source_url, name="--from")
    check(target_url, name="--to")
    source = make_engine(source_url, name="--from")
    target = make_engine(target_url, name="--to")
    try:
        with row_bar("copying") as progress:
            tables = copy_store(
                source,
                target,
                now=dt.datetime.now(dt.UTC),
                is_forced=force,
                progress=progress,
            )
    finally:
        source.dispose()
        target.dispose()
    _print_tables(tables, as_json=as_json)
    if not as_json:
        click.echo(
            f"Now set FARM_DATABASE_URL to {redacted(target_url)} wherever the farm is set up, and "
            "run `farm db takeover` with it."
        )


@db.command()
@click.argument("file", type=_BACKUP_FILE)
@json_option
def backup(file: Path, *, as_json: bool) -> None:
    """Write the whole store, as it is now, into a new FILE.

    The farm may be running. FILE is an SQLite database, whatever the store is, and only you may
    read it. --json prints the tables with row_count and checksum.
    """
    from farm.store.engine import make_engine
    from farm.store.maintenance.backup import back_up

    loaded = settings()
    require_file(loaded.database_url)
    engine = make_engine(loaded.database_url)
    try:
        with row_bar("writing") as progress:
            tables = back_up(engine, file, now=dt.datetime.now(dt.UTC), progress=progress)
    finally:
        engine.dispose()
    _print_tables(tables, as_json=as_json)


@db.command()
@click.argument("file", type=_BACKUP_FILE)
@json_option
def restore(file: Path, *, as_json: bool) -> None:
    """Fill the farm's store, which must be empty or absent, from a backup.

    FILE is only read, and may be of an older version: a copy of it is upgraded, or converted as
    `farm db convert` does. Start scheduler, collector and web server afterwards; agents need not be
    stopped. --json as for backup.
    """
    from farm.store.engine import make_engine, redacted
    from farm.store.maintenance.backup import restore as restore_store

    loaded = settings()
    engine = make_engine(loaded.database_url)
    try:
        with row_bar("restoring") as progress:
            tables = restore_store(file, engine, now=dt.datetime.now(dt.UTC), progress=progress)
    finally:
        engine.dispose()
    _print_tables(tables, as_json=as_json)
    if not as_json:
        click.echo(f"{redacted(loaded.database_url)} holds what {file} held")


def _print_tables(tables: list[CopiedTable], *, as_json: bool) -> None:
    """Say what a copy holds, table by table."""
    if as_json:
        print_json({"tables": [dataclasses.asdict(table) for table in tables]})
        return
    columns = [Column("table"), Column("rows", is_right=True), Column("checksum")]
    print_table(columns, [[t.name, str(t.row_count), t.checksum] for t in tables])


class Age(click.ParamType[dt.timedelta]):
    """A whole number with its unit, within bounds: 90s, 15m, 12h, 30d, 8w."""

    name = "AGE"

    def __init__(self, low: str, high: str) -> None:
        self._expected = f"a whole number with s, m, h, d or w, from {low} to {high}"
        self._low, self._high = parse_age(low), parse_age(high)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dt.timedelta:
        if isinstance(value, dt.timedelta):
            return value
        try:
            age = parse_age(str(value))
        except (ValueError, OverflowError):
            age = None
        if age is None or not self._low <= age <= self._high:
            self.fail(f"expected {self._expected}, got {value!r}", param, ctx)
        return age


def parse_age(text: str) -> dt.timedelta:
    """Parse an age. Raises ValueError or OverflowError for an invalid one."""
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(text)
    return dt.timedelta(seconds=int(found[1]) * _AGE_UNITS_S[found[2]])


@db.command()
@click.option(
    "--thin-after", type=Age("1d", _OLDEST_AGE), help="Thin samples that are older, as 30d."
)
@click.option(
    "--thin-to", type=Age("2s", "1h"), default="10s", show_default=True, help="One row for each."
)
@click.option(
    "--drop-after",
    type=Age("1d", _OLDEST_AGE),
    help="Drop older samples, logs, reports, messages; as 365d.",
)
@click.option(
    "--queues-after", type=Age("1d", _OLDEST_AGE), help="Empty queues of agents silent for longer."
)
@click.option("--late-reports", is_flag=True, help="Drop all rejected reports, however new.")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@json_option
def prune(
    *,
    thin_after: dt.timedelta | None,
    thin_to: dt.timedelta,
    drop_after: dt.timedelta | None,
    queues_after: dt.timedelta | None,
    late_reports: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Thin or drop old data, or only list it.

    Without an age nothing is changed: it prints what the default retention would do.

    Thinned samples become means, and peaks for memory. Measurements, step times, epochs and the
    history of jobs are never deleted, nor is anything of an active attempt. Safe while the farm
    runs. --json prints the counts of what was, or would be, deleted.
    """
    from farm.store.engine import writing
    from farm.store.maintenance.prune import Retention, plan_prune
    from farm.store.maintenance.prune import prune as prune_store
    from farm.store.sweeps.bundles import remove_unused

    is_asked = any((thin_after, drop_after, queues_after, late_reports))
    if not is_asked:
        thin_after, drop_after = parse_age(_DEFAULT_THIN_AFTER), parse_age(_DEFAULT_DROP_AFTER)
    if thin_after and drop_after and thin_after >= drop_after:
        raise InvalidSpec(
            "--thin-after", f"{thin_after.days}d", f"less than --drop-after {drop_after.days}d"
        )
    retention = Retention(
        thin_after=thin_after,
        thin_to_ticks=int(thin_to.total_seconds()),
        drop_after=drop_after,
        drop_late_reports=late_reports,
    )
    is_done = is_asked and not dry_run
    loaded, now = settings(), dt.datetime.now(dt.UTC)
    with store(loaded) as engine:
        plan = plan_prune(engine, retention, now=now)
        silent = _silent_agents(engine, now, queues_after)
        purged = 0
        if is_done:
            with row_bar("pruning") as progress:
                prune_store(engine, plan, progress=progress)
            with writing(engine) as session:
                remove_unused(session, now=now)
            purged = _purge(loaded, silent)
    if as_json:
        print_json(_pruned_json(plan, silent, purged_count=purged, is_done=is_done))
        return
    _print_pruned(plan, silent, purged_count=purged, is_done=is_done)
    if queues_after is not None and not silent:
        click.echo(f"no agent has been silent for {queues_after.days} days: no queue to empty")
    if not is_asked:
        click.echo(
            f"Nothing was changed. To do it: farm db prune --thin-after {_DEFAULT_THIN_AFTER} "
            f"--thin-to {retention.thin_to_ticks}s --drop-after {_DEFAULT_DROP_AFTER}"
        )


def _silent_agents(
    engine: sa.Engine, now: dt.datetime, silence: dt.timedelta | None
) -> tuple[str, ...]:
    from farm.store.engine import reading
    from farm.store.maintenance.prune import silent_agents

    if silence is None:
        return ()
    with reading(engine) as session:
        return tuple(silent_agents(session, before=now - silence))


def _purge(loaded: Settings, agent_ids: tuple[str, ...]) -> int:
    """Empty the queues; should an agent come back, the scheduler sends again what is due."""
    from farm.broker.celery_app import agent_queue
    from farm.broker.sending import Sender

    if not agent_ids:
        return 0
    sender = Sender(loaded.broker_url)
    return sum(sender.purge(agent_queue(agent_id)) for agent_id in agent_ids)


def _pruned_json(
    plan: PrunePlan, silent: tuple[str, ...], *, purged_count: int, is_done: bool
) -> dict[str, object]:
    """Return what went or, `is_done` false, would go."""
    return {
        "is_done": is_done,
        "dropped_sample_count": plan.dropped_sample_count,
        "dropped_partitions": [day.isoformat() for day in plan.partitions],
        "thinned_sample_count": plan.thinned_sample_count,
        "late_report_count": plan.late_report_count,
        "spool_position_count": plan.spool_position_count,
        "log_part_count": plan.log_part_count,
        "notification_count": plan.notification_count,
        "imported_sample_count": plan.imported_sample_count,
        "silent_agents": list(silent),
        "purged_message_count": purged_count,
    }


def _print_pruned(
    plan: PrunePlan, silent: tuple[str, ...], *, purged_count: int, is_done: bool
) -> None:
    verb, retention = "" if is_done else "would be ", plan.retention
    if retention.drop_after is not None:
        days = f", {len(plan.partitions)} whole days" if plan.partitions else ""
        click.echo(f"older than {retention.drop_after.days} days, {verb}dropped:")
        click.echo(f"  {plan.dropped_sample_count} samples{days}")
        click.echo(f"  {plan.imported_sample_count} samples of other farms, imported as long ago")
        click.echo(f"  {plan.log_part_count} parts of logs")
        click.echo(f"  {plan.spool_position_count} positions of spools long replaced or gone")
        click.echo(f"  {plan.notification_count} notifications, delivered or given up")
    if retention.drop_late_reports or retention.drop_after is not None:
        age = "" if retention.drop_late_reports else " as old"
        click.echo(f"late reports{age} {verb}dropped: {plan.late_report_count}")
    if retention.thin_after is not None:
        click.echo(
            f"older than {retention.thin_after.days} days, {verb}thinned to a row for "
            f"{retention.thin_to_ticks} s: {plan.thinned_sample_count} samples fewer"
        )
    if silent:
        count = f" of {purged_count} messages" if is_done else ""
        click.echo(f"queues {verb}emptied{count}: {', '.join(silent)}")
