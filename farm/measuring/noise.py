"""Judges whether a measurement was disturbed, by samples, control runs and steps.

Pure. What is beyond a limit is *flagged*: stored with the measurement, with a reason. What is far
beyond it makes the measurement *void*: it says something of the disturbance, not of what was asked.
Nothing is ever left out of a measurement because of it; `disturbance_of` says how much a flagged
measurement counts as evidence.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from farm.configuration.spec import JobSpec
from farm.measuring.control_run import PAST_COUNT, ControlRun
from farm.measuring.measurement import RankOutcome, window_samples
from farm.messages.reports import Sample
from farm.statistics.intervals import median_interval
from farm.statistics.means import mean
from farm.statistics.outliers import Outliers, find_outliers
from farm.text.display import byte_rate, duration, percent, percent_in_digits

# What the agent's thermal group calls its reading, among the extras of a sample.
THERMAL_EXTRA = "thermal_throttles_per_s"
# Time that the kernel spent on the network's and the disks' behalf, the trainer's own above all.
INTERRUPT_EXTRA = "machine_interrupt_ratio"


class NoiseKind(enum.StrEnum):
    STEAL = "steal"
    FOREIGN_LOAD = "foreign_load"
    THROTTLED = "throttled"
    THERMAL = "thermal"
    SWAP = "swap"
    CONTROL_RUN = "control_run"
    HOLES = "holes"
    OUTLIERS = "outliers"
    SHARED_CORES = "shared_cores"


# What disturbed, as a sentence says it after "disturbed by".
_NAMED: Mapping[NoiseKind, str] = {
    NoiseKind.STEAL: "the hypervisor",
    NoiseKind.FOREIGN_LOAD: "other programs",
    NoiseKind.THROTTLED: "a CPU quota",
    NoiseKind.THERMAL: "heat",
    NoiseKind.SWAP: "swapping",
    NoiseKind.CONTROL_RUN: "a slow control run",
    NoiseKind.HOLES: "seconds without samples",
    NoiseKind.OUTLIERS: "steps far from the median",
    NoiseKind.SHARED_CORES: "ranks on the same cores",
}


class NoisePolicy(enum.StrEnum):
    """What becomes of a measurement beyond the limits."""

    VOID = "void"  # far beyond: the attempt is void, and the job is tried again
    FLAG = "flag"  # it is kept and flagged, however far beyond


@dataclass(frozen=True, slots=True)
class NoiseLimit:
    """`void` None: it never makes a measurement void."""

    flag: float
    void: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseLimits:
    """Means over the timed window of one rank, unless said otherwise. docs/measuring.md: why."""

    policy: NoisePolicy = NoisePolicy.VOID
    steal_ratio: NoiseLimit = NoiseLimit(0.02, 0.10)
    foreign_load_ratio: NoiseLimit = NoiseLimit(0.10, 0.30)
    throttled_ratio: NoiseLimit = NoiseLimit(0.01, 0.10)
    thermal_throttles_per_s: NoiseLimit = NoiseLimit(0.0, None)
    swap_bytes_per_s: NoiseLimit = NoiseLimit(1e6, 20e6)
    control_excess_ratio: NoiseLimit = NoiseLimit(0.10, 0.30)  # how much slower than its own past
    hole_ratio: NoiseLimit = NoiseLimit(0.10, None)  # of the window's ticks
    outlier_ratio: NoiseLimit = NoiseLimit(0.10, None)  # of the timed steps
    ranks_per_core: NoiseLimit = NoiseLimit(1.0, None)  # of an agent


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFlag:
    """One thing that disturbed, in words for a user; `rank` None: it concerns the whole gang.

    `value`: what was measured, in the unit of its limit in `NoiseLimits`; None: not recorded.
    """

    kind: NoiseKind
    message: str
    rank: int | None = None
    value: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored with a measurement."""
        return {"kind": self.kind.value, "message": self.message, "value": self.value}


# The weight of a measurement at the limit that voids, and of one whose kind has no such limit.
WEIGHT_AT_VOID = 0.1
WEIGHT_UNMEASURED = 0.5


@dataclass(frozen=True, slots=True)
class Disturbance:
    """How much a stored measurement counts as evidence, and what disturbed it.

    `weight` is above 0 and at most 1. `kinds` empty: nothing disturbed it, and the weight is 1.
    """

    weight: float = 1.0
    kinds: tuple[NoiseKind, ...] = ()


