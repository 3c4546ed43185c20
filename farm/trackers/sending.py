"""Describes measured jobs and sends them to a tracker: a sweep's on request, or each as it ends.

A separate process sends new jobs: loading a tracker's library takes seconds of a core, and so does
sending a job with many samples. If it fails or hangs, it tries again after a pause, which grows to
ten minutes. After three failures a job is given up.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from farm.charts.job.reading import timed_window
from farm.charts.job.steps import step_points
from farm.configuration.scripts import parameters_of
from farm.errors import FarmError
from farm.gang.retries import doubled_pause_s
from farm.measuring.measurement import OK
from farm.measuring.measurement_table import MEASUREMENT_TABLE, CellKind, ColumnSource
from farm.messages.trainer_lines import StepKind
from farm.processes.subprocess_call import run_in_subprocess
from farm.store.engine import make_engine, reading, writing
from farm.store.identity import stored_identity
from farm.store.measurements.export_parts import export_row
from farm.store.measurements.measured_jobs import MeasuredJob, measured_attempts, measured_job
from farm.store.series.samples import SAMPLE_METRICS
from farm.store.series.series import epochs_of, samples_by_rank
from farm.store.series.step_ranges import step_series
from farm.store.sweeps.sweeps import find_sweep
from farm.store.tables import JobRow, SweepRow, TrackerCursor
from farm.store.tracker_cursors import (
    LONGEST_TRACKER_PAUSE,
    PendingJob,
    claim_cursor,
    is_due,
    note_sent,
    note_try,
    pending_jobs,
    release_cursor,
    start_cursor,
)
from farm.trackers import find_tracker
from farm.trackers.contracts import (
    Point,
    SeriesAxis,
    TrackedJob,
    TrackedSeries,
    TrackedSweep,
    Tracker,
)

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
_FIRST_PAUSE_S = 5.0
_MOST_JOBS = 100  # of one process
_WORK_S = 60.0  # until it begins no other job
# Until it is ended: MLflow on SQLite took 98 s for 72,000 values on a busy machine.
_LIMIT_S = 540.0
_CLAIM = dt.timedelta(seconds=570)  # longer than that, and shorter than the longest pause
# Of a longer run, ranges of that many. Samples: of one metric of one rank, and of all ranks.
_MOST_STEPS = 10_000
_MOST_SECONDS, _MOST_SECONDS_OF_ALL, _FEWEST_SECONDS = 2000, 20_000, 100
_MEGABYTE = 1e6
# Names that MLflow gives to what it samples itself, with the factor to its unit. All else keeps its
# own name: MLflow counts a network's megabytes from the start on, which lost seconds would falsify.
_SYSTEM_NAMES: dict[str, tuple[str, float]] = {
    "machine_cpu_ratio": ("cpu_utilization_percentage", 100),
    "memory_used_bytes": ("system_memory_usage_megabytes", 1 / _MEGABYTE),
}
_GPU_NAMES: dict[str, tuple[str, float]] = {
    "ratio": ("utilization_percentage", 100),
    "memory_used_bytes": ("memory_usage_megabytes", 1 / _MEGABYTE),
    "power_w": ("power_usage_watts", 1),
}
_OF_GPU = re.compile(r"gpu(\d+)_(.+)")
_OF_EPOCH = ("train_s", "train_loss", "val_loss", "val_accuracy_ratio")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_NO_FARM = "no-farm"  # has run on the store


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSweep:
    """How many jobs were sent, and how many were there already."""

    sent_count: int
    former_count: int


def send_sweep(
    engine: Engine, tracker: Tracker, sweep: str, *, progress: Callable[[int, int], None]
) -> SentSweep:
    """Send the jobs of a sweep, by its id or name, that have a measurement and are not there yet.

    The store is read for one job at a time, so that no transaction lasts as long as the sending.

    Raises:
        NotFound: there is no such sweep.
        FarmError: the tracker does not take a job, or does not answer; those before it are sent.
    """
    with reading(engine) as session:
        row = find_sweep(session, sweep)
        described = _describe_sweep(session, row)
        measured = measured_attempts(session, row.id)
    there = tracker.sent(described)
    lacking = [job_id for job_id, token in measured if described.job_key(token) not in there]
    sent_count = 0
    for done, job_id in enumerate(lacking, start=1):
        sent_count += _send_job(engine, tracker, job_id)
        progress(done, len(lacking))
    return SentSweep(sent_count=sent_count, former_count=len(measured) - len(lacking))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """The input of the process. It is sent through a pipe, so that no process list shows it."""

    database_url: str
    tracker: str
    jobs: tuple[PendingJob, ...]


class TrackerExport:
    """Looks for jobs to send. Several may run on one store: one of them sends at a time."""

    def __init__(self, engine: Engine, *, database_url: str, tracker: str) -> None:
        """`tracker`: as FARM_TRACKER has it."""
        self._engine = engine
        self._database_url = database_url
        self._tracker = tracker
        self._name = find_tracker(tracker)[0].name
        self._has_begun = False

    def turn(self) -> float:
        """Send what there is; return after how many seconds to look again."""
        now = dt.datetime.now(dt.UTC)
        if not self._has_begun:
            with writing(self._engine) as session:
                start_cursor(session, self._name, now=now)
            self._has_begun = True
        with reading(self._engine) as session:
            cursor = session.get_one(TrackerCursor, self._name)
            failure_count = cursor.failure_count
            jobs = pending_jobs(session, cursor, limit=_MOST_JOBS)
            if not jobs or not is_due(cursor, now=now):
                return LOOK_EVERY_S
        with writing(self._engine) as session:
            if not claim_cursor(session, self._name, now=now, claim=_CLAIM):
                return LOOK_EVERY_S
        trouble = self._send(tuple(jobs))
        failure_count = failure_count + 1 if trouble else 0
        pause_s = 0.0
        if trouble:
            most_s = LONGEST_TRACKER_PAUSE.total_seconds()
            pause_s = doubled_pause_s(failure_count, first_s=_FIRST_PAUSE_S, most_s=most_s)
        now = dt.datetime.now(dt.UTC)
        with writing(self._engine) as session:
            release_cursor(
                session,
                self._name,
                due_at=now + dt.timedelta(seconds=pause_s),
                failure_count=failure_count,
                trouble=trouble,
            )
        return LOOK_EVERY_S

    def _send(self, jobs: tuple[PendingJob, ...]) -> str | None:
        task = _Task(database_url=self._database_url, tracker=self._tracker, jobs=jobs)
        try:
            run_in_subprocess(_send_jobs, task, limit_s=_LIMIT_S)
        except FarmError as error:
            logger.warning("sending to %s failed: %s", self._name, error)
            return str(error)
        except Exception as error:
            logger.exception("sending to %s failed", self._name)
            return type(error).__name__
        return None


def _send_jobs(task: _Task) -> None:
    kind, destination = find_tracker(task.tracker)
    tracker = kind(destination)
    until_s = time.monotonic() + _WORK_S
    failure: FarmError | None = None
    there: dict[TrackedSweep, Collection[str]] = {}
    engine = make_engine(task.database_url)
    try:
        for job in task.jobs:
            if time.monotonic() > until_s:
                break
            with reading(engine) as session:
                sweep = _sweep_of_job(session, job.job_id)
            # Asked again after a failure: what is away fails here, and no job is blamed for it.
            if sweep not in there:
                there[sweep] = tracker.sent(sweep)
            try:
                if sweep.job_key(job.token) not in there[sweep]:
                    with writing(engine) as session:
                        note_try(session, tracker.name, job.token)
                    _send_job(engine, tracker, job.job_id)
            except FarmError as error:
                failure = FarmError(f"job {job.job_id}: {error}")
                there.clear()
            else:
                with writing(engine) as session:
                    note_sent(session, tracker.name, job.token, now=dt.datetime.now(dt.UTC))
    finally:
        engine.dispose()
    if failure is not None:
        raise failure


def _send_job(engine: Engine, tracker: Tracker, job_id: int) -> bool:
    """Send a job; False: it is retried meanwhile, so there is nothing to send."""
    with reading(engine) as session:
        described = describe_job(session, job_id)
    if described is None:
        return False
    tracker.send(described)
    return True


def _describe_sweep(session: Session, sweep: SweepRow) -> TrackedSweep:
    """Return what trackers get of a sweep."""
    identity = stored_identity(session)
    farm_id = _NO_FARM if identity is None else identity.farm_id
    return TrackedSweep(farm_id=farm_id, id=sweep.id, name=sweep.name)


def _sweep_of_job(session: Session, job_id: int) -> TrackedSweep:
    """Return what trackers get of a job's sweep."""
    return _describe_sweep(
        session, session.get_one(SweepRow, session.get_one(JobRow, job_id).sweep_id)
    )


