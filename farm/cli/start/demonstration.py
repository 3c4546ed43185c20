"""Runs a sweep on a farm of its own, and prints measurements and recommendations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from farm.cells.reading import read_sweep
from farm.cells.table import CellLine
from farm.cli.advice.questions import prices_or_none
from farm.cli.output import command_hint
from farm.cli.session import settings, wake_scheduler
from farm.cli.start.up import run_until_signal
from farm.cli.sweeps.results import print_answers, print_cells
from farm.cli.sweeps.watch import SweepWatch, follow, make_display
from farm.configuration.bundle import ScriptBundle
from farm.configuration.scripts import PYTHON_CAPABILITY
from farm.configuration.spec import EMULATOR_NAMES, EXACT_EMULATION
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import Stopped, StopSignals
from farm.errors import FarmError, InvalidSpec
from farm.gang.lifecycle import JobState, SweepState
from farm.measuring.noise import disturbed_by
from farm.recommend.sweeps.answers import answers_for
from farm.store.agents.agents import list_agents
from farm.store.engine import make_engine, reading, writing
from farm.store.sweeps.bundles import add_bundle
from farm.store.sweeps.jobs import list_jobs, request_cancel_sweep
from farm.store.sweeps.sweeps import SweepSummary, list_sweeps
from farm.submission import SubmissionPlan, submit
from farm.text.plurals import counted

if TYPE_CHECKING:
    import sqlalchemy as sa

_MAX_ROWS = 100_000
# Far longer than any job here takes; then something is wrong that the logs may tell.
_STALLED_AFTER_S = 180.0


def demonstrate(
    start: Callable[[StopSignals], AbstractContextManager[EmbeddedFarm]],
    *,
    planned: SubmissionPlan,
    and_exit: bool,
    show: Callable[[sa.Engine, int], None] | None = None,
    bundles: Sequence[ScriptBundle] = (),
) -> bool:
    """Measure a sweep on the farm that `start` makes; return whether every job succeeded.

    `show` tells of its results in the place of the usual table and advice. `bundles`: of scripts
    that the sweep names. Unless `and_exit`, the
    farm then stays up with its dashboard until Ctrl-C.

    Raises:
        InvalidSpec: no agent of the farm could serve some of its jobs.
        click.Abort: stopped before the sweep was over.
    """
    succeeded = None
    with StopSignals() as signals:
        try:
            with start(signals) as farm:
                with engine_of(farm) as engine, writing(engine) as session:
                    for bundle in bundles:
                        add_bundle(session, bundle, now=dt.datetime.now(dt.UTC))
                succeeded = _measure(farm, signals, planned=planned, show=show or print_results)
                if not and_exit:
                    click.echo(f"\nDashboard: {farm.dashboard_url} (Ctrl-C stops)")
                    if (hint := command_hint()) is not None:
                        click.echo(hint)
                    run_until_signal(farm, signals)
        except Stopped:
            # Once the sweep is over, Ctrl-C is how it is meant to end.
            if succeeded is None:
                raise click.Abort from None
    return bool(succeeded)


def gang_widths(agents: int) -> list[int]:
    """Return 2, 4, 8 ... and the number of all agents."""
    return sorted({2**k for k in range(1, agents.bit_length()) if 2**k <= agents} | {agents})


def _measure(
    farm: EmbeddedFarm,
    signals: StopSignals,
    *,
    planned: SubmissionPlan,
    show: Callable[[sa.Engine, int], None],
) -> bool:
    """Run the sweep and show what it measured; return whether every job succeeded."""
    with engine_of(farm) as engine:
        check_abilities(engine, planned, agent_ids=farm.agent_ids)
        sweep_id = _submit(engine, planned)
        try:
            summary = finish(farm, signals, engine=engine, sweep_id=sweep_id)
        except BaseException:
            # The next farm in this folder shall not begin with what this one left.
            _cancel(engine, sweep_id)
            raise
        show(engine, sweep_id)
    return summary.counts[JobState.SUCCEEDED] == summary.job_count


def check_abilities(
    engine: sa.Engine, planned: SubmissionPlan, *, agent_ids: Collection[str]
) -> None:
    """Refuse jobs that would wait for ever, since a farm of its own gets no other agents.

    Raises:
        InvalidSpec: too few of these agents can do what a job needs.
    """
    with reading(engine) as session:
        # The store may know agents of a former farm, too.
        own = [agent for agent in list_agents(session) if agent.id in agent_ids]
    offered = [set(agent.facts.get("capabilities", ())) for agent in own]
    for job in planned.expansion.jobs:
        for ability in sorted(job.required_capabilities):
            if sum(ability in abilities for abilities in offered) >= job.agent_count:
                continue
            if ability in (EXACT_EMULATION, *EMULATOR_NAMES):
                expected = "a network that this machine can emulate; see `farm lab` (it needs root)"
                raise InvalidSpec("network", ability, expected)
            if ability.startswith(PYTHON_CAPABILITY):
                expected = "agents that have this interpreter; if `farm up` runs, stop it first"
                raise InvalidSpec("COMMAND", ability.removeprefix(PYTHON_CAPABILITY), expected)
            having = sum(ability in abilities for abilities in offered)
            expected = f"{job.agent_count} for a job of {job.world_size} ranks"
            raise InvalidSpec("agents", f"{having} that offer '{ability}'", expected)


def _submit(engine: sa.Engine, planned: SubmissionPlan) -> int:
    """Enqueue the sweep, after cancelling what a killed demo has left unfinished."""
    with reading(engine) as session:
        unfinished = [
            found.sweep_id
            for found in list_sweeps(session)
            if found.name == planned.sweep.name and found.state is not SweepState.FINISHED
        ]
    for sweep_id in unfinished:
        _cancel(engine, sweep_id)
    with writing(engine) as session:
        return submit(session, planned, now=dt.datetime.now(dt.UTC)).sweep_id


def _cancel(engine: sa.Engine, sweep_id: int) -> None:
    with writing(engine) as session:
        request_cancel_sweep(session, sweep_id, now=dt.datetime.now(dt.UTC))


def print_results(engine: sa.Engine, sweep_id: int) -> None:
    """Print this sweep's cells and the recommendations."""
    prices = prices_or_none(settings())
    with reading(engine) as session:
        jobs = list_jobs(session, sweep_id=sweep_id, limit=_MAX_ROWS)
        lines = read_sweep(session, sweep_id, prices=prices).table.measured
        answers = answers_for(session, sweep_id)
    for job in jobs:
        if job.state is not JobState.SUCCEEDED:
            click.echo(
                f"job {job.id} ({job.strategy}, world size {job.world_size}, batch "
                f"{job.global_batch_size}) {job.state.value}: {job.reason or 'no reason known'}"
            )
    if lines:
        print_cells(lines)
    if warning := disturbance_warning(lines):
        click.echo(warning)
    print_answers(answers)


