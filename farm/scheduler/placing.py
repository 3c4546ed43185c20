"""Assigns idle agents to waiting jobs, at a limited pace and by how long they will run."""

from __future__ import annotations

import copy
import datetime as dt
import logging
import time
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec, Unreachable
from farm.gang.retries import RetryPolicy, is_to_come
from farm.gang.snapshots import LiveAgent, WaitingJob
from farm.placement.progress import MeasuredLength, expected_lengths_s
from farm.placement.scheduling import Placement, place
from farm.scheduler.background_thread import BackgroundThread
from farm.scheduler.outgoing import Outgoing, Rules, outgoing_of
from farm.store.agents.agents import is_any_idle, live_agents
from farm.store.engine import reading, writing
from farm.store.gangs.attempts import Active, views_of
from farm.store.gangs.leases import lease_gangs
from farm.store.gangs.lengths import (
    cell_specs,
    gangs_at_work,
    last_lengths,
    unfinished_cells,
)
from farm.store.queue.waiting import waiting_jobs
from farm.store.queue.waiting_queue import WaitingQueue
from farm.store.sweeps.budgets import over_budget, use_up_budgets

if TYPE_CHECKING:
    from farm.recommend.cache.knowledge import RecommenderCache

logger = logging.getLogger(__name__)

_SNAPSHOT_LIFETIME_S = 1.0
_BELIEVED_RATIO = 20.0  # of the time that it took to add up what sweeps have spent
_LONGEST_BELIEF = dt.timedelta(minutes=1)
# No gang is started for so long after more ranks than these were asked twice: more than the lost
# messages and dead machines of one moment.
START_HOLD_S, MOST_UNANSWERED = 1.0, 16
_LENGTHS_EVERY_S = 5.0
_JOBS_LOOKED_AT = 10_000  # as many as are placed at once
_LENGTHS_LOOKED_AT = 1000
_CELLS_PREDICTED = 500  # of those of which nothing was measured


class JobLengths:
    """How long waiting jobs will run, by cell hash, in seconds.

    A thread reads the store every few seconds: the cells of unfinished jobs, the durations of
    recent gangs, and the recommender's predictions, which are fitted in another process. Only the
    thread writes `expected_s`, as a whole. If a refresh fails, the results of the one before stay
    valid.
    """

    def __init__(self, engine: Engine, *, home: Path | None = None) -> None:
        self._engine = engine
        self._home = home
        self._cache: RecommenderCache | None = None
        # By cell hash. Reading them again would take longer than all the rest.
        self._specs: dict[str, JobSpec] = {}
        self.expected_s: Mapping[str, float] = {}

    def thread(self) -> BackgroundThread:
        """Return the thread that updates the lengths."""

        def work() -> float:
            self.refresh()
            return _LENGTHS_EVERY_S

        return BackgroundThread("job lengths", work, again_after_s=_LENGTHS_EVERY_S)

    def refresh(self) -> None:
        """Read the store once."""
        with reading(self._engine) as session:
            ids = unfinished_cells(session, limit=_JOBS_LOOKED_AT)
            lasted = last_lengths(session, limit=_LENGTHS_LOOKED_AT) if ids else []
            wanted = {one.cell_hash: one.job_id for one in lasted} | ids
            new = cell_specs(session, [i for key, i in wanted.items() if key not in self._specs])
        specs = self._specs | new
        self._specs = {key: specs[key] for key in wanted if key in specs}
        cells = {key: self._specs[key] for key in ids if key in self._specs}
        measured = [
            MeasuredLength(
                cell_hash=one.cell_hash, spec=self._specs[one.cell_hash], length_s=one.length_s
            )
            for one in lasted
            if one.cell_hash in self._specs
        ]
        known = {one.cell_hash for one in measured}
        unknown = {key: spec for key, spec in cells.items() if key not in known}
        predicted_s = self._predict(dict(list(unknown.items())[:_CELLS_PREDICTED]))
        self.expected_s = expected_lengths_s(cells, measured=measured, predicted_s=predicted_s)

    def _predict(self, cells: Mapping[str, JobSpec]) -> Mapping[str, float]:
        if not cells or self._home is None:
            return {}
        # The recommender is imported only once there is something to ask it.
        from farm.recommend.cache.knowledge import RecommenderCache
        from farm.recommend.sweeps.expectation import predicted_lengths_s

        if self._cache is None:
            self._cache = RecommenderCache.of_server(self._home)
        with reading(self._engine) as session:
            return predicted_lengths_s(session, cells, cache=self._cache)


