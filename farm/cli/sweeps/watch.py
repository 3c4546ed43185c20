"""Shows a sweep's progress until its last job ends: a bar on a terminal, else plain lines."""

from __future__ import annotations

import datetime as dt
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import click

from farm.cli.output import to_stderr
from farm.cli.sweeps.jobs import why_jobs_wait
from farm.configuration.expansion import MAX_JOBS
from farm.embedded.signals import Stopped, StopSignals
from farm.errors import FarmError
from farm.gang.lifecycle import (
    ACTIVE_JOB_STATES,
    FINAL_JOB_STATES,
    UNSUCCESSFUL_JOB_STATES,
    JobState,
)
from farm.placement.progress import UnfinishedJob, remaining_s
from farm.placement.scheduling import unschedulable_kinds
from farm.processes.standard_output import unfiltered
from farm.store.agents.agents import live_agents
from farm.store.engine import reading
from farm.store.queue.waiting_reasons import ABOUT_TO_START
from farm.store.sweeps.jobs import list_jobs
from farm.store.sweeps.sweep_loads import paces
from farm.store.sweeps.sweeps import SweepStatus, SweepSummary, sweep_summary
from farm.text.display import machine_hours, plain, roughly
from farm.text.log_text import one_line
from farm.text.plurals import counted

if TYPE_CHECKING:
    import sqlalchemy as sa

    from farm.settings.server import Settings

_LOOK_EVERY_S = 0.5
# A sweep of many thousand jobs is looked at less often, to take a twentieth of the time at most.
_PAUSE_PER_LOOK = 20
_LINE_EVERY_S = 5.0

