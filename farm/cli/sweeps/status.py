"""`farm status`: lists sweeps and reasons why jobs wait, or shows one sweep's results."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from sqlalchemy.orm import Session

from farm.cells.accurate_cells import AccurateCell, accurate_cells
from farm.cells.json_forms import CellSummary, SweepCells, results_json
from farm.cells.reading import first_cells, read_sweep
from farm.cells.result_table import naming_columns
from farm.cells.table import CellLine
from farm.cli.advice.questions import prices_option, prices_or_none, region_option
from farm.cli.operating.agents import troubles
from farm.cli.output import json_option, print_json, print_table
from farm.cli.ranges import Real
from farm.cli.session import settings, stopped_farm, store
from farm.cli.sweeps.jobs import why_jobs_wait
from farm.cli.sweeps.results import print_answers, print_cells
from farm.cli.sweeps.watch import SweepWatch, summary_line
from farm.configuration.expansion import MAX_JOBS
from farm.configuration.spec import spec_json
from farm.gang.lifecycle import JobState
from farm.recommend.sweeps.answers import MOST_ANSWERS, answers_for
from farm.settings.server import Settings
from farm.store.agents.agent_status import is_alive
from farm.store.agents.agents import list_agents
from farm.store.engine import reading
from farm.store.measurements.trained_cells import trained_cells
from farm.store.queue.waiting_reasons import (
    ABOUT_TO_START,
    WAITS_FOR_AGENTS,
    WaitingReason,
    group_reasons,
    missing_agents,
)
from farm.store.sweeps.budgets import spent_machine_s
from farm.store.sweeps.sweeps import SweepSummary, find_sweep, list_sweeps
from farm.text import display
from farm.text.columns import Column
from farm.text.log_text import one_line
from farm.text.plurals import counted

_SWEEPS_SHOWN = 20
_REASONS_SHOWN = 5
_FORMERLY_SHOWN = (
    *("steps", "epochs", "warmup_steps", "warmup_step_count", "repeat", "time_limit_s"),
    *("emulator", "labels"),
)


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

    --json prints sweeps as the API does (sweep_id and counts are the former names of id and
    jobs_by_state), alive_agent_count, waiting (job_id and reason of the first jobs that
    cannot start now), waiting_count (all jobs that wait) and waiting_reasons (sweep_id, the first
    job_id, job_count and reason, for each sweep and reason); for one sweep instead what GET
    /api/v1/sweeps/ID answers, and these three of its jobs (sweep and measured have the sweep and
    its cells in their former form); with --target-accuracy also accurate, one entry for each cell
    that was trained by epochs.
    """
    if sweep is None and target_accuracy is not None:
        raise click.UsageError("--target-accuracy needs a SWEEP")
    loaded = settings()
    with store(loaded) as engine:
        if sweep is None:
            with reading(engine) as session:
                _print_all(session, loaded, as_json=as_json)
            return
        prices = prices_or_none(loaded, prices_file=prices_file, region=region)
        with reading(engine) as session:
            row = find_sweep(session, sweep)
            sweep_id = row.id
            now = dt.datetime.now(dt.UTC)
            spent_s = spent_machine_s(session, [sweep_id], now=now)[sweep_id]
            reasons = _waiting(session, loaded, sweep_id=sweep_id)
            read = read_sweep(session, sweep_id, prices=prices)
            found = first_cells(session, read)
            trained = (
                ()
                if target_accuracy is None
                else trained_cells(session, sweep_id, max_jobs=MAX_JOBS).cells
            )
            answers = answers_for(session, sweep_id, most=MOST_ANSWERS)
        snapshot = SweepWatch(engine, sweep_id, settings=loaded).look()
    lines = read.table.measured
    by_job = {one.job_id: line for line in lines for one in line.repetitions}
    by_hash = {cell.line.cell_hash: cell for cell in found.cells}
    accurate = accurate_cells(
        trained, target_ratio=target_accuracy, prices_usd_per_hour=prices.usd_per_hour
    )
    if as_json:
        print_json(
            {
                **snapshot.summary.to_json(),
                "sweep": _sweep_json(snapshot.summary),  # where it was, until 0.2.0
                "spec": row.spec,
                "skipped": row.skipped,
                "remaining_s": snapshot.remaining_s,
                "spent_machine_s": spent_s,
                **_reasons_json(reasons),
                "measured": [measured_json(by_hash[line.cell_hash], line) for line in lines],
                "recommended": [found.to_json() for found in answers],
                **(
                    {}
                    if target_accuracy is None
                    else {"accurate": _accurate_json(accurate, by_job, by_hash)}
                ),
                **found.to_json(),
            }
        )
        return
    click.echo(f"sweep {sweep_id} {snapshot.summary.name}: {one_line(summary_line(snapshot))}")
    budget_s = snapshot.summary.budget_machine_s
    if budget_s is not None:
        click.echo(
            f"budget: {display.machine_hours(budget_s)}, {display.machine_hours(spent_s)} spent"
        )
    if snapshot.summary.counts[JobState.WAITING]:
        _print_reasons(reasons)
    if lines:
        print_cells(lines)
    print_answers(answers)
    if target_accuracy is not None:
        _print_accurate_cells(accurate, by_job, target_accuracy)
    if found.machine_s:
        _print_machine_time(found)


