"""`farm check` and `farm baseline`: is a sweep slower than an earlier one?"""

from __future__ import annotations

import datetime as dt
from collections import Counter

import click

from farm.cells.comparison import CellPair, SweepComparison, Verdict, compare_sweeps
from farm.cells.json_forms import compared_json, states_json
from farm.cells.reading import read_sweep
from farm.cells.result_table import naming_columns, ratio_text
from farm.cells.table import CellLine
from farm.cli.advice.questions import prices_or_none
from farm.cli.output import json_option, print_json, print_table
from farm.cli.ranges import Real
from farm.cli.session import settings, store
from farm.cli.sweeps.watch import SweepWatch, patience_option, watch_to_end
from farm.gang.lifecycle import UNSUCCESSFUL_JOB_STATES, JobState
from farm.store.engine import reading, writing
from farm.store.sweeps.baselines import (
    find_baseline,
    list_baselines,
    remove_baseline,
    set_baseline,
)
from farm.store.sweeps.sweeps import SweepSummary, find_sweep, sweep_summary
from farm.text import display
from farm.text.columns import Column
from farm.text.plurals import counted

DEFAULT_NAME = "default"
_MISSING = "missing"  # a verdict on a cell that the baseline alone has
_name_option = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Name of the baseline."
)


@click.group()
def baseline() -> None:
    """Set the sweep that later ones are compared with."""


@baseline.command("set")
@click.argument("sweep")
@_name_option
def set_(sweep: str, *, name: str) -> None:
    """Make a SWEEP (its id or name) the baseline."""
    if not 0 < len(name) <= 64 or not name.isprintable():
        raise click.UsageError(f"--name: expected 1 to 64 printable characters, got {name!r:.80}")
    now = dt.datetime.now(dt.UTC)
    with store(settings()) as engine, writing(engine) as session:
        found = find_sweep(session, sweep)
        set_baseline(session, name, found.id, now=now)
        click.echo(f"baseline {name}: sweep {found.id}, {found.name}")


@baseline.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the baselines."""
    with store(settings()) as engine, reading(engine) as session:
        found = [(one.name, one.sweep_id, one.set_at) for one in list_baselines(session)]
    if as_json:
        names = ("name", "sweep_id", "set_at")
        print_json([dict(zip(names, one, strict=True)) for one in found])
    elif not found:
        click.echo("there is none; `farm baseline set SWEEP` makes one")
    else:
        columns = (Column("baseline"), Column("sweep", is_right=True), Column("set"))
        print_table(columns, [(name, str(id_), display.clock(at)) for name, id_, at in found])


@baseline.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget the baseline NAME. Its sweep stays."""
    with store(settings()) as engine, writing(engine) as session:
        remove_baseline(session, name)
    click.echo(f"baseline {name} is removed")


@click.command()
@click.argument("sweep")
@click.option(
    "--baseline",
    "name",
    default=DEFAULT_NAME,
    show_default=True,
    metavar="NAME",
    help="Baseline to compare it with.",
)
@click.option(
    "--tolerance",
    type=Real(0, 1000),
    default=0.0,
    metavar="PERCENT",
    help="Slowdown that is still accepted.",
)
@click.option("--allow-missing", is_flag=True, help="Accept missing cells of the baseline.")
@click.option("--wait", is_flag=True, help="Show progress until the SWEEP's last job is over.")
@patience_option
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    sweep: str,
    *,
    name: str,
    tolerance: float,
    allow_missing: bool,
    wait: bool,
    patience_s: float,
    as_json: bool,
) -> None:
    """Exit with 1 if a SWEEP (its id or name) is slower than its baseline.

    Also if a job of it failed, was cancelled or has not ended, if it lacks a cell that the baseline
    measured, or if no cell can be judged. A cell is slower if the whole 95 % interval of the ratio
    of step times is above 1 plus the tolerance. It takes 3 repetitions on the same kind of hardware
    in both sweeps, and cells that were disturbed are not judged.

    --json prints sweep_id, baseline_sweep_id, is_passed (the exit status is 0), is_slower (null:
    nothing can be said), failed_job_count, unfinished_job_count, missing_cell_count and cells:
    values, verdict, ratio, ratio_low, ratio_high, the step_time_s of both and jobs_by_state. (low
    and high are former names.)
    """
    loaded = settings()
    prices = prices_or_none(loaded, prices_file=None, region=None)
    with store(loaded) as engine:
        with reading(engine) as session:
            sweep_id = find_sweep(session, sweep).id
            base_id = find_baseline(session, name).sweep_id
        if wait:
            watch_to_end(SweepWatch(engine, sweep_id, settings=loaded), patience_s=patience_s)
        with reading(engine) as session:
            summary = sweep_summary(session, sweep_id)
            found = compare_sweeps(
                read_sweep(session, base_id, prices=prices).table,
                read_sweep(session, sweep_id, prices=prices).table,
            )
    failed_count = summary.counts[JobState.FAILED] + summary.counts[JobState.CANCELLED]
    unfinished_count = summary.job_count - summary.final_count
    verdicts = [pair.change(tolerance_ratio=tolerance / 100) for pair in found.pairs]
    is_slower = (
        Verdict.SLOWER in verdicts if any(verdict.is_known for verdict in verdicts) else None
    )
    missing = [line for line in found.only_a if line.times_s]
    is_complete = allow_missing or not missing
    is_passed = is_slower is False and is_complete and not failed_count and not unfinished_count
    if as_json:
        print_json(
            {
                "sweep_id": sweep_id,
                "baseline_sweep_id": base_id,
                "is_passed": is_passed,
                "is_slower": is_slower,
                "failed_job_count": failed_count,
                "unfinished_job_count": unfinished_count,
                "missing_cell_count": len(missing),
                "cells": [
                    *(_json(*one) for one in zip(found.pairs, verdicts, strict=True)),
                    *map(_missing_json, missing),
                ],
            }
        )
    else:
        _print(found, verdicts, missing, is_slower=is_slower, against=f"sweep {base_id}")
        if missing:
            cells = counted(len(missing), "cell")
            passes = "; allowed" if allow_missing else "; see --allow-missing"
            click.echo(f"missing: {cells} of sweep {base_id} in sweep {sweep_id}{passes}")
        _print_unsuccessful(summary, failed_count, unfinished_count)
    ctx.exit(0 if is_passed else 1)


