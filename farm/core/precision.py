"""How well a cell's step time is known from its repetitions, and how many more it takes.

Each repetition is one attempt of its own: other processes, other memory, perhaps other machines.
Steps within an attempt share all that, so that more of them say little about the next attempt;
what repetitions differ by dominates (Kalibera and Jones 2013). So the median step time of a
repetition is one value here, and the number of values is what an interval rests on.

Measurements of different hardware are never pooled: of a cell that was measured on several kinds,
the kind with most repetitions is judged, and the others only count towards the cap.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from farm.core.outliers import outlier_positions
from farm.core.student import student_quantile

# With two, the interval is nine times as wide as the two are apart.
LEAST_REPETITIONS = 3
_CONFIDENCE = 0.95
# Of the interval that repetitions are stopped by; see `time_interval`.
_SEQUENTIAL_CONFIDENCE = 0.97
# An agent may report any number; what no clock has measured would overflow what is made of it.
_SHORTEST_S, _LONGEST_S = 1e-9, 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What repetitions go on for: half of the interval at most `target_ratio` of the median."""

    target_ratio: float = 0.02
    min_repetitions: int = LEAST_REPETITIONS
    max_repetitions: int = 10


class Outcome(enum.Enum):
    """What became of a repetition."""

    MEASURED = "measured"
    PENDING = "pending"  # waits or runs
    STOPPED = "stopped"  # its configuration failed or somebody cancelled it: no more of this cell
    LOST = "lost"  # machines failed until the retry policy gave up


class Target(enum.StrEnum):
    """How a cell stands with its precision."""

    REACHED = "reached"
    CAP = "cap"  # as many repetitions as are allowed, and not there yet
    RUNNING = "running"
    ENDED = "ended"  # there is nothing to go on with: it cannot run, or was cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """One job of a cell. `step_time_s`: its median; None unless it was measured."""

    job_id: int
    outcome: Outcome
    step_time_s: float | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class TimeInterval:
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatistics:
    """What is known of one cell; times are None as long as they are not known.

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


def time_interval(times_s: Sequence[float], *, is_sequential: bool) -> TimeInterval | None:
    """Return a 95 % interval of the median step time; None with fewer than 3 repetitions.

    exp(m -+ t s / sqrt(n)), with m and s the mean and standard deviation of ln(time) over the n
    repetitions and t Student's quantile for n - 1 degrees of freedom: exact for a fixed n, if
    repetitions are independent and log-normal, whose median is exp(mean).

    `is_sequential`: n was not fixed but is where the interval became narrow enough. Stopping
    where the spread happens to look small makes the plain interval cover too rarely, so t is
    then that of 97 %. By simulation (target 2 %, 3 to 10 repetitions, `next_repetitions`), the
    interval at stopping covers the true median in

        noise of a repetition   0.5 %   1 %   1.5 %   2 %   2.5 %   3 %   4 %   5 %
        plain 95 %               95.1  94.9    93.8  92.3    91.2  90.7  91.5  92.5
        as it is here            97.0  96.8    95.9  94.9    94.1  94.0  94.6  95.3
        repetitions needed        3.2   4.1     5.4   6.9     8.2   8.9   9.6   9.8

    per cent of the cases, and with 5 % of the repetitions slower by 5 to 50 % in 95.0 to 97.4 %.
    Where noise is so large that few cells reach the target, those few are the lucky ones: of
    them alone it covers 91 % at a noise of 2.5 % and 85 % at 3 %.
    """
    if len(times_s) < LEAST_REPETITIONS or min(times_s) <= 0:
        return None
    logs = [math.log(time_s) for time_s in times_s]
    middle = statistics.fmean(logs)
    half = _half_width(statistics.stdev(logs), len(logs), is_sequential=is_sequential)
    return TimeInterval(math.exp(middle - half), math.exp(middle + half))


def cell_statistics(
    repetitions: Sequence[Repetition], precision: Precision | None
) -> CellStatistics:
    """Sum up one cell; `precision` None where its number of repetitions is fixed.

    Outliers are repetitions far from the cell's median (see farm.core.outliers). They are named,
    and count in every figure all the same.
    """
    known = judged(repetitions)
    times_s = [time_s for _, time_s in known]
    interval = time_interval(times_s, is_sequential=precision is not None)
    return CellStatistics(
        count=len(known),
        median_s=statistics.median(times_s) if times_s else None,
        low_s=interval.low_s if interval else None,
        high_s=interval.high_s if interval else None,
        target=None if precision is None else _target(repetitions, precision),
        outlier_job_ids=tuple(known[i][0] for i in outlier_positions(times_s)),
    )


def next_repetitions(repetitions: Sequence[Repetition], precision: Precision) -> int:
    """Return how many repetitions to add to a cell now; 0 while any of it waits or runs.

    Half of those that seem to be missing, but at least one: a wide farm does several at once,
    and an estimate of the spread from few repetitions is too uncertain to do all of them. By the
    simulation of `time_interval` that takes no more repetitions than adding one at a time.
    """
    is_pending = any(r.outcome is Outcome.PENDING for r in repetitions)
    if is_pending or _target(repetitions, precision) is not Target.RUNNING:
        return 0
    times_s = [time_s for _, time_s in judged(repetitions)]
    room = precision.max_repetitions - len(repetitions)
    if len(times_s) < precision.min_repetitions:
        return min(room, precision.min_repetitions - len(times_s))
    missing = _needed(times_s, precision) - len(times_s)
    return max(1, min(room, math.ceil(missing / 2)))


def _target(repetitions: Sequence[Repetition], precision: Precision) -> Target:
    outcomes = {r.outcome for r in repetitions}
    if Outcome.PENDING in outcomes:
        return Target.RUNNING
    times_s = [time_s for _, time_s in judged(repetitions)]
    if len(times_s) >= precision.min_repetitions and _is_precise(times_s, precision):
        return Target.REACHED
    if Outcome.STOPPED in outcomes or not times_s:
        return Target.ENDED
    return Target.CAP if len(repetitions) >= precision.max_repetitions else Target.RUNNING


def _is_precise(times_s: Sequence[float], precision: Precision) -> bool:
    interval = time_interval(times_s, is_sequential=True)
    if interval is None:
        return False
    half_s = (interval.high_s - interval.low_s) / 2
    return half_s <= precision.target_ratio * statistics.median(times_s)


def _needed(times_s: Sequence[float], precision: Precision) -> int:
    """Return the number of repetitions that would do if their spread were what it seems."""
    deviation = statistics.stdev(math.log(time_s) for time_s in times_s)
    count = len(times_s)
    while (
        count < precision.max_repetitions
        and _half_width(deviation, count, is_sequential=True) > precision.target_ratio
    ):
        count += 1
    return count


def _half_width(deviation: float, count: int, *, is_sequential: bool) -> float:
    confidence = _SEQUENTIAL_CONFIDENCE if is_sequential else _CONFIDENCE
    return student_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)


def judged(repetitions: Sequence[Repetition]) -> list[tuple[int, float]]:
    """Return job and time of what was measured, on the kind of hardware with most of it."""
    kinds: dict[str | None, list[tuple[int, float]]] = {}
    for r in repetitions:
        # A job by epochs whose every step was partial has a time per epoch and no step time.
        if r.outcome is not Outcome.MEASURED or r.step_time_s is None:
            continue
        if _SHORTEST_S <= r.step_time_s <= _LONGEST_S:
            kinds.setdefault(r.fingerprint, []).append((r.job_id, r.step_time_s))
    return max(kinds.values(), key=lambda kind: (len(kind), kind[-1]), default=[])
