"""Judges whether a measurement was disturbed, by samples, control runs and steps.

Pure. A value beyond a limit is *flagged*: the reason is stored with the measurement. A value far
beyond the limit makes the measurement *void*: it measures the disturbance, not the configuration.
No step is left out of a measurement because of noise. `disturbance_of` returns how much a flagged
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
from farm.sampling.names import (
    ECC_CORRECTED,
    ECC_UNCORRECTED,
    FOREIGN_PROCESSES,
    HARDWARE_SLOWDOWN,
    HEAT_SLOWDOWN,
    highest_of_gpus,
)
from farm.statistics import Outliers, find_outliers, mean, median_interval
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
    GPU_PROCESSES = "gpu_processes"
    GPU_SLOWDOWN = "gpu_slowdown"
    GPU_ECC = "gpu_ecc"


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
    # Of the agent's GPU that has most. NVML says that a process could compute, not how much it
    # does; and not how long an error held a step up. So neither makes a measurement void.
    gpu_foreign_process_count: NoiseLimit = NoiseLimit(0.0, None)
    gpu_ecc_errors_per_s: NoiseLimit = NoiseLimit(0.0, None)
    # Like a CPU quota: of these seconds the hardware's slowdowns at least halve the clocks.
    gpu_slowdown_ratio: NoiseLimit = NoiseLimit(0.01, 0.10)


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
        """Return its stored form."""
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
    """Return the disturbance of a measurement from its stored flags.

    The weight of one flag falls evenly from 1 at the limit that flags to 0.1 at the limit that
    voids. Beyond that it is 0.1 x limit / value. A flag without a value, or of a kind that never
    voids, weighs 0.5. Several flags: the least weight. Flags of importers are no disturbances.
    """
    used = limits or NoiseLimits()
    kinds: dict[NoiseKind, None] = {}
    weight = 1.0
    for flag in flags:
        if flag["kind"] in _BY_KIND:
            kind = NoiseKind(flag["kind"])
            kinds[kind] = None
            weight = min(weight, _weight(_BY_KIND[kind].limit(used), flag.get("value")))
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
    return ", ".join(f"{_BY_KIND[kind].named} ({count})" for kind, count in counts.most_common())


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
    """The evidence of one rank. `ranks_per_core`: see `ranks_on_a_core`."""

    agent_id: str
    outcome: RankOutcome
    control: ControlRun | None
    ranks_per_core: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseVerdict:
    """`voids`: the flags that make it void, the worst first; `flags` contains them, too.

    `step_time_low_s` and `_high_s`: 95 % interval of the median of the timed steps, within this
    attempt. `control_ratio`: the slowest rank's. `largest_outlier_s`: see farm.statistics.
    """

    flags: tuple[NoiseFlag, ...] = ()
    voids: tuple[NoiseFlag, ...] = ()
    control_ratio: float | None = None
    outlier_step_count: int | None = None
    largest_outlier_s: float | None = None
    step_time_low_s: float | None = None
    step_time_high_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Measure:
    """What was measured of a kind of noise; None: it is not known.

    `limit`: instead of that of the kind; `detail`: what its phrase goes on with.
    """

    kind: NoiseKind
    value: float | None
    limit: NoiseLimit | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Finding:
    flag: NoiseFlag
    severity: float | None  # value over the limit that voids; None: it does not void


def judge_noise(
    ranks: Sequence[RankEvidence],
    *,
    timed_steps_s: Mapping[int, Sequence[float]],
    limits: NoiseLimits,
    ranks_per_agent: int = 1,
) -> NoiseVerdict:
    """Judge a successful attempt.

    `ranks`: one for each agent, which is called by its place in the gang. `timed_steps_s`: of the
    ranks that tell the gang's time, rank 0 alone where they step together. Each is held against its
    own median: ranks out of step differ without being disturbed.
    """
    findings = []
    for evidence in ranks:
        rank, agent_id = evidence.outcome.rank, evidence.agent_id
        measures = [
            *_of_samples(window_samples(evidence.outcome)),
            _of_control(evidence.control, limits),
            _of_holes(evidence.outcome),
            _Measure(NoiseKind.SHARED_CORES, evidence.ranks_per_core),
        ]
        findings += _findings(measures, limits, rank=rank, where=_place(rank, agent_id))
    outliers = {rank: find_outliers(times_s) for rank, times_s in timed_steps_s.items()}
    for rank, found in outliers.items():
        of_steps = _of_outliers(found, step_count=len(timed_steps_s[rank]))
        where = f"rank {rank}"
        if ranks_per_agent > 1:
            where = f"agent {ranks[rank // ranks_per_agent].agent_id}, process of rank {rank}"
        findings += _findings([of_steps], limits, rank=None, where=where)
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
    """Return flags of the control runs that are too slow to measure, the slowest first."""
    findings = []
    for rank, agent_id, run in runs:
        where = _place(rank, agent_id)
        findings += _findings([_of_control(run, limits)], limits, rank=rank, where=where)
    return _voids(findings, limits)


def foreign_load_ratio(sample: Sample) -> float | None:
    """Return the share of the agent's cores that neither the trainers nor interrupts used.

    0 where the trainers' own share exceeds the machine's: the two are not read in one instant.
    """
    if sample.machine_cpu_ratio is None or sample.cpu_ratio is None:
        return None
    interrupts = sample.extra.get(INTERRUPT_EXTRA, 0.0)
    return max(0.0, sample.machine_cpu_ratio - interrupts - sample.cpu_ratio)


def _of_samples(samples: Sequence[Sample]) -> list[_Measure]:
    return [
        _Measure(noise.kind, mean(noise.of_sample(sample) for sample in samples))
        for noise in _NOISE
        if noise.of_sample is not None
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
        NoiseKind.CONTROL_RUN,
        None if ratio is None else ratio - 1,
        limit=limit,
        detail=f" {count}",
    )


def _of_holes(outcome: RankOutcome) -> _Measure:
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
    return _Measure(NoiseKind.HOLES, value)


def _of_outliers(outliers: Outliers, *, step_count: int) -> _Measure:
    """Judge far steps that follow each other.

    Far steps all over a run are how the training itself behaves, such as one of two durations.
    """
    longest = (
        "" if outliers.largest_s is None else f", the longest of {duration(outliers.largest_s)}"
    )
    return _Measure(
        NoiseKind.OUTLIERS,
        outliers.count / step_count if step_count and outliers.is_in_stretches else None,
        detail=longest,
    )


def _findings(
    measures: Iterable[_Measure], limits: NoiseLimits, *, rank: int | None, where: str
) -> list[_Finding]:
    findings = []
    for measure in measures:
        noise = _BY_KIND[measure.kind]
        value, limit = measure.value, measure.limit or noise.limit(limits)
        if value is None or value <= limit.flag:
            continue
        over = limit.void if limit.void is not None and value > limit.void else None
        shown = noise.write(limit.flag if over is None else over)
        phrase = noise.phrase.format(noise.write(value)) + measure.detail
        flag = NoiseFlag(
            kind=measure.kind,
            message=f"{where}: {phrase} (limit {shown})",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """A kind of noise.

    - `named`: what disturbed, as a sentence says it after "disturbed by"
    - `limit`: of its value
    - `phrase`: what was measured, with a place for the value that `write` has written
    - `of_sample`: what a second says of it, whose mean over the window is the value; None: it is
      found in another way
    """

    kind: NoiseKind
    named: str
    limit: Callable[[NoiseLimits], NoiseLimit]
    phrase: str
    write: Callable[[float], str] = _percent
    of_sample: Callable[[Sample], float | None] | None = None


# In the order of docs/measuring.md.
_NOISE = (
    _Noise(
        kind=NoiseKind.STEAL,
        named="the hypervisor",
        limit=lambda limits: limits.steal_ratio,
        phrase="{} of its cores was stolen by the hypervisor",
        of_sample=lambda sample: sample.machine_steal_ratio,
    ),
    _Noise(
        kind=NoiseKind.FOREIGN_LOAD,
        named="other programs",
        limit=lambda limits: limits.foreign_load_ratio,
        phrase="{} of its cores was used by other programs",
        of_sample=foreign_load_ratio,
    ),
    _Noise(
        kind=NoiseKind.THROTTLED,
        named="a CPU quota",
        limit=lambda limits: limits.throttled_ratio,
        phrase="{} of its cores was held back by a CPU quota",
        of_sample=lambda sample: sample.throttled_ratio,
    ),
    _Noise(
        kind=NoiseKind.THERMAL,
        named="heat",
        limit=lambda limits: limits.thermal_throttles_per_s,
        phrase="its cores were slowed down for their heat {}",
        write=lambda value: f"{value:.2g} times a second",
        of_sample=lambda sample: sample.extra.get(THERMAL_EXTRA),
    ),
    _Noise(
        kind=NoiseKind.SWAP,
        named="swapping",
        limit=lambda limits: limits.swap_bytes_per_s,
        phrase="{} went to and from swap",
        write=byte_rate,
        of_sample=lambda sample: sample.swap_bytes_per_s,
    ),
    _Noise(
        kind=NoiseKind.CONTROL_RUN,
        named="a slow control run",
        limit=lambda limits: limits.control_excess_ratio,
        phrase="its control run took {} longer than the median of its last",
    ),
    _Noise(
        kind=NoiseKind.HOLES,
        named="seconds without samples",
        limit=lambda limits: limits.hole_ratio,
        phrase="{} of the timed seconds were not sampled",
    ),
    _Noise(
        kind=NoiseKind.OUTLIERS,
        named="steps far from the median",
        limit=lambda limits: limits.outlier_ratio,
        phrase="{} of its timed steps are far from the median",
    ),
    _Noise(
        kind=NoiseKind.SHARED_CORES,
        named="ranks on the same cores",
        limit=lambda limits: limits.ranks_per_core,
        phrase="it had {} ranks for each of its cores",
        write="{:.3g}".format,
    ),
    _Noise(
        kind=NoiseKind.GPU_PROCESSES,
        named="other programs on the GPU",
        limit=lambda limits: limits.gpu_foreign_process_count,
        phrase="other programs had {} processes on one of its GPUs",
        write="{:.2g}".format,
        of_sample=lambda sample: highest_of_gpus(sample.extra, FOREIGN_PROCESSES),
    ),
    _Noise(
        kind=NoiseKind.GPU_SLOWDOWN,
        named="slowed GPU clocks",
        limit=lambda limits: limits.gpu_slowdown_ratio,
        phrase="heat or its power supply slowed one of its GPUs in {} of the seconds",
        of_sample=lambda sample: highest_of_gpus(sample.extra, HEAT_SLOWDOWN, HARDWARE_SLOWDOWN),
    ),
    _Noise(
        kind=NoiseKind.GPU_ECC,
        named="memory errors of the GPU",
        limit=lambda limits: limits.gpu_ecc_errors_per_s,
        phrase="the memory of one of its GPUs had {} errors a second",
        write="{:.2g}".format,
        of_sample=lambda sample: highest_of_gpus(sample.extra, ECC_CORRECTED, ECC_UNCORRECTED),
    ),
)
_BY_KIND: Mapping[str, _Noise] = {noise.kind: noise for noise in _NOISE}