def _print_unsuccessful(summary: SweepSummary, failed_count: int, unfinished_count: int) -> None:
    """Print how many jobs failed, were cancelled or have not ended."""
    sweep_id = summary.sweep_id
    if failed_count:
        jobs = counted(failed_count, "job")
        states = [
            f"`farm jobs --sweep {sweep_id} --state {state.value}`"
            for state in UNSUCCESSFUL_JOB_STATES
            if summary.counts[state]
        ]
        click.echo(f"failed or cancelled: {jobs} of sweep {sweep_id}, see {' and '.join(states)}")
    if unfinished_count:
        of = f"{unfinished_count} of {counted(summary.job_count, 'job')} of sweep {sweep_id}"
        click.echo(f"not ended: {of}; --wait waits for them")


def _json(pair: CellPair, verdict: Verdict) -> dict[str, object]:
    return {
        **compared_json(pair.a, pair.b, pair.ratio),
        "verdict": verdict.value,
        "jobs_by_state": states_json(pair.b.job_states),
    }


def _missing_json(line: CellLine) -> dict[str, object]:
    return {
        **compared_json(line, None, None),
        "verdict": _MISSING,
        "jobs_by_state": states_json(()),
    }


def _print(
    found: SweepComparison,
    verdicts: list[Verdict],
    missing: list[CellLine],
    *,
    is_slower: bool | None,
    against: str,
) -> None:
    if found.pairs or missing:
        pairs, absent = found.pairs, [display.MISSING] * len(missing)
        lines = [pair.b for pair in pairs]
        before = [*(pair.a for pair in pairs), *missing]
        now = [*(_time(line.median_s) for line in lines), *absent]
        ratios = [*(ratio_text(pair.ratio) for pair in pairs), *absent]
        verdict_texts = [*(verdict.value for verdict in verdicts), *[_MISSING] * len(missing)]
        cells = [
            *naming_columns([*lines, *missing]),
            (Column("baseline", is_right=True), [_time(line.median_s) for line in before]),
            (Column("now", is_right=True), now),
            (Column("ratio", is_right=True), ratios),
            (Column("verdict"), verdict_texts),
        ]
        others = [*map(_other_jobs, lines), *[""] * len(missing)]
        cells += [(Column("other jobs"), others)] if any(others) else []
        rows = zip(*(texts for _, texts in cells), strict=True)
        print_table([column for column, _ in cells], [list(row) for row in rows])
    if found.only_b:
        click.echo(f"{counted(len(found.only_b), 'cell is', 'cells are')} not in {against}")
    count = verdicts.count(Verdict.SLOWER)
    unknown_count = sum(not verdict.is_known for verdict in verdicts)
    if is_slower is None:
        click.echo(f"not known: no cell was measured well enough in both, see {against}")
    elif is_slower:
        click.echo(f"{counted(count, 'cell is', 'cells are')} slower than in {against}")
    else:
        click.echo(f"no cell is slower than in {against}")
    if unknown_count and is_slower is not None:
        click.echo(f"{unknown_count} of {counted(len(verdicts), 'cell')} could not be judged")


def _other_jobs(line: CellLine) -> str:
    """Count the jobs of a cell that did not succeed, or have not yet."""
    counts = Counter(state.value for state in line.job_states if state is not JobState.SUCCEEDED)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _time(time_s: float | None) -> str:
    return display.MISSING if time_s is None else display.duration(time_s)
