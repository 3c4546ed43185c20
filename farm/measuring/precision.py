"""Precision of a cell's step time from its repetitions, and how many more are needed.

Each repetition is an attempt of its own, with other processes, other memory, perhaps other
machines. Steps within an attempt share all of these, so more steps say little about the next
attempt: the differences between repetitions dominate (Kalibera and Jones 2013). So the median step
time of a repetition is one value here, and an interval is computed from these values.

Measurements of different hardware are never pooled. If a cell was measured on several kinds of
hardware, the kind with the most repetitions is judged, and the others only count towards the cap.

Consecutive runs are correlated: a cause that slows one down often slows the next one, too. So the
interval takes into account how far apart in time the repetitions of a cell were, and how strongly
consecutive runs of this sweep are correlated (`Timeline`). Repetitions without known times are
assumed to have run one after the other.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol

from farm.configuration.sweep import LEAST_REPETITIONS, Precision
from farm.measuring.noise import UNDISTURBED, Disturbance, undisturbed_first
from farm.statistics import outlier_positions, student_quantile, weighted_median
from farm.values.ranges import LEAST_TIME_S, MOST_TIME_S

CONFIDENCE = 0.95
# Of the interval that repetitions are stopped by; see `time_interval`.
SEQUENTIAL_CONFIDENCE = 0.97
# Of neighbours in time, where a sweep does not say: sweeps of this project had 0.36 to 0.56.
ASSUMED_CORRELATION = 0.6
# The assumption weighs as much as so many pairs of neighbours.
_ASSUMED_PAIRS = 20
# How many runs before the latest of a cell the correlation is estimated from.
_WINDOW_RUNS = 200
_MOST_CORRELATION = 0.95
# The estimate is rounded up to a multiple of this.
_CORRELATION_STEP = 0.05
_NEGLIGIBLE = 1e-6
# Of ln(time). Repetitions on idle machines differ by 1 % and more: equal times are copies of one
# value, or were rounded, and an interval of no width would claim more than any clock shows.
LEAST_DEVIATION = 1e-3
_place = attrgetter("place")


class RepetitionState(enum.Enum):
    """What became of a repetition."""

    MEASURED = "measured"
    PENDING = "pending"  # waits or runs
    STOPPED = "stopped"  # its configuration failed or somebody cancelled it: no more of this cell
    LOST = "lost"  # machines failed until the retry policy gave up


class Target(enum.StrEnum):
    """The state of a cell's precision."""

    REACHED = "reached"
    # As narrow as asked, but no other configuration ran between its repetitions.
    BACK_TO_BACK = "back_to_back"
    # As narrow as asked, but something disturbed every repetition.
    DISTURBED = "disturbed"
    CAP = "cap"  # as many repetitions as are allowed, and not there yet
    RUNNING = "running"
    ENDED = "ended"  # there is nothing to go on with: it cannot run, or was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """One job of a cell. `step_time_s`: its median; None unless it was measured.

    `disturbance`: what disturbed it, and how much it counts as evidence.
    """

    job_id: int
    state: RepetitionState
    step_time_s: float | None = None
    fingerprint: str | None = None
    disturbance: Disturbance = UNDISTURBED


class _Measured(Protocol):
    @property
    def step_time_s(self) -> float | None: ...

    @property
    def fingerprint(self) -> str | None: ...

    @property
    def disturbance(self) -> Disturbance: ...


def measured_repetition(job_id: int, measured: _Measured) -> Repetition:
    """Return the repetition that a measurement is."""
    return Repetition(
        job_id=job_id,
        state=RepetitionState.MEASURED,
        step_time_s=measured.step_time_s,
        fingerprint=measured.fingerprint,
        disturbance=measured.disturbance,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured job of a sweep. `place`: its number, in order of time, on its kind of hardware."""

    job_id: int
    place: int
    cell_hash: str
    fingerprint: str | None
    step_time_s: float


@dataclass(frozen=True, slots=True)
class _Spread:
    """Of the logarithms of a cell's n times; `share` is 1 - 1 / n."""

    mean: float
    deviation: float
    share: float