def disturbance_warning(lines: Sequence[CellLine]) -> str | None:
    """Return a line that says that measurements were disturbed, and what to do."""
    disturbed = [one for line in lines for one in line.disturbed]
    if not disturbed:
        return None
    found = sum(line.succeeded_count for line in lines)
    return (
        f"This machine was busy: {len(disturbed)} of {counted(found, 'measurement')} "
        f"{'was' if len(disturbed) == 1 else 'were'} disturbed, by "
        f"{disturbed_by(disturbed)}. Close other programs, or use fewer agents, and run it again."
    )


def finish(
    farm: EmbeddedFarm, signals: StopSignals, *, engine: sa.Engine, sweep_id: int
) -> SweepSummary:
    """Show a sweep's progress until it is over.

    Raises:
        FarmError: nothing happens any more, or a process ends again and again; with the logs.
        Stopped: the user has asked for the end.
    """
    wake_scheduler(farm.settings)
    try:
        with make_display() as display:
            return follow(
                SweepWatch(engine, sweep_id, settings=farm.settings),
                display,
                pause=signals.pause,
                check_processes=farm.check_processes,
                stalled_after_s=_STALLED_AFTER_S,
            )
    except FarmError as error:
        raise FarmError(f"{error}\n{farm.log_tails()}") from error


@contextmanager
def engine_of(farm: EmbeddedFarm) -> Iterator[sa.Engine]:
    """Open the store of a running farm."""
    engine = make_engine(farm.settings.database_url)
    try:
        yield engine
    finally:
        engine.dispose()