patience_option = click.option(
    "--patience",
    "patience_s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long --wait waits for missing agents, once no other job is left.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`remaining_s` None: nothing to go by. `reason`: why jobs wait although none is at work.

    `unschedulable`: how many jobs the live agents could not serve if all were idle, by reason.
    """

    summary: SweepSummary
    active_count: int
    attempt_count: int
    remaining_s: float | None
    reason: str | None
    unschedulable: Mapping[str, int] = field(default_factory=dict)

    @property
    def unschedulable_count(self) -> int:
        return sum(self.unschedulable.values())

    @property
    def is_finished(self) -> bool:
        return self.summary.final_count == self.summary.job_count


class Display(Protocol):
    """Shows snapshots as they come."""

    def show(self, snapshot: Snapshot) -> None: ...


class SweepWatch:
    """Looks at a sweep again and again; remembers since when it has seen each job at work."""

    def __init__(self, engine: sa.Engine, sweep_id: int, *, settings: Settings) -> None:
        self._engine = engine
        self.sweep_id = sweep_id
        self._settings = settings
        self._active_since: dict[int, float] = {}

    def look(self) -> Snapshot:
        """Read the store once."""
        now = dt.datetime.now(dt.UTC)
        with reading(self._engine) as session:
            summary = sweep_summary(session, self.sweep_id)
            jobs = list_jobs(session, sweep_id=self.sweep_id, limit=MAX_JOBS)
            known_paces = paces(session, [self.sweep_id]).get(self.sweep_id, ())
            agents = live_agents(session, now=now, live_within_s=self._settings.lease_s)
            active = [job for job in jobs if job.state in ACTIVE_JOB_STATES]
            reasons = {} if active else why_jobs_wait(session, self._settings, agents=agents)
        clock = time.monotonic()
        unfinished = [
            UnfinishedJob(
                agent_count=job.agent_count,
                elapsed_s=(
                    clock - self._active_since.setdefault(job.id, clock)
                    if job.state in ACTIVE_JOB_STATES
                    else 0.0
                ),
            )
            for job in jobs
            if job.state not in FINAL_JOB_STATES
        ]
        own = (
            reason.text
            for reason in reasons.values()
            if reason.sweep_id == self.sweep_id and reason.text != ABOUT_TO_START
        )
        kinds = Counter(
            (
                frozenset(job.requires),
                frozenset((job.spec.get("labels") or {}).items()),
                job.agent_count,
            )
            for job in jobs
            if job.state is JobState.WAITING
        )
        unschedulable: Counter[str] = Counter()
        for kind, text in unschedulable_kinds(kinds, agents).items():
            unschedulable[text] += kinds[kind]
        return Snapshot(
            summary=summary,
            active_count=len(active),
            attempt_count=sum(job.attempt_count for job in jobs),
            remaining_s=remaining_s(known_paces, unfinished, agent_count=len(agents)),
            reason=next(own, None),
            unschedulable=unschedulable,
        )


def follow(
    watch: SweepWatch,
    display: Display,
    *,
    pause: Callable[[float], None],
    check_processes: Callable[[], None] = lambda: None,
    stalled_after_s: float | None = None,
    unschedulable_after_s: float | None = None,
) -> SweepSummary:
    """Show the sweep until it is finished and return its last summary.

    Between two looks `check_processes` is called; both it and `pause` may raise to end the waiting.

    Raises:
        FarmError: nothing ran and nothing changed for `stalled_after_s`; None waits for ever. Or
            only jobs that the live agents cannot serve are left for `unschedulable_after_s`. Or
            the budget is used up, and what ran is over.
    """
    changed_at, last = time.monotonic(), None
    schedulable_at = changed_at
    while True:
        begun = time.monotonic()
        snapshot = watch.look()
        display.show(snapshot)
        if snapshot.is_finished:
            return snapshot.summary
        if snapshot.summary.status is SweepStatus.OVER_BUDGET and not snapshot.active_count:
            raise FarmError(_budget_is_used_up(snapshot.summary))
        state = (dict(snapshot.summary.counts), snapshot.attempt_count)
        if state != last or snapshot.active_count:
            # How long a job may run is its agents' affair.
            changed_at, last = begun, state
        elif stalled_after_s is not None and begun - changed_at > stalled_after_s:
            reason = f" ({snapshot.reason})" if snapshot.reason else ""
            raise FarmError(f"no job changed for {stalled_after_s:.0f} s{reason}")
        left_count = snapshot.summary.job_count - snapshot.summary.final_count
        is_unschedulable = (
            snapshot.unschedulable_count == left_count and not snapshot.summary.is_held
        )
        if not is_unschedulable:
            schedulable_at = begun
        elif unschedulable_after_s is not None and begun - schedulable_at > unschedulable_after_s:
            raise FarmError(unserved_text(snapshot))
        check_processes()
        pause(max(_LOOK_EVERY_S, _PAUSE_PER_LOOK * (time.monotonic() - begun)))


def _budget_is_used_up(summary: SweepSummary) -> str:
    left = counted(summary.counts[JobState.WAITING], "job waits", "jobs wait")
    return (
        f"the budget of {machine_hours(summary.budget_machine_s)} is used up, and {left}: "
        f"`farm resume {summary.sweep_id} --budget-machine-hours HOURS` starts them"
    )


def unserved_text(snapshot: Snapshot) -> str:
    """Return which jobs of the sweep wait for missing agents, and what to do."""
    count = snapshot.unschedulable_count
    jobs = counted(count, "job waits", "jobs wait")
    sweep_id = snapshot.summary.sweep_id
    return (
        f"{jobs} for agents that are not there ({'; '.join(snapshot.unschedulable)}): start such "
        f"agents, or `farm cancel {sweep_id}`"
    )


def summary_line(snapshot: Snapshot) -> str:
    """Return the sweep's progress in one line."""
    summary = snapshot.summary
    most, at_least = "", ""
    if summary.max_job_count > summary.job_count:
        # Cells that are not precise yet get more repetitions.
        most, at_least = f", up to {summary.max_job_count} in all", "at least "
    parts = [f"{summary.final_count} of {counted(summary.job_count, 'job')} done{most}"]
    if snapshot.active_count:
        parts.append(f"{snapshot.active_count} running")
    for state in UNSUCCESSFUL_JOB_STATES:
        if summary.counts[state]:
            parts.append(f"{summary.counts[state]} {state.value}")
    if summary.is_held and not snapshot.is_finished:
        parts.append(summary.status.text)
    elif not snapshot.is_finished:
        if snapshot.reason is not None:
            parts.append(snapshot.reason)
        elif snapshot.remaining_s is not None:
            parts.append(f"{at_least or 'about '}{roughly(snapshot.remaining_s)} left")
    return ", ".join(parts)


class PlainDisplay:
    """A line on standard error when something changed, and not more often than that."""

    def __init__(self, *, line_every_s: float = _LINE_EVERY_S) -> None:
        self._line_every_s = line_every_s
        self._shown_at: float | None = None
        self._shown: tuple[int, int, str | None, SweepStatus] | None = None

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def show(self, snapshot: Snapshot) -> None:
        """Print the snapshot if it has changed, or ends the sweep."""
        now = time.monotonic()
        summary = snapshot.summary
        state = (summary.final_count, snapshot.active_count, snapshot.reason, summary.status)
        is_due = self._shown_at is None or now - self._shown_at >= self._line_every_s
        if state != self._shown and (is_due or snapshot.is_finished):
            self._shown, self._shown_at = state, now
            click.echo(one_line(summary_line(snapshot)), err=True)


class BarDisplay:
    """A progress bar on standard error, for a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(file=unfiltered(sys.stderr)),
        )
        self._task: Any = self._progress.add_task("waiting", total=None)

    def __enter__(self) -> BarDisplay:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar to the number of jobs that are over."""
        self._progress.update(
            self._task,
            description=plain(one_line(summary_line(snapshot))),
            completed=snapshot.summary.final_count,
            total=snapshot.summary.job_count,
        )


def make_display() -> PlainDisplay | BarDisplay:
    """Return what suits standard error."""
    return BarDisplay() if sys.stderr.isatty() else PlainDisplay()


def watch_to_end(watch: SweepWatch, *, patience_s: float) -> SweepSummary:
    """Show progress until the sweep is over. Ctrl-C ends the command, and not the sweep."""
    try:
        with StopSignals() as signals, make_display() as display:
            return follow(watch, display, pause=signals.pause, unschedulable_after_s=patience_s)
    except Stopped:
        sweep_id = watch.sweep_id
        to_stderr(f"sweep {sweep_id} goes on; `farm cancel {sweep_id}` ends it")
        raise click.Abort from None