def _spread_of(logs: Sequence[float]) -> _Spread:
    # `statistics` computes exactly, in fractions, which takes thirty times as long.
    mean = math.fsum(logs) / len(logs)
    squares = math.fsum((log - mean) ** 2 for log in logs)
    return _Spread(mean, math.sqrt(squares / (len(logs) - 1)), 1 - 1 / len(logs))


class Timeline:
    """The measured runs of one sweep, by kind of hardware, in the order of time."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: dict[int, Run] = {}
        self._kinds: dict[str | None, list[Run]] = {}
        self._correlations: dict[tuple[str | None, int], float] = {}
        for run in sorted(runs, key=_place):
            if _is_credible(run.step_time_s):
                self._runs[run.job_id] = run
                self._kinds.setdefault(run.fingerprint, []).append(run)

    def runs(self, job_ids: Iterable[int]) -> list[Run] | None:
        """Return the runs of these jobs in order of time; None if any or all are unknown."""
        found = [self._runs.get(job_id) for job_id in job_ids]
        known = sorted((run for run in found if run is not None), key=_place)
        return known if known and len(known) == len(found) else None

    def is_spread(self, runs: Sequence[Run]) -> bool:
        """Whether another cell was measured between these runs of one cell."""
        between = self._slice(runs[0].fingerprint, runs[0].place, runs[-1].place)
        return any(run.cell_hash != runs[0].cell_hash for run in between)

    def correlation(self, latest: Run) -> float:
        """Return the correlation of neighbours in time, from the 200 runs up to `latest`.

        r = sum of d(i) d(j) / sum of s(i) s(j), over all pairs of runs i and j of different cells
        of which j came next after i. d is the distance of the logarithm of a run's time from the
        mean of its cell, divided by 1 - 1 / n since that mean is of its n runs; s is the cell's
        standard deviation. Pairs of one cell say too little: what they share is in their mean.

        The result is (20 x 0.6 + N r) / (20 + N) for N pairs, r between 0 and 0.95, rounded up to
        a multiple of 0.05: a weighted mean with what is assumed where nothing is known. What
        comes later does not change it, so the verdict on a cell that is done stands.
        """
        key = latest.fingerprint, latest.place
        if key not in self._correlations:
            self._correlations[key] = self._correlation(latest)
        return self._correlations[key]

    def _correlation(self, latest: Run) -> float:
        first = latest.place - _WINDOW_RUNS + 1
        runs = self._slice(latest.fingerprint, first, latest.place)
        logs = [math.log(run.step_time_s) for run in runs]
        cells: dict[str, list[float]] = {}
        for run, log in zip(runs, logs, strict=True):
            cells.setdefault(run.cell_hash, []).append(log)
        known = {cell: _spread_of(of_cell) for cell, of_cell in cells.items() if len(of_cell) > 1}
        shared, expected, pair_count = 0.0, 0.0, 0
        neighbours = itertools.pairwise(zip(runs, logs, strict=True))
        for (run, log), (next_run, next_log) in neighbours:
            one, other = known.get(run.cell_hash), known.get(next_run.cell_hash)
            is_neighbour = next_run.place == run.place + 1
            if not is_neighbour or one is other or one is None or other is None:
                continue
            shared += (log - one.mean) / one.share * (next_log - other.mean) / other.share
            expected += one.deviation * other.deviation
            pair_count += 1
        if expected <= 0:
            return ASSUMED_CORRELATION
        found = min(max(shared / expected, 0.0), _MOST_CORRELATION)
        weighted = _ASSUMED_PAIRS * ASSUMED_CORRELATION + pair_count * found
        mean = weighted / (_ASSUMED_PAIRS + pair_count)
        return math.ceil(mean / _CORRELATION_STEP - 1e-9) * _CORRELATION_STEP

    def _slice(self, fingerprint: str | None, first: int, last: int) -> list[Run]:
        kind = self._kinds.get(fingerprint, [])
        return kind[bisect_left(kind, first, key=_place) : bisect_right(kind, last, key=_place)]


def timeline_of(measured: Iterable[tuple[int, str, str | None, float]]) -> Timeline:
    """Return the timeline of all that a sweep measured, in the order of time.

    Each is a job's id, the hash of its cell, its fingerprint and its step time.
    """
    counts: Counter[str | None] = Counter()
    runs = []
    for job_id, cell_hash, fingerprint, step_time_s in measured:
        counts[fingerprint] += 1
        runs.append(
            Run(
                job_id=job_id,
                place=counts[fingerprint],
                cell_hash=cell_hash,
                fingerprint=fingerprint,
                step_time_s=step_time_s,
            )
        )
    return Timeline(runs)


@functools.lru_cache(maxsize=4096)
def variance_inflation(gaps: tuple[int, ...], correlation: float) -> float:
    """Return how many times s^2 / n the variance of the mean of n correlated values is.

    s^2 is their sample variance; `gaps`: how many places each value comes after the one before.
    Values i and j correlate by r^|place i - place j|, as in a first-order autoregressive process.
    With D the mean of that over all pairs, those of a value with itself included, the variance of
    the mean is D times that of a value, and s^2 is an estimate of (1 - D) n / (n - 1) times it
    (Bayley and Hammersley 1946). The result is D (n - 1) / (1 - D): 1 for r = 0.
    """
    count = len(gaps) + 1
    if count < 2 or correlation <= 0:
        return 1.0
    places = [0, *itertools.accumulate(gaps)]
    shared = 0.0
    for i, place in enumerate(places):
        for other in places[i + 1 :]:
            term = correlation ** (other - place)
            if term < _NEGLIGIBLE:
                break
            shared += term
    mean = (count + 2 * shared) / count**2
    return mean * (count - 1) / (1 - mean)


@dataclass(frozen=True, slots=True)
class TimeInterval:
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatistics:
    """The statistics of one cell; a time is None until it is known.

    `count`: of the repetitions behind `median_s`, of one kind of hardware. `low_s` to `high_s` is
    the 95 % interval of the median step time. `target` None: the number of repetitions is fixed.
    """

    count: int
    median_s: float | None
    low_s: float | None
    high_s: float | None
    target: Target | None
    outlier_job_ids: tuple[int, ...]

    @property
    def half_width_ratio(self) -> float | None:
        """Half of the interval, over the median."""
        if self.median_s is None or self.low_s is None or self.high_s is None:
            return None
        return (self.high_s - self.low_s) / 2 / self.median_s


def time_interval(
    times_s: Sequence[float], *, is_sequential: bool, inflation: float = 1.0
) -> TimeInterval | None:
    """Return a 95 % interval of the median step time; None with fewer than 3 repetitions.

    exp(m -+ t s sqrt(f / n)), with m and s the mean and standard deviation of ln(time) over the n
    repetitions and t Student's quantile for n - 1 degrees of freedom. f is `inflation`, by which
    `variance_inflation` accounts for repetitions that depend on each other. For f = 1 and a fixed
    n it is exact if repetitions are independent and log-normal, whose median is exp(mean).

    `is_sequential`: n was not fixed but is where the interval became narrow enough. Stopping
    where the spread happens to look small makes the plain interval cover too rarely, so t is
    then that of 97 %. How often that covers the true median, by simulation, is in
    docs/measuring.md, of which tests/property/measuring/test_precision.py makes the table.
    """
    if len(times_s) < LEAST_REPETITIONS or min(times_s) <= 0:
        return None
    found = _spread_of([math.log(time_s) for time_s in times_s])
    half = _half_width(
        max(found.deviation, LEAST_DEVIATION),
        len(times_s),
        is_sequential=is_sequential,
        inflation=inflation,
    )
    return TimeInterval(math.exp(found.mean - half), math.exp(found.mean + half))


def cell_statistics(
    repetitions: Sequence[Repetition],
    precision: Precision | None,
    timeline: Timeline | None = None,
) -> CellStatistics:
    """Sum up one cell; `precision` None where its number of repetitions is fixed.

    `timeline`: of the cell's sweep; without one the repetitions count as run back to back.
    Outliers are repetitions far from the cell's median (see farm.statistics). They are
    named, and count in every figure all the same.
    """
    known = judged(repetitions)
    times_s = [time_s for _, time_s in known]
    inflation = cell_inflation([job_id for job_id, _ in known], timeline)
    interval = time_interval(times_s, is_sequential=precision is not None, inflation=inflation)
    return CellStatistics(
        count=len(known),
        median_s=weighted_median([(time_s, one.weight) for _, time_s, one in _judged(repetitions)])
        if times_s
        else None,
        low_s=interval.low_s if interval else None,
        high_s=interval.high_s if interval else None,
        target=None if precision is None else _target(repetitions, precision, timeline),
        outlier_job_ids=tuple(known[i][0] for i in outlier_positions(times_s)),
    )


def next_repetitions(
    repetitions: Sequence[Repetition], precision: Precision, timeline: Timeline | None = None
) -> int:
    """Return how many repetitions to add to a cell now; 0 while any of it waits or runs.

    Half of those that seem to be missing, but at least one: a wide farm does several at once,
    and an estimate of the spread from few repetitions is too uncertain to do all of them. By
    simulation that takes no more repetitions than adding one at a time.
    """
    is_pending = any(r.state is RepetitionState.PENDING for r in repetitions)
    if is_pending or _target(repetitions, precision, timeline) is not Target.RUNNING:
        return 0
    known = judged(repetitions)
    times_s = [time_s for _, time_s in known]
    room = precision.max_repetitions - len(repetitions)
    if len(times_s) < precision.min_repetitions:
        return min(room, precision.min_repetitions - len(times_s))
    inflation = cell_inflation([job_id for job_id, _ in known], timeline)
    needed = _needed(times_s, precision, inflation=inflation)
    return max(1, min(room, math.ceil((needed - len(times_s)) / 2)))


def cell_inflation(job_ids: Sequence[int], timeline: Timeline | None) -> float:
    """Return the `variance_inflation` of these repetitions of a cell, on one kind of hardware."""
    runs = timeline.runs(job_ids) if timeline else None
    if timeline is None or runs is None:
        return variance_inflation((1,) * (len(job_ids) - 1), ASSUMED_CORRELATION)
    gaps = tuple(later.place - earlier.place for earlier, later in itertools.pairwise(runs))
    return variance_inflation(gaps, timeline.correlation(runs[-1]))


def _target(
    repetitions: Sequence[Repetition], precision: Precision, timeline: Timeline | None
) -> Target:
    states = {r.state for r in repetitions}
    if RepetitionState.PENDING in states:
        return Target.RUNNING
    known = judged(repetitions)
    times_s = [time_s for _, time_s in known]
    if len(times_s) >= precision.min_repetitions:
        job_ids = [job_id for job_id, _ in known]
        inflation = cell_inflation(job_ids, timeline)
        if _is_precise(times_s, precision, inflation=inflation):
            runs = timeline.runs(job_ids) if timeline else None
            if all(one != UNDISTURBED for _, _, one in _judged(repetitions)):
                return Target.DISTURBED
            is_spread = bool(timeline and runs and timeline.is_spread(runs))
            return Target.REACHED if is_spread else Target.BACK_TO_BACK
    if RepetitionState.STOPPED in states or not times_s:
        return Target.ENDED
    return Target.CAP if len(repetitions) >= precision.max_repetitions else Target.RUNNING


def _is_precise(times_s: Sequence[float], precision: Precision, *, inflation: float) -> bool:
    interval = time_interval(times_s, is_sequential=True, inflation=inflation)
    if interval is None:
        return False
    half_s = (interval.high_s - interval.low_s) / 2
    return half_s <= precision.target_ratio * statistics.median(times_s)


def _needed(times_s: Sequence[float], precision: Precision, *, inflation: float) -> int:
    """Return the number of repetitions that would do if their spread were what it seems."""
    found = _spread_of([math.log(time_s) for time_s in times_s])
    deviation, count = max(found.deviation, LEAST_DEVIATION), len(times_s)
    while (
        count < precision.max_repetitions
        and _half_width(deviation, count, is_sequential=True, inflation=inflation)
        > precision.target_ratio
    ):
        count += 1
    return count


def _half_width(deviation: float, count: int, *, is_sequential: bool, inflation: float) -> float:
    confidence = SEQUENTIAL_CONFIDENCE if is_sequential else CONFIDENCE
    quantile = student_quantile((1 + confidence) / 2, count - 1)
    return quantile * deviation * math.sqrt(inflation / count)


def judged(repetitions: Sequence[Repetition]) -> list[tuple[int, float]]:
    """Return job and time of the measurements on the most measured kind of hardware.

    Disturbed repetitions count only where there are no others.
    """
    return [(job_id, time_s) for job_id, time_s, _ in _judged(repetitions)]


def _judged(repetitions: Sequence[Repetition]) -> list[tuple[int, float, Disturbance]]:
    measured = [
        (r.fingerprint, (r.job_id, r.step_time_s, r.disturbance))
        for r in repetitions
        # A job by epochs whose every step was partial has a time per epoch and no step time.
        if r.state is RepetitionState.MEASURED
        and r.step_time_s is not None
        and _is_credible(r.step_time_s)
    ]
    kinds: dict[str | None, list[tuple[int, float, Disturbance]]] = {}
    for kind, found in undisturbed_first(measured, lambda one: one[1][2]):
        kinds.setdefault(kind, []).append(found)
    return max(kinds.values(), key=lambda found: (len(found), found[-1][0]), default=[])


def _is_credible(time_s: float) -> bool:
    # An agent may report any number; what no clock has measured would overflow what is made of it.
    return LEAST_TIME_S <= time_s <= MOST_TIME_S


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRatio:
    """`low` to `high` is the 95 % interval of `ratio`; None where repetitions are too few."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def is_beyond_noise(self) -> bool | None:
        """Whether the interval excludes 1; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1


def time_ratio(
    times_s: Sequence[float],
    base_s: Sequence[float],
    *,
    is_sequential: bool,
    inflations: tuple[float, float] = (1.0, 1.0),
) -> TimeRatio | None:
    """Return how many times as long `times_s` are as `base_s`; None without any of either.

    The ratio of geometric means, whose logarithm is the difference d of two means. Its interval is
    exp(d -+ t e) with e^2 = v1 + v2 and t Student's quantile for

        (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1))

    degrees of freedom (Welch 1947), rounded down; v = f s^2 / n, s is the standard deviation of the
    logarithms and f of `inflations` the `variance_inflation` of either.
    It needs 3 repetitions of either. `is_sequential`: see `time_interval`.
    """
    if not times_s or not base_s or min(*times_s, *base_s) <= 0:
        return None
    logs, base_logs = [math.log(t) for t in times_s], [math.log(t) for t in base_s]
    distance = statistics.fmean(logs) - statistics.fmean(base_logs)
    ratio = math.exp(distance)
    if min(len(logs), len(base_logs)) < LEAST_REPETITIONS:
        return TimeRatio(ratio=ratio)
    shares = [
        inflation * statistics.variance(one) / len(one)
        for one, inflation in zip((logs, base_logs), inflations, strict=True)
    ]
    total = sum(shares)
    if total == 0:
        return TimeRatio(ratio=ratio, low=ratio, high=ratio)
    freedom = total**2 / sum(
        share**2 / (len(one) - 1) for share, one in zip(shares, (logs, base_logs), strict=True)
    )
    confidence = SEQUENTIAL_CONFIDENCE if is_sequential else CONFIDENCE
    quantile = student_quantile((1 + confidence) / 2, max(1, math.floor(freedom)))
    half = quantile * math.sqrt(total)
    return TimeRatio(ratio=ratio, low=math.exp(distance - half), high=math.exp(distance + half))
