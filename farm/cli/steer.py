"""`farm cancel` and `farm retry`, of a whole sweep or of one job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import click
from sqlalchemy.orm import Session

from farm.cli.output import json_option, print_json
from farm.cli.session import JOB_ID, ring, settings, store
from farm.store.engine import writing
from farm.store.jobs import request_cancel_job, request_cancel_sweep, retry_failed, retry_job
from farm.store.sweeps import find_sweep

_sweep_argument = click.argument("sweep", required=False)
_job_option = click.option("--job", "job_id", type=JOB_ID, metavar="ID", help="Only this job.")


@click.command()
@_sweep_argument
@_job_option
@json_option
def cancel(sweep: str | None, *, job_id: int | None, as_json: bool) -> None:
    """Cancel what a SWEEP (its id or name) has not finished, or one job.

    A running job ends within seconds; what was measured stays. --json prints cancelled_count.
    """

    def change(session: Session, now: dt.datetime) -> int:
        if job_id is not None:
            return int(request_cancel_job(session, job_id, now=now))
        return request_cancel_sweep(session, find_sweep(session, sweep or "").id, now=now)

    count = _change(sweep, job_id, change)
    if as_json:
        print_json({"cancelled_count": count})
    else:
        click.echo(f"{count} jobs cancelled")


@click.command()
@_sweep_argument
@_job_option
@json_option
def retry(sweep: str | None, *, job_id: int | None, as_json: bool) -> None:
    """Run the failed and cancelled jobs of a SWEEP (its id or name) again, or one job.

    --json prints retried_count.
    """

    def change(session: Session, now: dt.datetime) -> int:
        if job_id is not None:
            retry_job(session, job_id, now=now)
            return 1
        return retry_failed(session, find_sweep(session, sweep or "").id, now=now)

    count = _change(sweep, job_id, change)
    if as_json:
        print_json({"retried_count": count})
    else:
        click.echo(f"{count} jobs wait again")


def _change(
    sweep: str | None, job_id: int | None, change: Callable[[Session, dt.datetime], int]
) -> int:
    if (sweep is None) == (job_id is None):
        raise click.UsageError("give either a SWEEP or --job ID")
    loaded = settings()
    with store(loaded) as engine, writing(engine) as session:
        count = change(session, dt.datetime.now(dt.UTC))
    ring(loaded)
    return count