def _print_machine_time(found: SweepCells) -> None:
    text = f"machine time: {display.duration(found.machine_s)}"
    if (saved := found.saving) is not None:
        text += (
            f"; {counted(saved.fixed_repetitions, 'repetition')} of every cell would have "
            f"taken {display.duration(saved.fixed_machine_s)} for the same precision"
        )
    click.echo(text)


def measured_json(cell: CellSummary, line: CellLine) -> dict[str, object]:
    """Return a cell on one kind of hardware under its former names, until 0.2.0."""
    spec, target = spec_json(cell.spec), line.statistics.target
    return {
        **line.medians_by_name,
        **{name: spec.get(name) for name in _FORMERLY_SHOWN},
        "values": line.configuration.values,
        "target": target,
        **results_json(line),
        "step_time_s": line.median_s,
        "run_count": line.repetition_count,
    }


def _sweep_json(summary: SweepSummary) -> dict[str, object]:
    """Return a sweep as the API does, and two of its keys under their former names until 0.2.0."""
    written = summary.to_json()
    return {**written, "sweep_id": written["id"], "counts": written["jobs_by_state"]}


def _print_all(session: Session, loaded: Settings, *, as_json: bool) -> None:
    sweeps = list_sweeps(session, limit=_SWEEPS_SHOWN)
    now = dt.datetime.now(dt.UTC)
    agents = list_agents(session, limit=None)
    stopped = stopped_farm(loaded)
    lease_s = 0.0 if stopped else loaded.lease_s
    alive_count = sum(is_alive(agent, now=now, lease_s=lease_s) for agent in agents)
    reasons = _waiting(session, loaded)
    if as_json:
        print_json(
            {
                "sweeps": [_sweep_json(summary) for summary in sweeps],
                "alive_agent_count": alive_count,
                **_reasons_json(reasons),
            }
        )
        return
    states = tuple(Column(state.value, is_right=True) for state in JobState)
    columns = (
        Column("sweep", is_right=True),
        Column("name"),
        Column("state"),
        *states,
        Column("submitted"),
    )
    lacking = missing_agents(sweeps, reasons)
    rows = [
        [
            str(summary.sweep_id),
            summary.name,
            WAITS_FOR_AGENTS if summary.sweep_id in lacking else summary.status.text,
            *(str(summary.counts[state]) for state in JobState),
            display.clock(summary.created_at),
        ]
        for summary in sweeps
    ]
    print_table(columns, rows)
    click.echo(f"{counted(alive_count, 'agent')} alive")
    if stopped:
        click.echo(f"the farm of {stopped} does not run: start it with `farm up`")
    for line in troubles(agents, now=now, lease_s=lease_s):
        click.echo(one_line(line))
    _print_reasons(reasons)


