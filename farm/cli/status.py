"""`farm status`: the sweeps and why jobs wait; or one sweep and what it measured."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path

import click
from sqlalchemy.orm import Session

from farm.cli import cells
from farm.cli.accuracy import accurate_cells, print_accurate_cells
from farm.cli.agents import troubles
from farm.cli.measured import measured_cells
from farm.cli.output import Column, json_option, print_json, print_table
from farm.cli.price_options import prices_option, region_option
from farm.cli.ranges import Real
from farm.cli.results import print_cells
from farm.cli.rows import sweep_json
from farm.cli.session import settings, store
from farm.cli.watch import SweepWatch, summary_line
from farm.config import Settings
from farm.core.cells import SweepCells
from farm.core.lifecycle import JobState
from farm.core.precision import Target
from farm.core.scheduling import explain
from farm.recommend.prices import load_prices
from farm.store.accuracy_curves import learning_curves
from farm.store.agents import list_agents, live_agents
from farm.store.engine import reading
from farm.store.gangs import gangs_at_work
from farm.store.jobs import list_jobs
from farm.store.measurements import Filter, list_measurements
from farm.store.repetitions import sweep_cells
from farm.store.sweeps import find_sweep, list_sweeps
from farm.store.waiting import waiting_jobs

_SWEEPS_SHOWN = 20
_REASONS_SHOWN = 5
_MAX_MEASUREMENTS = 100_000
_MAX_JOBS = 100_000
_MAX_AGENTS = 100_000


@click.command()
@click.argument("sweep", required=False)
@click.option(
    "--target-accuracy",
    type=Real(0, 1),
    help="For one SWEEP: how long its trainings took to get so accurate, a ratio, and the cost.",
)
@prices_option
@region_option
@json_option
def status(
    sweep: str | None,
    *,
    target_accuracy: float | None,
    prices_file: Path | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Show the latest sweeps, or one SWEEP (its id or name), and why its first jobs wait.

    --json prints sweeps, alive_agent_count and waiting (job_id and reason of the first jobs that
    cannot start now); for one sweep instead: sweep, remaining_s, waiting (of its jobs), measured,
    one entry a cell and kind of hardware, and cells, machine_s and machine_hours_saved; with
    --target-accuracy also accurate, one entry for each cell that was trained by epochs.
    """
    if sweep is None and target_accuracy is not None:
        raise click.UsageError("--target-accuracy needs a SWEEP")
    loaded = settings()
    with store(loaded) as engine:
        if sweep is None:
            with reading(engine) as session:
                _print_all(session, loaded, as_json=as_json)
            return
        with reading(engine) as session:
            sweep_id = find_sweep(session, sweep).id
            reasons = _waiting(session, loaded, sweep_id=sweep_id)
            rows = list_measurements(session, Filter(sweep_id=sweep_id), limit=_MAX_MEASUREMENTS)
            found = sweep_cells(session, sweep_id)
            ids = {row.attempt_id for row in rows if row.attempt_id is not None and row.epochs}
            curves = learning_curves(session, ids if target_accuracy is not None else ())
        snapshot = SweepWatch(engine, sweep_id, settings=loaded).look()
    measured = measured_cells(rows, _targets(found))
    accurate = None
    if target_accuracy is not None:
        prices = load_prices(prices_file or loaded.prices, region=region).usd_per_hour
        accurate = accurate_cells(
            rows, curves, target_accuracy_ratio=target_accuracy, prices_usd_per_hour=prices
        )
    if as_json:
        print_json(
            {
                "sweep": sweep_json(snapshot.summary),
                "remaining_s": snapshot.remaining_s,
                "waiting": reasons[:_REASONS_SHOWN],
                "measured": measured,
                **({} if accurate is None else {"accurate": accurate}),
                **found.to_json(),
            }
        )
        return
    click.echo(f"sweep {sweep_id} {snapshot.summary.name}: {summary_line(snapshot)}")
    if snapshot.summary.counts[JobState.WAITING]:
        _print_reasons(reasons)
    if measured:
        print_cells(measured)
    if accurate is not None and target_accuracy is not None:
        print_accurate_cells(accurate, target_accuracy)
    if found.machine_s:
        click.echo(_machine_time(found))


def _targets(found: SweepCells) -> dict[int, Target]:
    return {
        repetition.job_id: cell.statistics.target
        for cell in found.cells
        for repetition in cell.repetitions
        if cell.statistics.target is not None
    }


def _machine_time(found: SweepCells) -> str:
    text = f"machine time: {cells.duration(found.machine_s)}"
    saved = found.saving
    if saved is None:
        return text
    return (
        f"{text}; {saved.fixed_repetitions} repetitions of every cell would have taken "
        f"{cells.duration(saved.fixed_machine_s)} for the same precision"
    )


def _print_all(session: Session, loaded: Settings, *, as_json: bool) -> None:
    sweeps = list_sweeps(session, limit=_SWEEPS_SHOWN)
    now = dt.datetime.now(dt.UTC)
    alive_count = len(live_agents(session, now=now, live_within_s=loaded.lease_s))
    reasons = _waiting(session, loaded)
    if as_json:
        print_json(
            {
                "sweeps": [sweep_json(summary) for summary in sweeps],
                "alive_agent_count": alive_count,
                "waiting": reasons[:_REASONS_SHOWN],
            }
        )
        return
    counted = tuple(Column(state.value, is_right=True) for state in JobState)
    columns = (
        Column("sweep", is_right=True),
        Column("name"),
        Column("state"),
        *counted,
        Column("submitted"),
    )
    rows = [
        [
            str(summary.sweep_id),
            summary.name,
            summary.status.value,
            *(str(summary.counts[state]) for state in JobState),
            cells.instant(summary.created_at),
        ]
        for summary in sweeps
    ]
    print_table(columns, rows)
    click.echo(f"{alive_count} agents alive")
    agents = list_agents(session, limit=_MAX_AGENTS)
    for line in troubles(agents, now=now, within_s=loaded.lease_s):
        click.echo(line)
    _print_reasons(reasons)


def _waiting(
    session: Session, loaded: Settings, *, sweep_id: int | None = None
) -> list[dict[str, object]]:
    """Say of the jobs that cannot start now why, the first in the queue first.

    All waiting jobs count, as they do for the scheduler; `sweep_id` narrows only the answer.
    """
    now = dt.datetime.now(dt.UTC)
    jobs = waiting_jobs(session, now=now)
    agents = live_agents(session, now=now, live_within_s=loaded.lease_s)
    gangs = gangs_at_work(session, now=now)
    reasons = explain(jobs, agents, reserve_after_s=loaded.reserve_after_s, gangs=gangs)
    position = {job.job_id: place for place, job in enumerate(jobs)}
    if sweep_id is not None:
        own = {job.id for job in list_jobs(session, sweep_id=sweep_id, limit=_MAX_JOBS)}
        reasons = {job_id: reason for job_id, reason in reasons.items() if job_id in own}
    ordered = sorted(reasons.items(), key=lambda item: position.get(item[0], math.inf))
    return [{"job_id": job_id, "reason": reason} for job_id, reason in ordered]


def _print_reasons(reasons: list[dict[str, object]]) -> None:
    for entry in reasons[:_REASONS_SHOWN]:
        click.echo(f"job {entry['job_id']}: {entry['reason']}")
    if len(reasons) > _REASONS_SHOWN:
        click.echo(f"and {len(reasons) - _REASONS_SHOWN} more jobs wait")