@dataclass(slots=True, kw_only=True)
class StartPace:
    """Limits how many ranks are started per second: `burst` at once, `per_s` in the long run.

    A farm that has just started could lease all of its agents in one round. Their thousands of
    messages would then reach the collectors within a second, unanswered commands would be repeated,
    and late answers would end attempts. All gangs start sooner if they do not start at once. No
    gang is started while many commands have to be repeated.

    Instants are in seconds, of one clock. About 33 starts a second keep a thousand agents busy with
    jobs of half a minute.
    """

    per_s: float = 64.0
    burst: int = 256
    _left: float = field(init=False)
    _at_s: float | None = None
    _held_until_s: float | None = None

    def __post_init__(self) -> None:
        self._left = float(self.burst)

    def may_start(self, *, now_s: float) -> bool:
        """Whether a gang may start now, of any width; a wide one delays those after it.

        A clock that jumps back does no harm. A hold also applies to a caller that read the clock
        just before it was set.
        """
        passed_s = 0.0 if self._at_s is None else max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._left = min(float(self.burst), self._left + passed_s * self.per_s)
        if self._held_until_s is not None and 0.0 < self._held_until_s - now_s <= 2 * START_HOLD_S:
            return False
        return self._left >= 1.0

    def took(self, agent_count: int) -> None:
        """Count started ranks."""
        self._left -= agent_count

    def note_unanswered(self, agent_count: int, *, now_s: float) -> None:
        """Hold further starts for a while if many ranks did not answer a command in time."""
        if agent_count > MOST_UNANSWERED:
            self._held_until_s = now_s + START_HOLD_S


@dataclass(slots=True)
class PlacingSnapshot:
    """The idle agents and the queue's version when nothing could be placed.

    While they are unchanged, nothing can be placed. Most turns are caused by active gangs, which
    change neither. Time alone can change a decision, so a snapshot is valid for
    `_SNAPSHOT_LIFETIME_S`.
    """

    idle: frozenset[str] = frozenset()
    queue_version: Hashable = None
    at: dt.datetime | None = None

    def note(self, idle: frozenset[str], queue_version: Hashable, *, now: dt.datetime) -> None:
        """Remember the state at this decision, which has placed nothing."""
        self.idle, self.queue_version, self.at = idle, queue_version, now

    def is_same(self, idle: frozenset[str], queue_version: Hashable, *, now: dt.datetime) -> bool:
        """Tell whether there is no reason to decide again."""
        if self.at is None or (self.idle, self.queue_version) != (idle, queue_version):
            return False
        return abs((now - self.at).total_seconds()) < _SNAPSHOT_LIFETIME_S


@dataclass(frozen=True, slots=True)
class PlacingState:
    """State kept between turns; without it placing is slower and its order worse.

    `expected_s`: by cell hash, how long jobs take. `last_starts`: by sweep, when it last got
    agents. `queue`: the waiting jobs. `budgets_due_at`: by sweep, when to check its budget again.
    All but the first are written by placing.
    """

    expected_s: Mapping[str, float] = field(default_factory=dict)
    last_starts: dict[int, dt.datetime] = field(default_factory=dict)
    queue: WaitingQueue | None = None
    last_snapshot: PlacingSnapshot = field(default_factory=PlacingSnapshot)
    pace: StartPace = field(default_factory=StartPace)
    budgets_due_at: dict[int, dt.datetime] = field(default_factory=dict)


def place_jobs(
    engine: Engine, *, now: dt.datetime, rules: Rules, known: PlacingState
) -> list[Outgoing]:
    """Lease gangs to waiting jobs, within the pace; return the start commands.

    If more could start, only the first are placed, and the next round decides again.
    """
    now_s = now.timestamp()
    if not known.pace.may_start(now_s=now_s):
        return []
    live_within_s = rules.lease.total_seconds()
    with reading(engine) as session:
        if not is_any_idle(session, now=now, live_within_s=live_within_s):
            return []
        agents = live_agents(session, now=now, live_within_s=live_within_s)
        idle = frozenset(agent.agent_id for agent in agents if agent.is_idle)
        jobs, waited_more_s = _queue(session, agents, now=now, policy=rules.policy, known=known)
        version = None if known.queue is None else known.queue.version
        if version is not None and known.last_snapshot.is_same(idle, version, now=now):
            return []
        over = _over_budget(session, {job.sweep_id for job in jobs}, now=now, known=known)
        gangs = gangs_at_work(session, now=now, expected_s=known.expected_s) if jobs else []
    if over:
        with writing(engine) as session:
            use_up_budgets(session, over, now=now)
        logger.info("budgets are used up", extra={"sweep_ids": sorted(over)})
        # Nor may a job of theirs have agents reserved.
        jobs = [job for job in jobs if job.sweep_id not in over]
    since_start_s = _since_start_s(known, {job.sweep_id for job in jobs}, now=now)
    placements = place(
        jobs,
        agents,
        reserve_after_s=rules.reserve_after_s,
        gangs=gangs,
        since_start_s=since_start_s,
        waited_more_s=waited_more_s,
    )
    if not placements:
        known.last_snapshot.note(idle, version, now=now)
    chosen = _at_their_pace(placements, known.pace, now_s=now_s)
    sweep_ids = {job.job_id: job.sweep_id for job in jobs} if chosen else {}
    try:
        return _lease(engine, chosen, sweep_ids, now=now, rules=rules, known=known)
    except (OperationalError, Unreachable):
        raise
    except Exception:
        logger.exception("gangs could not be leased together")
    outgoing: list[Outgoing] = []
    for placement in chosen:
        try:
            outgoing += _lease(engine, [placement], sweep_ids, now=now, rules=rules, known=known)
        except (OperationalError, Unreachable):
            raise
        except Exception:
            # What is wrong with one of them must not stop all the others for ever.
            logger.exception("gang could not be leased", extra={"job_id": placement.job_id})
    return outgoing