def describe_job(session: Session, job_id: int) -> TrackedJob | None:
    """Return what trackers get of a job; None where it has no measurement.

    Steps and epochs are those of rank 0. Of more than 10,000 steps a point is the median of a
    range; of more than 2,000 seconds, of wide gangs fewer, the mean.
    """
    found, row = measured_job(session, job_id), export_row(session, job_id)
    if found is None or row is None:
        return None
    sweep = _describe_sweep(session, found.sweep)
    number = found.attempt.number
    # Those of a script by themselves, so that trackers can sort and compare by them.
    script_parameters = {
        f"parameters.{name}": value for name, value in parameters_of(found.job.model).items()
    }
    return TrackedJob(
        key=sweep.job_key(found.attempt.id),
        sweep=sweep,
        name=f"job {job_id}" if number == 1 else f"job {job_id}, attempt {number}",
        begun_unix_s=found.attempt.leased_at.timestamp(),
        ended_unix_s=(found.attempt.ended_at or found.measurement.created_at).timestamp(),
        is_ok=found.measurement.status == OK,
        parameters=dict(_parameters(row)) | script_parameters,
        summary=dict(_summary(row)),
        series=[one for one in _series(session, found) if one.points],
        tags=_tags(found, sweep),
    )


def _parameters(row: Mapping[str, object]) -> Iterator[tuple[str, str | int | float]]:
    for column in MEASUREMENT_TABLE:
        value = row[column.name]
        is_parameter = (
            column.source is not ColumnSource.QUANTITY and column.kind is not CellKind.FLAGS
        )
        if is_parameter and isinstance(value, str | int | float):
            yield column.name, value


