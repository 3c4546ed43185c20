"""`farm cancel` and `farm retry`, of a sweep or of one job; `farm pause` and `farm resume`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import click
from sqlalchemy.orm import Session

from farm.cli.output import json_option, print_json
from farm.cli.session import JOB_ID, settings, store, wake_scheduler
from farm.configuration.sweep import BUDGET, parse_budget
from farm.store.engine import writing
from farm.store.sweeps.jobs import request_cancel_job, request_cancel_sweep, retry_failed, retry_job
from farm.store.sweeps.sweeps import find_sweep, pause_sweep, resume_sweep
from farm.text.plurals import counted

_REQUESTED_BY = "the command line"  # as the stories of jobs tell who did
_sweep_argument = click.argument("sweep", required=False)
_job_option = click.option("--job", "job_id", type=JOB_ID, metavar="ID", help="Only this job.")


@click.command()
@_sweep_argument
@_job_option
@json_option
def cancel(sweep: str | None, *, job_id: int | None, as_json: bool) -> None:
    """Cancel the unfinished jobs of a SWEEP (its id or name), or one job.

    A running job ends within seconds; what was measured stays. --json prints id, of the sweep or
    the job, and cancelled_count.
    """

    row_id, count = _change(
        sweep, job_id, change_job=request_cancel_job, change_sweep=request_cancel_sweep
    )
    if as_json:
        print_json({"id": row_id, "cancelled_count": count})
    else:
        click.echo(f"{counted(count, 'job')} cancelled")


@click.command()
@_sweep_argument
@_job_option
@json_option
def retry(sweep: str | None, *, job_id: int | None, as_json: bool) -> None:
    """Run the failed and cancelled jobs of a SWEEP (its id or name) again, or one job.

    --json prints id, of the sweep or the job, and retried_count.
    """

    row_id, count = _change(sweep, job_id, change_job=retry_job, change_sweep=retry_failed)
    if as_json:
        print_json({"id": row_id, "retried_count": count})
    else:
        click.echo(f"{counted(count, 'job waits', 'jobs wait')} again")


@click.command()
@click.argument("sweep")
@json_option
def pause(sweep: str, *, as_json: bool) -> None:
    """Start no further job of a SWEEP (its id or name). Running jobs continue.

    --json prints id, is_paused and changed: false where it was paused already.
    """
    _hold_or_resume(sweep, pause_sweep, is_paused=True, as_json=as_json)


@click.command()
@click.argument("sweep")
@click.option(
    "--budget-machine-hours",
    type=float,
    help="New budget, above what is spent; needed once the old one is used up.",
)
@json_option
def resume(sweep: str, *, budget_machine_hours: float | None, as_json: bool) -> None:
    """Resume a SWEEP (its id or name) that is paused or over budget.

    --json prints id, is_paused and changed: false where it was neither, and has no new budget.
    """
    given = {} if budget_machine_hours is None else {BUDGET: budget_machine_hours}
    budget_s = parse_budget(given)

    def change(session: Session, sweep_id: int) -> bool:
        now = dt.datetime.now(dt.UTC)
        return resume_sweep(session, sweep_id, budget_machine_s=budget_s, now=now)

    _hold_or_resume(sweep, change, is_paused=False, as_json=as_json)


def _hold_or_resume(
    sweep: str, change: Callable[[Session, int], bool], *, is_paused: bool, as_json: bool
) -> None:
    loaded = settings()
    with store(loaded) as engine, writing(engine) as session:
        sweep_id = find_sweep(session, sweep).id
        has_changed = change(session, sweep_id)
    wake_scheduler(loaded)
    if as_json:
        # `sweep_id` is the former name of `id`, until 0.2.0.
        answer = {"id": sweep_id, "sweep_id": sweep_id}
        print_json({**answer, "is_paused": is_paused, "changed": has_changed})
    else:
        already = "" if has_changed else " already"
        click.echo(f"sweep {sweep_id} {'is paused' if is_paused else 'goes on'}{already}")


def _change(
    sweep: str | None,
    job_id: int | None,
    *,
    change_job: Callable[..., bool | None],
    change_sweep: Callable[..., int],
) -> tuple[int, int]:
    """Change a job or a sweep; return its id and the number of changed jobs.

    `change_job` returns False if there was nothing to do.
    """
    if (sweep is None) == (job_id is None):
        raise click.UsageError("give either a SWEEP or --job ID")
    loaded = settings()
    options = {"now": dt.datetime.now(dt.UTC), "by": _REQUESTED_BY}
    with store(loaded) as engine, writing(engine) as session:
        if job_id is not None:
            row_id, count = job_id, int(change_job(session, job_id, **options) is not False)
        else:
            row_id = find_sweep(session, sweep or "").id
            count = change_sweep(session, row_id, **options)
    wake_scheduler(loaded)
    return row_id, count