UNDISTURBED = Disturbance()


def disturbance_of(
    flags: Iterable[Mapping[str, Any]], limits: NoiseLimits | None = None
) -> Disturbance:
    """Return what the flags stored with a measurement say of it as evidence.

    The weight of one flag falls evenly from 1 at the limit that flags to 0.1 at the limit that
    voids. Beyond that it is 0.1 x limit / value. A flag without a value, or of a kind that never
    voids, weighs 0.5. Several flags: the least weight. Flags of importers are no disturbances.
    """
    used = limits or NoiseLimits()
    kinds: dict[NoiseKind, None] = {}
    weight = 1.0
    for flag in flags:
        if flag["kind"] in _KINDS:
            kind = NoiseKind(flag["kind"])
            kinds[kind] = None
            weight = min(weight, _weight(_limit_of(kind, used), flag.get("value")))
    return Disturbance(weight, tuple(kinds))


class Flagged(Protocol):
    """A measurement with its flags."""

    @property
    def flags(self) -> Sequence[Mapping[str, Any]]: ...


def disturbance_of_row(row: Flagged) -> Disturbance:
    """Return what disturbed a stored measurement."""
    return disturbance_of(row.flags or ())


_Measured = TypeVar("_Measured")


def undisturbed_first(
    measured: Sequence[_Measured],
    disturbance: Callable[[_Measured], Disturbance],
    *,
    cell: Callable[[_Measured], Hashable] = lambda _: None,
) -> list[_Measured]:
    """Return the undisturbed measurements of each cell, or all of a cell that has none.

    `cell`: what tells the configuration of a measurement; without it all are of one.
    """
    quiet = [disturbance(one) == UNDISTURBED for one in measured]
    cells = {cell(one) for one, is_quiet in zip(measured, quiet, strict=True) if is_quiet}
    return [
        one
        for one, is_quiet in zip(measured, quiet, strict=True)
        if is_quiet or cell(one) not in cells
    ]


def disturbed_by(disturbances: Iterable[Disturbance]) -> str:
    """List what disturbed measurements and how many of them each, the most frequent first."""
    counts = Counter(kind for one in disturbances for kind in one.kinds)
    return ", ".join(f"{_NAMED[kind]} ({count})" for kind, count in counts.most_common())


_KINDS = frozenset(kind.value for kind in NoiseKind)


def _limit_of(kind: NoiseKind, limits: NoiseLimits) -> NoiseLimit:
    return {
        NoiseKind.STEAL: limits.steal_ratio,
        NoiseKind.FOREIGN_LOAD: limits.foreign_load_ratio,
        NoiseKind.THROTTLED: limits.throttled_ratio,
        NoiseKind.THERMAL: limits.thermal_throttles_per_s,
        NoiseKind.SWAP: limits.swap_bytes_per_s,
        NoiseKind.CONTROL_RUN: limits.control_excess_ratio,
        NoiseKind.HOLES: limits.hole_ratio,
        NoiseKind.OUTLIERS: limits.outlier_ratio,
        NoiseKind.SHARED_CORES: limits.ranks_per_core,
    }[kind]


def _weight(limit: NoiseLimit, value: float | None) -> float:
    if value is None or limit.void is None:
        return WEIGHT_UNMEASURED
    if value > limit.void:
        return WEIGHT_AT_VOID * limit.void / value
    beyond = max(0.0, value - limit.flag) / (limit.void - limit.flag)
    return 1 - (1 - WEIGHT_AT_VOID) * beyond


def ranks_on_a_core(spec: JobSpec, agent: int, core_count: float | None) -> float | None:
    """Return how many ranks train on each core of an agent, by its place in the gang.

    None where nobody knows its cores, and where no ranks could share them: an agent with one rank,
    which may have less than a core, or with a server alone.
    """
    trains = agent < spec.training_agent_count
    if not core_count or not trains or spec.ranks_per_agent == 1:
        return None
    return spec.ranks_per_agent / core_count


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEvidence:
    """What is known of one rank. `ranks_per_core`: see `ranks_on_a_core`."""

    agent_id: str
    outcome: RankOutcome
    control: ControlRun | None
    ranks_per_core: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseVerdict:
    """`voids`: what makes it void, the worst first; all of them are among `flags` too.

    `step_time_low_s` and `_high_s`: 95 % interval of the median of the timed steps, within this
    attempt. `control_ratio`: the slowest rank's. `largest_outlier_s`: see farm.statistics.outliers.
    """

    flags: tuple[NoiseFlag, ...] = ()
    voids: tuple[NoiseFlag, ...] = ()
    control_ratio: float | None = None
    outlier_step_count: int | None = None
    largest_outlier_s: float | None = None
    step_time_low_s: float | None = None
    step_time_high_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """One quantity that may exceed its limit. `phrase` has a place for the written value."""

    kind: NoiseKind
    value: float | None
    limit: NoiseLimit
    phrase: str
    write: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class _Finding:
    flag: NoiseFlag
    severity: float | None  # value over the limit that voids; None: it does not void