def _waiting(
    session: Session, loaded: Settings, *, sweep_id: int | None = None
) -> dict[int, WaitingReason]:
    """Say of all jobs that wait why, the first in the queue first.

    All of them count, as they do for the scheduler; `sweep_id` narrows only the answer.
    """
    return {
        job_id: reason
        for job_id, reason in why_jobs_wait(session, loaded).items()
        if sweep_id is None or reason.sweep_id == sweep_id
    }


def _reasons_json(reasons: Mapping[int, WaitingReason]) -> dict[str, object]:
    held_up = ((i, reason) for i, reason in reasons.items() if reason.text != ABOUT_TO_START)
    return {
        "waiting": [
            {"job_id": job_id, "reason": reason.text}
            for job_id, reason in itertools.islice(held_up, _REASONS_SHOWN)
        ],
        "waiting_count": len(reasons),
        "waiting_reasons": group_reasons(reasons),
    }


def _print_reasons(reasons: Mapping[int, WaitingReason]) -> None:
    groups = [group for group in group_reasons(reasons) if group.reason != ABOUT_TO_START]
    for group in groups[:_REASONS_SHOWN]:
        more = group.job_count - 1
        also = f" (and {more} more of sweep {group.sweep_id})" if more else ""
        click.echo(f"job {group.job_id}: {one_line(group.reason)}{also}")
    if rest := sum(group.job_count for group in groups[_REASONS_SHOWN:]):
        click.echo(
            f"and {counted(rest, 'more job waits', 'more jobs wait')}; `farm status SWEEP` says why"
        )


def _accurate_json(
    found: Sequence[AccurateCell],
    by_job: Mapping[int, CellLine],
    by_hash: Mapping[str, CellSummary],
) -> list[object]:
    """Return the cells for programs. `by_job`: the lines of their jobs."""
    lines = [by_job[one.job_ids[0]] for one in found]
    return [
        {
            "cell": {
                **by_hash[line.cell_hash].to_json(),
                **measured_json(by_hash[line.cell_hash], line),
            },
            "repetition_count": one.reached.repetition_count,
            "run_count": one.reached.repetition_count,  # the former name, until 0.2.0
            "reached_count": one.reached.reached_count,
            "time_to_accuracy_s": one.reached.time_s,
            "epoch_count": one.reached.epoch_count,
            "cost_usd": one.cost_usd,
        }
        for one, line in zip(found, lines, strict=True)
        if one.reached is not None
    ]


def _print_accurate_cells(
    found: Sequence[AccurateCell], by_job: Mapping[int, CellLine], target_accuracy_ratio: float
) -> None:
    """Print a line for each, with a column in front for whatever else tells them apart."""
    if not found:
        click.echo("no cell was trained by epochs, with its accuracy after each")
        return
    reached = [one.reached for one in found if one.reached is not None]
    columns = [
        *naming_columns([by_job[one.job_ids[0]] for one in found]),
        (
            Column("reached", is_right=True),
            [f"{one.reached_count} of {one.repetition_count}" for one in reached],
        ),
        (
            Column("epochs to it", is_right=True),
            [display.decimal(one.epoch_count) for one in reached],
        ),
        (Column("time to it", is_right=True), [display.duration(one.time_s) for one in reached]),
        (Column("cost", is_right=True), [display.dollars(one.cost_usd) for one in found]),
    ]
    rows = [list(row) for row in zip(*(texts for _, texts in columns), strict=True)]
    title = f"to an accuracy of {display.percent(target_accuracy_ratio)}"
    print_table([column for column, _ in columns], rows, title=title)
