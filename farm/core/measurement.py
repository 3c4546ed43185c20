"""From what the ranks of one attempt reported to the one row that is compared and recommended.

Pure arithmetic on values already checked. What was not measured is None, never 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.core.exchange_figures import exchange_figures
from farm.core.means import mean
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

    Means over ranks and ticks are of the timed window and of the ranks that train only;
    `resident_bytes` is the largest of theirs. `sent_bytes_per_step` and `received_bytes_per_step`
    are those of one rank for one step, on average over the ranks.
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
    received_bytes_per_step: float | None
    idle_ratio: float | None
    push_s: float | None
    pull_s: float | None
    update_count: int | None
    staleness_mean: float | None
    staleness_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """What a rank that only serves used, on average over the seconds in which ranks trained."""

    rank: int
    cpu_ratio: float | None
    resident_bytes: int | None  # the largest
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None


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


def averaged(times_s: Sequence[float], step_count: int) -> tuple[float, ...]:
    """Return the means of so many consecutive steps each; what is left over is left out.

    Where ranks exchange something only every k-th step, the median of single steps would hide the
    exchange; k steps in a row hold one, unless it fell on a partial step, which is not among them.
    Of fewer than k steps the mean of all is returned.
    """
    if step_count == 1 or not times_s:
        return tuple(times_s)
    width = min(step_count, len(times_s))
    ends = range(width, len(times_s) + 1, width)
    return tuple(math.fsum(times_s[end - width : end]) / width for end in ends)


def measure(
    spec: JobSpec,
    ranks: Sequence[RankOutcome],
    *,
    timed_steps_s: Mapping[int, Sequence[float]],
    epochs: Mapping[int, Sequence[Epoch]],
    train_examples_count: int,
    is_synchronous: bool = True,
) -> Measured:
    """Reduce a successful attempt to its measurement.

    `timed_steps_s` and `epochs` are by rank. The ranks of a synchronous gang step together, so one
    clock tells the gang's time, and a mean of clocks would only blur it: only rank 0's are looked
    at. Otherwise each rank goes at its own pace, and those of all ranks that train are: their steps
    are pooled, and an epoch, and what was trained in all, is over with the slowest. Partial and
    profiled steps are not among them. Throughput counts whole steps over the time they took.
    """
    pace = {r: times_s for r, times_s in timed_steps_s.items() if times_s}
    if is_synchronous:
        pace = {r: times_s for r, times_s in pace.items() if r == 0}
    pooled = [
        time_s
        for times_s in pace.values()
        for time_s in averaged(times_s, spec.steps_between_averages)
    ]
    steps = step_statistics(pooled)
    steps_per_epoch = math.ceil(train_examples_count / spec.global_batch_size)
    training = [r for r in ranks if r.rank < spec.world_size]
    windows = [s for r in training for s in timed_samples(r)]
    profiles = [r.result.profile for r in training if r.result.profile is not None]
    exchange = exchange_figures(
        profiles, [r.result.exchange for r in training], is_synchronous=is_synchronous
    )
    chief = next(r.result for r in ranks if r.rank == 0)
    return Measured(
        step_time_s=steps.median_s if steps else None,
        step_time_p25_s=steps.p25_s if steps else None,
        step_time_p75_s=steps.p75_s if steps else None,
        step_time_spread_s=steps.spread_s if steps else None,
        timed_step_count=sum(map(len, pace.values())) if steps else None,
        steps_per_epoch=steps_per_epoch,
        time_per_epoch_s=_time_per_epoch_s(spec, pace, epochs, steps_per_epoch),
        epochs=spec.epochs,
        accuracy=chief.val_accuracy_ratio,
        throughput_examples_per_s=_throughput(spec, pace, is_synchronous=is_synchronous),
        compute_s=mean(p.compute_s for p in profiles),
        communication_s=mean(p.communication_s for p in profiles),
        profiled_step_time_s=mean(p.step_time_s for p in profiles),
        cpu_ratio=mean(s.cpu_ratio for s in windows),
        resident_bytes=_largest(s.resident_bytes for s in windows),
        net_rx_bytes_per_s=mean(s.net_rx_bytes_per_s for s in windows),
        net_tx_bytes_per_s=mean(s.net_tx_bytes_per_s for s in windows),
        sent_bytes_per_step=sent_bytes_per_step(training),
        received_bytes_per_step=received_bytes_per_step(training),
        **exchange.columns,
    )


def servers(spec: JobSpec, ranks: Sequence[RankOutcome]) -> tuple[ServerFigures, ...]:
    """Return what the ranks used that only serve, which are after those that train.

    They cannot tell timed steps from others, so that rank 0 tells when the steps were timed; the
    receipts of *go*, which seconds are counted from, are at most a message's time apart.
    """
    chief = next(r for r in ranks if r.rank == 0)
    return tuple(
        ServerFigures(
            rank=rank.rank,
            cpu_ratio=mean(s.cpu_ratio for s in window),
            resident_bytes=_largest(s.resident_bytes for s in window),
            net_rx_bytes_per_s=mean(s.net_rx_bytes_per_s for s in window),
            net_tx_bytes_per_s=mean(s.net_tx_bytes_per_s for s in window),
        )
        for rank in ranks
        if rank.rank >= spec.world_size
        for window in [timed_samples(dataclasses.replace(chief, samples=rank.samples))]
    )


def _time_per_epoch_s(
    spec: JobSpec,
    pace: Mapping[int, Sequence[float]],
    epochs: Mapping[int, Sequence[Epoch]],
    steps_per_epoch: int,
) -> float | None:
    """Return the median over the epochs, each over with its slowest rank; or step time x steps."""
    slowest: dict[int, float] = {}
    for rank in pace or (0,):
        for epoch in epochs.get(rank, ()):
            slowest[epoch.epoch] = max(slowest.get(epoch.epoch, 0.0), epoch.train_s)
    if slowest:
        return quantile(sorted(slowest.values()), 0.5)
    medians_s = [
        found.median_s
        for times_s in pace.values()
        if (found := step_statistics(averaged(times_s, spec.steps_between_averages)))
    ]
    return max(medians_s) * steps_per_epoch if medians_s else None


def _throughput(
    spec: JobSpec, pace: Mapping[int, Sequence[float]], *, is_synchronous: bool
) -> float | None:
    """Return examples per second over the time of the slowest rank, who is waited for at last."""
    slowest_s = max(map(math.fsum, pace.values()), default=0.0)
    if slowest_s <= 0:
        return None
    examples_count = 0
    for rank, times_s in pace.items():
        own = spec.global_batch_size if is_synchronous else spec.per_replica_batch_size(rank)
        examples_count += own * len(times_s)
    return examples_count / slowest_s


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
    return mean(_per_step(r, r.result.payload_tx_bytes) for r in ranks)


def received_bytes_per_step(ranks: Sequence[RankOutcome]) -> float | None:
    """Return the same of the bytes that it receives: all that servers send is among them."""
    return mean(_per_step(r, r.result.payload_rx_bytes) for r in ranks)


def _per_step(rank: RankOutcome, byte_count: int | None) -> float | None:
    step_count = rank.result.window_step_count
    return byte_count / step_count if byte_count is not None and step_count else None


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


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
