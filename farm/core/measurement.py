"""From what the ranks of one attempt reported to the one row that is compared and recommended.

Pure arithmetic on values already checked. What was not measured is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.core.reports import Sample
from farm.core.spec import JobSpec
from farm.core.trainer_lines import Epoch, TrainerResult

OK = "ok"  # the status of a measurement with a time; any other names why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """What one rank reported."""

    rank: int
    result: TrainerResult
    timed_begun_s: float | None  # begin of the timed window, seconds after go
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """Quantiles of timed steps, in seconds; `spread_s` is the interquartile range."""

    count: int
    median_s: float
    p25_s: float
    p75_s: float
    spread_s: float
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The measured columns of a measurement, named as they are stored.

    Means over ranks and ticks are of the timed window only; `resident_bytes` is the largest over
    the ranks. `sent_bytes_per_step` is what one rank sent for one step, on average over the ranks.
    """

    step_time_s: float | None
    step_time_p25_s: float | None
    step_time_p75_s: float | None
    step_time_spread_s: float | None
    timed_step_count: int | None
    steps_per_epoch: int
    time_per_epoch_s: float | None
    epochs: int | None
    accuracy: float | None
    throughput_examples_per_s: float | None
    compute_s: float | None
    communication_s: float | None
    profiled_step_time_s: float | None
    cpu_ratio: float | None
    resident_bytes: int | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None
    sent_bytes_per_step: float | None


def quantile(ordered: Sequence[float], ratio: float) -> float:
    """Interpolate linearly in an ascending, non-empty sequence (Hyndman and Fan's type 7)."""
    position = ratio * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def step_statistics(times_s: Iterable[float]) -> StepStatistics | None:
    """Summarise step times; None without any."""
    ordered = sorted(times_s)
    if not ordered:
        return None
    p25_s, p75_s = quantile(ordered, 0.25), quantile(ordered, 0.75)
    return StepStatistics(
        count=len(ordered),
        median_s=quantile(ordered, 0.5),
        p25_s=p25_s,
        p75_s=p75_s,
        spread_s=p75_s - p25_s,
        total_s=sum(ordered),
    )


def measure(
    spec: JobSpec,
    ranks: Sequence[RankOutcome],
    *,
    timed_steps_s: Sequence[float],
    epochs: Sequence[Epoch],
    train_examples_count: int,
) -> Measured:
    """Reduce a successful attempt to its measurement.

    `timed_steps_s` and `epochs` are rank 0's: the ranks of a synchronous gang step together, so
    one clock tells the gang's time, and a mean of clocks would only blur it. Partial and profiled
    steps are not among them. Throughput counts whole steps over the time they took together.
    """
    steps = step_statistics(timed_steps_s)
    steps_per_epoch = math.ceil(train_examples_count / spec.global_batch_size)
    time_per_epoch_s = _median([e.train_s for e in epochs])
    if time_per_epoch_s is None and steps is not None:
        time_per_epoch_s = steps.median_s * steps_per_epoch
    windows = [s for r in ranks for s in timed_samples(r)]
    profiles = [r.result.profile for r in ranks if r.result.profile is not None]
    chief = next(r.result for r in ranks if r.rank == 0)
    return Measured(
        step_time_s=steps.median_s if steps else None,
        step_time_p25_s=steps.p25_s if steps else None,
        step_time_p75_s=steps.p75_s if steps else None,
        step_time_spread_s=steps.spread_s if steps else None,
        timed_step_count=steps.count if steps else None,
        steps_per_epoch=steps_per_epoch,
        time_per_epoch_s=time_per_epoch_s,
        epochs=spec.epochs,
        accuracy=chief.val_accuracy_ratio,
        throughput_examples_per_s=(
            spec.global_batch_size * steps.count / steps.total_s
            if steps and steps.total_s > 0
            else None
        ),
        compute_s=mean(p.compute_s for p in profiles),
        communication_s=mean(p.communication_s for p in profiles),
        profiled_step_time_s=mean(p.step_time_s for p in profiles),
        cpu_ratio=mean(s.cpu_ratio for s in windows),
        resident_bytes=max(
            (s.resident_bytes for s in windows if s.resident_bytes is not None), default=None
        ),
        net_rx_bytes_per_s=mean(s.net_rx_bytes_per_s for s in windows),
        net_tx_bytes_per_s=mean(s.net_tx_bytes_per_s for s in windows),
        sent_bytes_per_step=sent_bytes_per_step(ranks),
    )


def timed_samples(rank: RankOutcome) -> tuple[Sample, ...]:
    """Return the samples whose second lies wholly within the timed window.

    A window shorter than that holds none; then every sample after go is the best there is.
    """
    if rank.timed_begun_s is None:
        return rank.samples
    end_s = rank.timed_begun_s + rank.result.timed_window_s
    inside = tuple(s for s in rank.samples if s.tick - 1 >= rank.timed_begun_s and s.tick <= end_s)
    return inside or rank.samples


def sent_bytes_per_step(ranks: Sequence[RankOutcome]) -> float | None:
    """Bytes that one rank sends per step over its own TCP connections, averaged over the ranks.

    Payload alone: headers come on top, and what else passed the interface is not in it. Partial
    steps send as much as full ones and are counted as such.
    """
    return mean(
        r.result.payload_tx_bytes / r.result.window_step_count
        if r.result.payload_tx_bytes is not None and r.result.window_step_count
        else None
        for r in ranks
    )


def ring_bytes_per_step(*, world_size: int, gradient_bytes: int) -> float:
    """Bytes one rank of a ring all-reduce sends per step: 2 (n - 1) / n x gradient bytes.

    Patarasuk and Yuan 2009. For n >= 1; 0 for one rank.
    """
    return 2 * (world_size - 1) / world_size * gradient_bytes


def scaling_efficiency_ratio(
    *, throughput_examples_per_s: float, world_size: int, single_examples_per_s: float
) -> float:
    """Strong scaling efficiency: throughput(n) / (n x throughput(1)), same global batch size."""
    return throughput_examples_per_s / (world_size * single_examples_per_s)


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of what was measured; None if nothing was."""
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def _median(values: Iterable[float]) -> float | None:
    ordered = sorted(values)
    return quantile(ordered, 0.5) if ordered else None
