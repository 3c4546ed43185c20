"""`farm jobs` and `farm job`: the list of jobs, and the history of one; why jobs wait."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Collection, Mapping, Sequence

import click
from sqlalchemy.orm import Session

from farm.broker.health_records import find_idle_reason
from farm.cells.result_table import axis_column
from farm.cli.output import json_option, print_json, print_table, to_stderr
from farm.cli.session import JOB_ID, settings, stopped_farm, store
from farm.configuration.axes import REQUIRED_AXES
from farm.configuration.spec import spec_json
from farm.gang.lifecycle import JobState
from farm.gang.snapshots import LiveAgent
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.base import Table
from farm.store.engine import reading
from farm.store.measurements.measurements import flags_by_job, measurement_json
from farm.store.queue.waiting_reasons import WaitingReason, waiting_reasons
from farm.store.sweeps.jobs import JobDetail, job_detail, list_jobs
from farm.store.sweeps.sweeps import find_sweep
from farm.store.tables import JobRow
from farm.text import display
from farm.text.columns import Column
from farm.text.log_text import one_line

_MARK = "!"  # beside what was disturbed

_JOB_COLUMNS = (
    Column("job", is_right=True),
    Column("sweep", is_right=True),
    Column("state"),
    Column("attempts", is_right=True),
    *map(axis_column, REQUIRED_AXES),
    Column("repetition", is_right=True),
    Column("reason"),
)


@click.command()
@click.option("--sweep", help="Only of this sweep: its id or name.")
@click.option("--state", type=click.Choice([s.value for s in JobState]), help="Only in this state.")
@click.option("--after", type=click.IntRange(0, JOB_ID.max), help="Go on after this job id.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@json_option
def jobs(
    *, sweep: str | None, state: str | None, after: int | None, limit: int, as_json: bool
) -> None:
    """List jobs by id.

    A disturbed measurement has a mark, and the reason is below. --json prints items, one for each
    job with the columns of the store and flags, what disturbed its measurement, and next: what to
    give to --after for the next page, or null.
    """
    with store(settings()) as engine, reading(engine) as session:
        found = list_jobs(
            session,
            sweep_id=None if sweep is None else find_sweep(session, sweep).id,
            state=None if state is None else JobState(state),
            after_id=after,
            limit=limit + 1,
        )
        shown = found[:limit]
        flags = flags_by_job(session, [job.id for job in shown])
    next_id = shown[-1].id if len(found) > limit else None
    if as_json:
        items = [{**job_json(job), "flags": flags.get(job.id, [])} for job in shown]
        print_json({"items": items, "next": next_id})
        return
    print_table(_JOB_COLUMNS, [_job_cells(job, flags.get(job.id)) for job in shown])
    for job in shown:
        for flag in flags.get(job.id, ()):
            message = one_line(flag["message"])
            click.echo(f"{_MARK} job {job.id} was disturbed: {message}")
    if next_id is not None:
        to_stderr(f"there are more; go on with --after {next_id}")


@click.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
def job(job_id: int, *, as_json: bool) -> None:
    """Show one job: its attempts, their ranks, every change and the measurement.

    --json prints what GET /api/v1/jobs/ID answers, and the other columns of the store. (job and
    events are former names.)
    """
    loaded = settings()
    with store(loaded) as engine, reading(engine) as session:
        detail = job_detail(session, job_id)
        is_waiting = detail.job.state is JobState.WAITING
        found = why_jobs_wait(session, loaded).get(job_id) if is_waiting else None
        why = None if found is None else found.text
    if as_json:
        print_json({**_detail_json(detail), "waits_because": why})
        return
    flags = detail.measurement.flags if detail.measurement is not None else None
    print_table(_JOB_COLUMNS, [_job_cells(detail.job, flags)])
    if why is not None:
        click.echo(f"waits: {why}")
    click.echo()
    print_table(
        (Column("attempt", is_right=True), Column("state"), Column("agents"), Column("reason")),
        _attempt_cells(detail),
    )
    click.echo()
    for event in detail.events:
        token = "" if event.attempt_id is None else f" [{event.attempt_id}]"
        reason = "" if event.reason is None else f": {one_line(event.reason)}"
        click.echo(f"{display.clock(event.at)}{token} {event.event}{reason}")
    if detail.measurement is not None:
        click.echo()
        for name, value in row_json(detail.measurement, without=("details", "flags")).items():
            if value is not None:
                mark = f" {_MARK}" if flags and name == "step_time_s" else ""
                click.echo(f"{name} = {one_line(str(value))}{mark}")
    for flag in flags or ():
        click.echo(f"{_MARK} disturbed: {one_line(flag['message'])}")


def _job_cells(row: JobRow, flags: Sequence[object] | None) -> list[str]:
    is_ending = row.cancel_requested and row.attempt_id is not None
    state = "cancelling" if is_ending else row.state.value
    return [
        str(row.id),
        str(row.sweep_id),
        f"{state} {_MARK}" if flags else state,
        str(row.attempt_count),
        *(str(getattr(row, axis.field)) for axis in REQUIRED_AXES),
        str(row.repetition),
        display.text(row.reason),
    ]


def _attempt_cells(detail: JobDetail) -> Sequence[list[str]]:
    return [
        [
            str(entry.attempt.number),
            entry.attempt.state.value,
            ", ".join(rank.agent_id for rank in entry.ranks),
            display.text(entry.attempt.reason),
        ]
        for entry in detail.attempts
    ]


def _detail_json(detail: JobDetail) -> dict[str, object]:
    story = [row_json(event) for event in detail.events]
    job = job_json(detail.job)
    return {
        **job,
        "job": job,  # where the job was, until 0.2.0
        "sweep_name": detail.sweep_name,
        "attempts": [
            {**row_json(entry.attempt), "ranks": [row_json(rank) for rank in entry.ranks]}
            for entry in detail.attempts
        ],
        "story": story,
        "events": story,  # the former name, until 0.2.0
        "measurement": None if detail.measurement is None else measurement_json(detail.measurement),
    }


def row_json(row: Table, *, without: tuple[str, ...] = ()) -> dict[str, object]:
    """Return a stored row by its columns."""
    names = (column.key for column in type(row).__table__.columns)
    return {name: getattr(row, name) for name in names if name not in without}


def job_json(row: JobRow) -> dict[str, object]:
    """Return a stored job by its columns."""
    return {**row_json(row), "spec": spec_json(row.spec)}


def why_jobs_wait(
    session: Session, loaded: Settings, *, agents: Collection[LiveAgent] | None = None
) -> Mapping[int, WaitingReason]:
    """Say of every job that waits why, the first in the queue first.

    `agents`: those alive, where the caller has read them. The broker is asked for a scheduler where
    a job could start: without one it never would.
    """
    now = dt.datetime.now(dt.UTC)
    if agents is None:
        is_stopped = stopped_farm(loaded) is not None
        agents = () if is_stopped else live_agents(session, now=now, live_within_s=loaded.lease_s)
    return waiting_reasons(
        session,
        now=now,
        agents=agents,
        reserve_after_s=loaded.reserve_after_s,
        policy=loaded.retry_policy,
        idle_reason=functools.partial(find_idle_reason, loaded.broker_url),
    )