def _at_their_pace(
    placements: Sequence[Placement], pace: StartPace, *, now_s: float
) -> list[Placement]:
    """Return the placements that the pace allows now."""
    left = copy.copy(pace)
    chosen: list[Placement] = []
    for placement in placements:
        if not left.may_start(now_s=now_s):
            break
        left.took(len(placement.agent_ids))
        chosen.append(placement)
    return chosen


def _over_budget(
    session: Session, sweep_ids: set[int], *, now: dt.datetime, known: PlacingState
) -> Collection[int]:
    """Return the sweeps that have used up their budgets.

    Adding up the spent time of a sweep of 10,000 jobs takes a tenth of a second. So the longer that
    took, the later it is repeated.
    """
    for sweep_id, due_at in [*known.budgets_due_at.items()]:
        if not is_to_come(due_at, now=now, longest=_LONGEST_BELIEF):
            del known.budgets_due_at[sweep_id]
    due = sweep_ids - known.budgets_due_at.keys()
    if not due:
        return ()
    begun_s = time.monotonic()
    over = over_budget(session, due, now=now)
    took = dt.timedelta(seconds=time.monotonic() - begun_s)
    # A longer one would be taken for that of a clock which was set back, and not be kept at all.
    pause = min(_BELIEVED_RATIO * took, _LONGEST_BELIEF)
    known.budgets_due_at.update(dict.fromkeys(due - over.keys(), now + pause))
    return over.keys()


def _lease(
    engine: Engine,
    placements: Sequence[Placement],
    sweep_ids: Mapping[int, int],
    *,
    now: dt.datetime,
    rules: Rules,
    known: PlacingState,
) -> list[Outgoing]:
    if not placements:
        return []
    with writing(engine) as session:
        leased = lease_gangs(session, placements, now=now, lease=rules.lease)
        started = views_of(leased.attempts, now=now)
    tokens = leased.tokens
    for placement in placements:
        job_id = placement.job_id
        if job_id in leased.conflicts:
            # Somebody else was quicker; the next round sees what is left.
            reason = leased.conflicts[job_id]
            logger.info("placement was overtaken: %s", reason, extra={"job_id": job_id})
            continue
        known.pace.took(len(placement.agent_ids))
        known.last_starts[sweep_ids[job_id]] = now
        ids = {"job_id": job_id, "attempt_id": tokens[job_id]}
        logger.info("gang leased", extra={**ids, "agents": placement.agent_ids})
    return _start_commands(started, rules)


def _start_commands(started: Active, rules: Rules) -> list[Outgoing]:
    outgoing: list[Outgoing] = []
    refused = dict(started.unreadable)
    for attempt in started.attempts:
        everyone = tuple(r.rank for r in attempt.ranks)
        try:
            outgoing += outgoing_of(attempt, attempt.state, everyone, limits=rules.limits)
        except InvalidSpec as error:
            refused[attempt.token] = str(error)
    for token, reason in refused.items():
        # Leased all the same, since those who lead it give it up and so end the job. Refused
        # here, it would be the first to be placed again, for ever.
        logger.error("attempt cannot be started: %s", reason, extra={"attempt_id": token})
    return outgoing


def _queue(
    session: Session,
    agents: Collection[LiveAgent],
    *,
    now: dt.datetime,
    policy: RetryPolicy,
    known: PlacingState,
) -> tuple[list[WaitingJob], float]:
    """Return the jobs that may be placed, and how much longer they have waited than they say.

    If the queue is kept, only its changes are read.
    """
    if known.queue is not None:
        jobs = known.queue.jobs(session, now=now, agents=agents, expected_s=known.expected_s)
        if jobs is not None:
            return jobs, known.queue.waited_more_s(now)
    jobs = waiting_jobs(session, now=now, agents=agents, expected_s=known.expected_s, policy=policy)
    return jobs, 0.0


def _since_start_s(
    known: PlacingState, sweep_ids: Collection[int], *, now: dt.datetime
) -> dict[int, float]:
    """Return how long waiting sweeps have got no agents; forget other sweeps."""
    for sweep_id in known.last_starts.keys() - sweep_ids:
        del known.last_starts[sweep_id]
    return {i: max(0.0, (now - at).total_seconds()) for i, at in known.last_starts.items()}
