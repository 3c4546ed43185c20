"""`farm submit`: put the jobs of a sweep file into the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from farm.cells.configuration import length_of
from farm.cells.result_table import axis_column
from farm.cli.advice.questions import prices_of, prices_option, recommender_cache, region_option
from farm.cli.output import json_option, print_json, print_table, to_stderr
from farm.cli.session import settings, store, wake_scheduler
from farm.cli.sweeps.results import print_answers
from farm.cli.sweeps.watch import SweepWatch, patience_option, unserved_text, watch_to_end
from farm.configuration.axes import AXES, AXES_BY_NAME, REQUIRED_AXES, STRATEGY, spec_values
from farm.configuration.axis import AxisKind
from farm.configuration.spec import JobSpec
from farm.configuration.sweep import BUDGET, NOTIFY
from farm.errors import FarmError, InvalidSpec
from farm.gang.lifecycle import JobState
from farm.notifications.addresses import check_reachable
from farm.recommend.setup import Setup
from farm.recommend.sweeps.answers import MOST_ANSWERS, answers_for
from farm.recommend.sweeps.expectation import Expectation
from farm.recommend.sweeps.expectation import expected as expected_of
from farm.script_folder import with_bundles
from farm.settings.server import Settings
from farm.store.agents.agents import live_agents
from farm.store.engine import reading, writing
from farm.store.sweeps.bundles import add_bundle
from farm.submission import SubmissionPlan, SubmittedSweep, plan, read_sweep_file, within_memory
from farm.submission import submit as submit_sweep
from farm.text import display
from farm.text.columns import Column
from farm.text.plurals import counted

if TYPE_CHECKING:
    import sqlalchemy as sa

_DELAY = AXES_BY_NAME["one_way_delay_ms"]
_OPTIONAL_AXES = tuple(
    axis
    for axis in AXES
    if axis.kind in (AxisKind.WORKLOAD, AxisKind.PROFILE) and not axis.is_required
)


@click.command()
@click.argument("sweep_file", metavar="SWEEP.toml", type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Show progress until the last job is over.")
@click.option("--dry-run", is_flag=True, help="Print the jobs and write nothing.")
@click.option(
    "--notify",
    "addresses",
    metavar="URL",
    multiple=True,
    help="Send messages about the sweep to this address; may be repeated.",
)
@click.option(
    "--budget-machine-hours",
    type=float,
    help="Start no further job once this much machine time is spent.",
)
@patience_option
@prices_option
@region_option
@json_option
@click.pass_context
def submit(
    ctx: click.Context,
    sweep_file: Path,
    *,
    wait: bool,
    dry_run: bool,
    addresses: tuple[str, ...],
    budget_machine_hours: float | None,
    patience_s: float,
    prices_file: Path | None,
    region: str | None,
    as_json: bool,
) -> None:
    """Check a sweep file and enqueue its jobs; neither broker nor scheduler need to run.

    A `script` in the working folder is sent with the files of that folder; `farm measure --dry-run`
    lists them. Jobs that no live agents could serve are queued with a warning. With --wait the exit
    status is 0 only if every job succeeded. If only jobs without agents are left, the command ends
    after --patience with status 1, and they stay queued. If the budget is used up, it ends at once.
    --json prints id, name, job_count, max_job_count (with all repetitions that precision may take),
    skipped and notify (address and secret of each --notify); with --wait also jobs_by_state and
    recommended, as `farm status` has it; with --dry-run jobs instead of id, and expected: the time
    and cost that the farm's own measurements let expect. (sweep_id and counts are the former names
    of id and jobs_by_state.)
    """
    if wait and dry_run:
        raise click.UsageError("--wait and --dry-run exclude each other")
    # Asked only of a sweep with scripts: others can be checked without settings.
    data, scripts = with_bundles(read_sweep_file(sweep_file), home=lambda: settings().home)
    planned = plan(_with_options(data, addresses, budget_machine_hours))
    if dry_run:
        found, unknown_because = _expected(planned, prices_file, region)
        _print_plan(planned, found, unknown_because, as_json=as_json)
        return
    for one in scripts:
        files = counted(len(one.bundle.files), "file")
        to_stderr(f"{one.name} travels in a bundle of {files}")
    loaded = settings()
    check_reachable(planned.sweep.notify, loaded.notify_allow)
    with store(loaded) as engine:
        now = dt.datetime.now(dt.UTC)
        with reading(engine) as session:
            agents = live_agents(session, now=now, live_within_s=loaded.lease_s)
        planned = within_memory(planned, agents)
        with writing(engine) as session:
            for one in scripts:
                add_bundle(session, one.bundle, now=now)
            submitted = submit_sweep(session, planned, now=now)
        wake_scheduler(loaded)
        result: dict[str, object] = {
            **submitted.to_json(),
            # The former name of `id`, as `counts` is of `jobs_by_state`, until 0.2.0.
            "sweep_id": submitted.sweep_id,
            "name": planned.sweep.name,
        }
        if not as_json:
            _print_submitted(submitted, planned)
        watch = SweepWatch(engine, submitted.sweep_id, settings=loaded)
        first = watch.look()
        if first.unschedulable:
            to_stderr(unserved_text(first))
        counts = watch_to_end(watch, patience_s=patience_s).counts if wait else None
        if counts is not None:
            _conclude(engine, submitted.sweep_id, result, counts=counts, as_json=as_json)
    if as_json:
        print_json(result)
    if counts is not None and counts[JobState.SUCCEEDED] < sum(counts.values()):
        ctx.exit(1)


def _with_options(
    data: object, addresses: Sequence[str], budget_machine_hours: float | None
) -> object:
    """Return what a sweep file says with what the options add; no table is left as it is."""
    if not isinstance(data, Mapping):
        return data
    added = dict(data)
    if addresses:
        given = data.get(NOTIFY, [])
        added[NOTIFY] = [*(given if isinstance(given, list) else [given]), *addresses]
    if budget_machine_hours is not None:
        added[BUDGET] = budget_machine_hours
    return added


def _print_submitted(submitted: SubmittedSweep, planned: SubmissionPlan) -> None:
    count = submitted.job_count
    click.echo(f"sweep {submitted.sweep_id}: {counted(count, 'job')} enqueued{_more(planned)}")
    _print_skipped(submitted.skipped)
    for target in submitted.notify:
        click.echo(f"messages to {target.address} are signed with {target.secret}")


def _conclude(
    engine: sa.Engine,
    sweep_id: int,
    result: dict[str, object],
    *,
    counts: Mapping[JobState, int],
    as_json: bool,
) -> None:
    """Say what follows from a sweep that is over. Mutates `result`, the values of --json."""
    with reading(engine) as session:
        answers = answers_for(session, sweep_id, most=MOST_ANSWERS)
    result["jobs_by_state"] = result["counts"] = {s.value: n for s, n in counts.items()}
    result["recommended"] = [found.to_json() for found in answers]
    if not as_json:
        print_answers(answers)


def _expected(
    planned: SubmissionPlan, prices_file: Path | None, region: str | None
) -> tuple[Expectation | None, str | None]:
    """Return what is expected, or why nothing is: a sweep can be checked without a store."""

    try:
        jobs = planned.expansion.jobs
        return expected(settings(), jobs, prices_file=prices_file, region=region), None
    except InvalidSpec:
        raise
    except FarmError as error:
        return None, str(error)


def _print_plan(
    planned: SubmissionPlan,
    found: Expectation | None,
    unknown_because: str | None,
    *,
    as_json: bool,
) -> None:
    jobs = planned.expansion.jobs
    if as_json:
        print_json(
            {
                **planned.to_json(),
                "expected": found,
                "expected_unknown_because": unknown_because,
            }
        )
        return
    values = [spec_values(job) for job in jobs]
    shown_axes = [
        axis
        for axis in _OPTIONAL_AXES
        if axis is _DELAY or any(not axis.is_left_out(of_job[axis.field]) for of_job in values)
    ]
    rows = [
        [
            *(str(getattr(job, axis.field)) for axis in REQUIRED_AXES),
            *(
                display.MISSING
                if job.network is None and axis.kind is AxisKind.PROFILE
                else axis.text(of_job[axis.field])
                for axis in shown_axes
            ),
            length_of(job.steps, job.epochs),
            str(job.repetition),
        ]
        for job, of_job in zip(jobs, values, strict=True)
    ]
    columns = [
        *map(axis_column, (*REQUIRED_AXES, *shown_axes)),
        Column("length", is_right=True),
        Column("repetition", is_right=True),
    ]
    setups = [_setup(job) for job in jobs]
    if any(setups):
        place = REQUIRED_AXES.index(STRATEGY) + 1
        columns.insert(place, Column("set up"))
        for row, text in zip(rows, setups, strict=True):
            row.insert(place, text or display.MISSING)
    print_table(
        columns, rows, title=f"{planned.sweep.name}: {counted(len(jobs), 'job')}{_more(planned)}"
    )
    _print_skipped(planned.skipped)
    if found is None:
        click.echo(f"expected time and cost are not known: {unknown_because}")
    else:
        print_expectation(found)
    budget_s = planned.sweep.budget_machine_s
    if budget_s is not None:
        fits = found is None or found.machine_s <= budget_s
        click.echo(
            f"budget: {display.machine_hours(budget_s)}"
            + ("" if fits else ", less than the expected machine time: jobs will be left over")
        )


def _setup(job: JobSpec) -> str:
    """Say by the keys of a sweep file how a strategy is set up, as far as it is not as usual."""
    servers = f"server_count={job.server_count}" if job.server_count else None
    network = f"network={job.interface}" if job.interface is not None else None
    return ", ".join(filter(None, (servers, Setup.of_job(job).text, network)))


def _more(planned: SubmissionPlan) -> str:
    """Say how many jobs may follow, and what for; nothing where none will."""
    precision = planned.sweep.precision
    if precision is None:
        return ""
    return (
        f", up to {planned.expansion.max_job_count} until every step time is known to "
        f"± {display.percent_in_digits(precision.target_ratio, 6)}"
    )


def _print_skipped(skipped: tuple[str, ...]) -> None:
    for line in skipped:
        click.echo(f"left out: {line}")


def expected(
    loaded: Settings, jobs: Sequence[JobSpec], *, prices_file: Path | None, region: str | None
) -> Expectation:
    """Predict every job from the farm's own measurements.

    Raises:
        FarmError: there is no store, or the prices do not fit.
    """
    prices = prices_of(loaded, prices_file, region)
    with store(loaded) as engine, reading(engine) as session:
        return expected_of(session, jobs, prices=prices, cache=recommender_cache(loaded))


def print_expectation(found: Expectation) -> None:
    """Print the expected time and cost, and the jobs without an estimate."""
    if found.known_count:
        steps = f"{display.roughly(found.training_s)} of training one after another"
        high = display.roughly(found.training_high_s)
        start = (
            "starting not known"
            if found.overhead_s is None
            else f"{display.roughly(found.overhead_s)} a job to start and end"
        )
        click.echo(
            f"expected of {found.known_count} of {counted(found.job_count, 'job')}: {steps} "
            f"(90 %: at most {high}), {start}, {display.roughly(found.machine_s)} of machine time, "
            + ("cost not known" if found.cost_usd is None else display.dollars(found.cost_usd))
        )
    for reason, count in found.unknown.items():
        click.echo(f"nothing is known of {counted(count, 'job')}: {reason}")