def judge(
    ranks: Sequence[RankEvidence],
    *,
    timed_steps_s: Mapping[int, Sequence[float]],
    limits: NoiseLimits,
) -> NoiseVerdict:
    """Judge a successful attempt.

    `timed_steps_s`: of the ranks that tell the gang's time, rank 0 alone where they step together.
    Each is held against its own median: ranks out of step differ without being disturbed.
    """
    findings = []
    for evidence in ranks:
        rank, agent_id = evidence.outcome.rank, evidence.agent_id
        measures = [
            *_of_samples(window_samples(evidence.outcome), limits),
            _of_control(evidence.control, limits),
            _of_holes(evidence.outcome, limits),
            _Measure(
                kind=NoiseKind.SHARED_CORES,
                value=evidence.ranks_per_core,
                limit=limits.ranks_per_core,
                phrase="it had {} ranks for each of its cores",
                write="{:.3g}".format,
            ),
        ]
        findings += _findings(measures, rank=rank, where=_place(rank, agent_id))
    outliers = {rank: find_outliers(times_s) for rank, times_s in timed_steps_s.items()}
    for rank, found in outliers.items():
        of_steps = _of_outliers(found, step_count=len(timed_steps_s[rank]), limits=limits)
        findings += _findings([of_steps], rank=None, where=f"rank {rank}")
    pooled = [time_s for times_s in timed_steps_s.values() for time_s in times_s]
    low_s, high_s = median_interval(pooled) or (None, None)
    largest_s = [found.largest_s for found in outliers.values() if found.largest_s is not None]
    ratios = [e.control.ratio for e in ranks if e.control is not None]
    return NoiseVerdict(
        flags=tuple(finding.flag for finding in findings),
        voids=_voids(findings, limits),
        control_ratio=max((ratio for ratio in ratios if ratio is not None), default=None),
        outlier_step_count=sum(o.count for o in outliers.values()) if pooled else None,
        largest_outlier_s=max(largest_s, default=None),
        step_time_low_s=low_s,
        step_time_high_s=high_s,
    )


def control_voids(
    runs: Iterable[tuple[int, str, ControlRun | None]], limits: NoiseLimits
) -> tuple[NoiseFlag, ...]:
    """Return which of the (rank, agent id, run) forbid to measure at all, the slowest first."""
    findings = []
    for rank, agent_id, run in runs:
        where = _place(rank, agent_id)
        findings += _findings([_of_control(run, limits)], rank=rank, where=where)
    return _voids(findings, limits)


def foreign_load_ratio(sample: Sample) -> float | None:
    """Return the share of the agent's cores that neither the trainers nor interrupts used.

    0 where the trainers' own share exceeds the machine's: the two are not read in one instant.
    """
    if sample.machine_cpu_ratio is None or sample.cpu_ratio is None:
        return None
    interrupts = sample.extra.get(INTERRUPT_EXTRA, 0.0)
    return max(0.0, sample.machine_cpu_ratio - interrupts - sample.cpu_ratio)


