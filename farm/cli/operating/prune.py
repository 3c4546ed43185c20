"""`farm db prune`: drop or thin what is old. Nothing goes that was not asked for."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from typing import TYPE_CHECKING

import click

from farm.cli.operating.row_bar import row_bar
from farm.cli.output import json_option, print_json
from farm.cli.session import settings, store
from farm.errors import InvalidSpec

# Ages on a command line: 90s, 15m, 12h, 30d, 8w.


_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Age(click.ParamType[dt.timedelta]):
    """A whole number with its unit, within bounds."""

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
    """Read an age. Raises ValueError or OverflowError for what is none."""
    found = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise ValueError(text)
    return dt.timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])


if TYPE_CHECKING:
    import sqlalchemy as sa

    from farm.settings.server import Settings
    from farm.store.maintenance.retention import PrunePlan, Retention

# What is shown where nothing is asked for, and what the systemd unit asks for.
DEFAULT_THIN_AFTER, DEFAULT_DROP_AFTER = "30d", "365d"
_OLDEST = "36500d"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What went or, `is_done` false, would go."""

    is_done: bool
    dropped_sample_count: int
    dropped_partitions: tuple[str, ...]
    thinned_sample_count: int
    late_report_count: int
    spool_position_count: int
    log_part_count: int
    silent_agents: tuple[str, ...]
    purged_message_count: int


@click.command()
@click.option("--thin-after", type=Age("1d", _OLDEST), help="Thin samples that are older, as 30d.")
@click.option(
    "--thin-to", type=Age("2s", "1h"), default="10s", show_default=True, help="One row for each."
)
@click.option(
    "--drop-after",
    type=Age("1d", _OLDEST),
    help="Drop older samples, logs, late reports and spool positions, as 365d.",
)
@click.option(
    "--queues-after", type=Age("1d", _OLDEST), help="Empty queues of agents silent for longer."
)
@click.option(
    "--late-reports", is_flag=True, help="Drop all reports that did not count, however new."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
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
    """Thin or drop what is old, or only say what.

    Without an age nothing is changed: it says what the default retention would do.

    Thinned samples become means, memory the peak. Measurements, step times, epochs and the story
    of jobs stay for good, and so does all of an attempt that is active. Safe while the farm runs.
    --json prints what went, or would go, as counts.
    """
    from farm.store.maintenance.prune import prune as prune_store
    from farm.store.maintenance.retention import Retention, plan_prune

    is_asked = any((thin_after, drop_after, queues_after, late_reports))
    if not is_asked:
        thin_after, drop_after = parse_age(DEFAULT_THIN_AFTER), parse_age(DEFAULT_DROP_AFTER)
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
    loaded, now = settings(), dt.datetime.now(dt.UTC)
    with store(loaded) as engine:
        plan = plan_prune(engine, retention, now=now)
        silent = _silent_agents(engine, now, queues_after)
        purged = 0
        if is_asked and not dry_run:
            with row_bar("pruning") as progress:
                prune_store(engine, plan, progress=progress)
            purged = _purge(loaded, silent)
    pruned = _pruned(plan, silent, purged_count=purged, is_done=is_asked and not dry_run)
    if as_json:
        print_json(dataclasses.asdict(pruned))
    else:
        _print(pruned, retention, queues_after=queues_after, is_asked=is_asked)


def _silent_agents(
    engine: sa.Engine, now: dt.datetime, silence: dt.timedelta | None
) -> tuple[str, ...]:
    from farm.store.engine import reading
    from farm.store.maintenance.retention import silent_agents

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


def _pruned(
    plan: PrunePlan, silent: tuple[str, ...], *, purged_count: int, is_done: bool
) -> Pruned:
    return Pruned(
        is_done=is_done,
        dropped_sample_count=plan.dropped_sample_count,
        dropped_partitions=tuple(day.isoformat() for day in plan.partitions),
        thinned_sample_count=plan.thinned_sample_count,
        late_report_count=plan.late_report_count,
        spool_position_count=plan.spool_position_count,
        log_part_count=plan.log_part_count,
        silent_agents=silent,
        purged_message_count=purged_count,
    )


def _print(
    pruned: Pruned, retention: Retention, *, queues_after: dt.timedelta | None, is_asked: bool
) -> None:
    verb = "" if pruned.is_done else "would be "
    if retention.drop_after is not None:
        days = f", {len(pruned.dropped_partitions)} whole days" if pruned.dropped_partitions else ""
        click.echo(f"older than {retention.drop_after.days} days, {verb}dropped:")
        click.echo(f"  {pruned.dropped_sample_count} samples{days}")
        click.echo(f"  {pruned.log_part_count} parts of logs")
        click.echo(f"  {pruned.spool_position_count} positions of spools long replaced or gone")
    if retention.drop_late_reports or retention.drop_after is not None:
        age = "" if retention.drop_late_reports else " as old"
        click.echo(f"late reports{age} {verb}dropped: {pruned.late_report_count}")
    if retention.thin_after is not None:
        click.echo(
            f"older than {retention.thin_after.days} days, {verb}thinned to a row for "
            f"{retention.thin_to_ticks} s: {pruned.thinned_sample_count} samples fewer"
        )
    if pruned.silent_agents:
        names = ", ".join(pruned.silent_agents)
        count = f" of {pruned.purged_message_count} messages" if pruned.is_done else ""
        click.echo(f"queues {verb}emptied{count}: {names}")
    elif queues_after is not None:
        click.echo(f"no agent has been silent for {queues_after.days} days: no queue to empty")
    if not is_asked:
        click.echo(
            f"Nothing was changed. To do it: farm db prune --thin-after {DEFAULT_THIN_AFTER} "
            f"--thin-to {retention.thin_to_ticks}s --drop-after {DEFAULT_DROP_AFTER}"
        )