def _summary(row: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for column in MEASUREMENT_TABLE:
        value = row[column.name]
        if column.source is ColumnSource.QUANTITY and _is_finite(value):
            yield column.name, value


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _tags(found: MeasuredJob, sweep: TrackedSweep) -> dict[str, str]:
    flags = sorted({str(flag.get("kind")) for flag in found.measurement.flags})
    versions = {rank.hardware.get("benchfarm_version") for rank in found.ranks}
    tags = {
        "benchfarm.job": str(found.job.id),
        "benchfarm.attempt": sweep.job_key(found.attempt.id),
        "benchfarm.attempt_number": str(found.attempt.number),
        "benchfarm.sweep": sweep.key,
        "benchfarm.sweep_name": sweep.name,
        "benchfarm.flags": ", ".join(flags),
        "benchfarm.version": ", ".join(sorted(str(one) for one in versions if one)),
        "benchfarm.reason": found.attempt.reason or "",
    }
    return {name: value for name, value in tags.items() if value}


def _series(session: Session, found: MeasuredJob) -> Iterator[TrackedSeries]:
    go_s = found.go_at.timestamp()
    yield from _steps(session, found, go_s)
    yield from _epochs(session, found, go_s)
    yield from _samples(session, found, go_s)


def _steps(session: Session, found: MeasuredJob, go_s: float) -> Iterator[TrackedSeries]:
    stored = step_series(session, found.attempt.id, rank=0, max_ranges=_MOST_STEPS)
    points = step_points(stored, max_points=_MOST_STEPS)
    for kind in StepKind:
        name = "time_s" if kind is StepKind.TIMED else f"{kind.value}_time_s"
        yield TrackedSeries(
            name=f"step/{name}",
            axis=SeriesAxis.STEP,
            points=[
                Point(one.step, go_s + one.begun_s, one.step_time_s)
                for one in points
                if one.kind is kind and _is_finite(one.step_time_s)
            ],
        )


def _epochs(session: Session, found: MeasuredJob, go_s: float) -> Iterator[TrackedSeries]:
    """Yield the figures of rank 0's epochs.

    When one ended was not noted: a point is where its training would have ended without the
    evaluations before it.
    """
    chief = found.ranks[0] if found.ranks else None
    window = timed_window(chief)
    begun_s = go_s + (window[0] if window else 0.0)
    epochs = epochs_of(session, found.attempt.id, rank=0)
    ends_s = list(itertools.accumulate((one.train_s for one in epochs), initial=begun_s))[1:]
    for name in _OF_EPOCH:
        values = [getattr(one, name) for one in epochs]
        yield TrackedSeries(
            name=f"epoch/{name}",
            axis=SeriesAxis.EPOCH,
            points=[
                Point(one.epoch, end_s, value)
                for one, end_s, value in zip(epochs, ends_s, values, strict=True)
                if _is_finite(value)
            ],
        )


def _samples(session: Session, found: MeasuredJob, go_s: float) -> Iterator[TrackedSeries]:
    share = _MOST_SECONDS_OF_ALL // max(1, len(found.ranks))
    by_rank = samples_by_rank(
        session,
        found.attempt.id,
        max_points=min(_MOST_SECONDS, max(_FEWEST_SECONDS, share)),
    )
    agents = Counter(rank.agent_id for rank in found.ranks)
    for rank in found.ranks:
        # An agent may have several ranks, each with what its own trainer uses.
        node = rank.agent_id
        if agents[node] > 1:
            node = f"{node}.rank{rank.rank}"
        values: dict[str, list[Point]] = {}
        for sample in by_rank.get(rank.rank, ()):
            read = {name: getattr(sample, name) for name in SAMPLE_METRICS} | sample.extra
            for name, value in read.items():
                if _is_finite(value):
                    shown, factor = _system_name(name)
                    point = Point(sample.tick, go_s + sample.tick, value * factor)
                    values.setdefault(shown, []).append(point)
        for name, points in values.items():
            yield TrackedSeries(name=f"system/{node}/{name}", axis=SeriesAxis.SECOND, points=points)


def _system_name(name: str) -> tuple[str, float]:
    """Return the name and the factor under which trackers get a sampled metric.

    Agents name what is no column of samples. Characters that a tracker may refuse are replaced,
    and a digest is added, so that two names never become one.
    """
    of_gpu = _OF_GPU.fullmatch(name)
    if of_gpu and of_gpu[2] in _GPU_NAMES:
        known, factor = _GPU_NAMES[of_gpu[2]]
        return f"gpu_{int(of_gpu[1])}_{known}", factor
    if name in _SYSTEM_NAMES:
        return _SYSTEM_NAMES[name]
    if _PLAIN.fullmatch(name):
        return name, 1
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:64]}-{digest}", 1