def _of_samples(samples: Sequence[Sample], limits: NoiseLimits) -> list[_Measure]:
    return [
        _Measure(
            kind=NoiseKind.STEAL,
            value=mean(s.machine_steal_ratio for s in samples),
            limit=limits.steal_ratio,
            phrase="{} of its cores was stolen by the hypervisor",
            write=_percent,
        ),
        _Measure(
            kind=NoiseKind.FOREIGN_LOAD,
            value=mean(foreign_load_ratio(s) for s in samples),
            limit=limits.foreign_load_ratio,
            phrase="{} of its cores was used by other programs",
            write=_percent,
        ),
        _Measure(
            kind=NoiseKind.THROTTLED,
            value=mean(s.throttled_ratio for s in samples),
            limit=limits.throttled_ratio,
            phrase="{} of its cores was held back by a CPU quota",
            write=_percent,
        ),
        _Measure(
            kind=NoiseKind.THERMAL,
            value=mean(s.extra.get(THERMAL_EXTRA) for s in samples),
            limit=limits.thermal_throttles_per_s,
            phrase="its cores were slowed down for their heat {}",
            write=lambda value: f"{value:.2g} times a second",
        ),
        _Measure(
            kind=NoiseKind.SWAP,
            value=mean(s.swap_bytes_per_s for s in samples),
            limit=limits.swap_bytes_per_s,
            phrase="{} went to and from swap",
            write=byte_rate,
        ),
    ]


def _of_control(run: ControlRun | None, limits: NoiseLimits) -> _Measure:
    """Flag by the whole past; void only what is slower than the latest runs alone, too.

    Otherwise a machine that has changed for good would have no measurement for ten attempts.
    """
    limit = limits.control_excess_ratio
    ratio = run.ratio if run is not None else None
    recent_ratio = run.recent_ratio if run is not None else None
    if limit.void is not None and recent_ratio is not None and recent_ratio - 1 <= limit.void:
        limit = NoiseLimit(limit.flag, None)
    count = min(len(run.past_s), PAST_COUNT) if run is not None else 0
    return _Measure(
        kind=NoiseKind.CONTROL_RUN,
        value=None if ratio is None else ratio - 1,
        limit=limit,
        phrase=f"its control run took {{}} longer than the median of its last {count}",
        write=_percent,
    )


def _of_holes(outcome: RankOutcome, limits: NoiseLimits) -> _Measure:
    """Compare the ticks that lie wholly within the timed window with those that were read.

    One lost tick of a short window says nothing, so it takes two.
    """
    value = None
    if outcome.timed_begun_s is not None:
        first = math.ceil(outcome.timed_begun_s) + 1
        last = math.floor(outcome.timed_begun_s + outcome.result.timed_window_s)
        expected = max(0, last - first + 1)
        missing = expected - sum(first <= s.tick <= last for s in outcome.samples)
        value = missing / expected if missing >= 2 else None
    return _Measure(
        kind=NoiseKind.HOLES,
        value=value,
        limit=limits.hole_ratio,
        phrase="{} of the timed seconds were not sampled",
        write=_percent,
    )


def _of_outliers(outliers: Outliers, *, step_count: int, limits: NoiseLimits) -> _Measure:
    """Judge far steps that follow each other.

    Far steps all over a run are how the training itself behaves, such as one of two durations.
    """
    longest = (
        "" if outliers.largest_s is None else f", the longest of {duration(outliers.largest_s)}"
    )
    return _Measure(
        kind=NoiseKind.OUTLIERS,
        value=outliers.count / step_count if step_count and outliers.is_in_stretches else None,
        limit=limits.outlier_ratio,
        phrase=f"{{}} of its timed steps are far from the median{longest}",
        write=_percent,
    )


def _findings(measures: Iterable[_Measure], *, rank: int | None, where: str) -> list[_Finding]:
    findings = []
    for measure in measures:
        value, limit = measure.value, measure.limit
        if value is None or value <= limit.flag:
            continue
        over = limit.void if limit.void is not None and value > limit.void else None
        shown = measure.write(limit.flag if over is None else over)
        told = measure.phrase.format(measure.write(value))
        flag = NoiseFlag(
            kind=measure.kind,
            message=f"{where}: {told} (limit {shown})",
            rank=rank,
            value=value,
        )
        findings.append(_Finding(flag, None if over is None else value / over))
    return findings


def _voids(findings: Iterable[_Finding], limits: NoiseLimits) -> tuple[NoiseFlag, ...]:
    if limits.policy is NoisePolicy.FLAG:
        return ()
    voiding = [(f.severity, f.flag) for f in findings if f.severity is not None]
    return tuple(flag for _, flag in sorted(voiding, key=lambda pair: pair[0], reverse=True))


def _place(rank: int, agent_id: str) -> str:
    return f"agent {agent_id}, rank {rank}"


def _percent(ratio: float) -> str:
    return percent(ratio) if ratio >= 0.0995 else percent_in_digits(ratio, 2)
