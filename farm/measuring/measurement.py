"""Computes the measured quantities of one attempt from the reports of its ranks.

Pure arithmetic on values already checked. What was not measured is None, never 0.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from farm.configuration.catalogue import DatasetFacts, Traffic
from farm.configuration.model_size import ModelSize
from farm.configuration.spec import JobSpec, ServerPlacement
from farm.measuring.exchange_figures import ExchangeFigures, exchange_figures
from farm.messages.reports import Sample
from farm.messages.trainer_lines import (
    PAUSE_MEDIANS,
    ScriptTimes,
    StepProfile,
    TimedPart,
    TrainerResult,
    WindowUse,
)
from farm.statistics import mean, quantile

OWN_ORIGIN = "farm"  # of what this farm measured; it exists before the first measurement
# Of one second nobody knows how far it is from the others.
_LEAST_TICKS = 2
_ROUNDING = 1e-9

# Shown wherever step times are compared.
STEP_TIME_NOTE = (
    "step times leave out an input pipeline where examples are in memory; with a loader they"
    " include waiting for it, parameter servers and central_reduce include feeding examples, and"
    " scripts of your own all that they do"
)

OK = "ok"  # the status of a measurement with a time; any other names why there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """The reports of one rank."""

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


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why a quantity is not known."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """The mean usage of a rank that only serves, over the seconds with timed steps."""

    rank: int
    cpu_ratio: float | None
    resident_bytes: int | None  # the largest
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None


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
    )


def averaged(times_s: Sequence[float], step_count: int) -> tuple[float, ...]:
    """Return the means of groups of consecutive steps; an incomplete last group is left out.

    Where ranks exchange something only every k-th step, the median of single steps would hide the
    exchange; k steps in a row hold one, unless it fell on a partial step, which is not among them.
    Of fewer than k steps the mean of all is returned.
    """
    if step_count == 1 or not times_s:
        return tuple(times_s)
    width = min(step_count, len(times_s))
    ends = range(width, len(times_s) + 1, width)
    return tuple(math.fsum(times_s[end - width : end]) / width for end in ends)


@dataclass(frozen=True, kw_only=True)  # figures are kept once they are worked out: no slots
class AttemptFigures:
    """The reports of a successful attempt's ranks, and values that several quantities use.

    `timed_steps_s` is by rank; partial and profiled steps are not among them. `traffic`: what the
    strategy says that a rank sends for a step, which no count may undercut. `train_examples_count`:
    0 where nobody knows it. `dataset` None: a script's own. `size` None: nobody knows the model's.
    """

    spec: JobSpec
    ranks: Sequence[RankOutcome]
    timed_steps_s: Mapping[int, Sequence[float]]
    train_examples_count: int
    is_synchronous: bool = True
    traffic: Traffic | None = None
    dataset: DatasetFacts | None = None
    size: ModelSize | None = None

    @property
    def chief(self) -> TrainerResult:
        """Return what rank 0 reported."""
        return next(rank.result for rank in self.ranks if rank.rank == 0)

    @functools.cached_property
    def training(self) -> Sequence[RankOutcome]:
        """Return the ranks that train, without those that only serve."""
        return [rank for rank in self.ranks if rank.rank < self.spec.training_agent_count]

    @functools.cached_property
    def pace(self) -> Mapping[int, Sequence[float]]:
        """Return the timed steps of the ranks whose clocks count, by rank.

        The ranks of a synchronous gang step together, so one clock tells the gang's time, and a
        mean of clocks would only blur it: only rank 0's are looked at. Otherwise each rank goes at
        its own pace, and those of all ranks that train are.
        """
        known = {rank: times_s for rank, times_s in self.timed_steps_s.items() if times_s}
        if self.is_synchronous:
            return {rank: times_s for rank, times_s in known.items() if rank == 0}
        return known

    @functools.cached_property
    def _averaged(self) -> Sequence[Sequence[float]]:
        return [averaged(one, self.spec.steps_between_averages) for one in self.pace.values()]

    @functools.cached_property
    def steps(self) -> StepStatistics | None:
        """Return the statistics of the timed steps of all ranks whose clocks count."""
        return step_statistics(itertools.chain.from_iterable(self._averaged))

    @property
    def timed_step_count(self) -> int | None:
        """Return on how many steps the statistics rest."""
        return None if self.steps is None else sum(map(len, self.pace.values()))

    @property
    def steps_per_epoch(self) -> int | None:
        """Return how many steps an epoch takes, a partial one among them."""
        if self.train_examples_count:
            return math.ceil(self.train_examples_count / self.spec.global_batch_size)
        times = self.chief.script_times
        return None if times is None else times.steps_per_epoch

    @property
    def time_per_epoch_s(self) -> float | None:
        """Return the time of an epoch, which is over with the slowest rank."""
        medians_s = [found.median_s for one in self._averaged if (found := step_statistics(one))]
        if not (medians_s and self.steps_per_epoch):
            return None
        if not self.train_examples_count:
            return max(medians_s) * self.steps_per_epoch
        length = steps_in_epoch(self.train_examples_count, self.spec.global_batch_size)
        return max(medians_s) * length

    @property
    def throughput_examples_per_s(self) -> float | None:
        """Return examples per second of whole steps over the time that the slowest rank took."""
        slowest_s = max(map(math.fsum, self.pace.values()), default=0.0)
        if slowest_s <= 0:
            return None
        if self.examples_per_step is not None and self.timed_step_count:
            return self.examples_per_step * self.timed_step_count / slowest_s
        if self.is_synchronous:
            return self.spec.global_batch_size * sum(map(len, self.pace.values())) / slowest_s
        examples_count = sum(
            self.spec.per_replica_batch_size(rank) * len(times_s)
            for rank, times_s in self.pace.items()
        )
        return examples_count / slowest_s

    @property
    def epoch_count(self) -> int | None:
        """Return how many epochs were trained; None where steps were counted."""
        times = self.chief.script_times
        return self.spec.epochs if times is None else times.epoch_count

    @property
    def examples_per_step(self) -> float | None:
        """Return how many examples a step of the whole gang had, from every rank's report."""
        mean_per_agent = _mean_of_all(self._reported_per_step(lambda times: times.examples_count))
        count = self.spec.training_agent_count
        return None if mean_per_agent is None else mean_per_agent * count

    @property
    def data_wait_s(self) -> float | None:
        """Return for how long a rank waited for its batch, of a step on average."""
        if self.chief.script_times is not None:
            return _mean_of_all(self._reported_per_step(lambda times: times.data_wait_s))
        found: list[float | None] = []
        for result in (rank.result for rank in self.training):
            wait_s, count = result.data_wait_s, result.window_step_count
            found.append(None if wait_s is None or not count else wait_s / count)
        return _mean_of_all(found)

    @property
    def pause_s(self) -> float | None:
        """Return a script's mean time per step in which it did something else.

        That is what it told of, and what steps above five medians took beyond the median.
        """
        reported_s = _mean_of_all(self._reported_per_step(lambda times: times.pause_s))
        if reported_s is None or self.steps is None:
            return None
        median_s, times_s = self.steps.median_s, [t for one in self.pace.values() for t in one]
        excess_s = math.fsum(t - median_s for t in times_s if t > PAUSE_MEDIANS * median_s)
        return reported_s + excess_s / len(times_s)

    def _reported_per_step(self, read: Callable[[ScriptTimes], float | None]) -> list[float | None]:
        """Return by rank the mean over its timed steps of what its script told of all of them."""
        found: list[float | None] = []
        for result in (rank.result for rank in self.training):
            total = None if result.script_times is None else read(result.script_times)
            count = result.timed_step_count
            found.append(None if total is None or not count else total / count)
        return found

    @property
    def resident_bytes(self) -> int | None:
        """Return the largest memory of a rank that trains."""
        sampled = [s.resident_bytes for rank in self.training for s in window_samples(rank)]
        # A short script may have ended before a sample has seen it at its largest.
        peaks = [r.result.peak_resident_bytes for r in self.training if r.result.script_times]
        return _largest([*sampled, *peaks])

    @functools.cached_property
    def _use(self) -> MeanUse:
        spec = self.spec
        # The trainer's counters leave out other processes of its agent: servers and further ranks.
        has_server = spec.server_count and spec.server_placement is ServerPlacement.COLLOCATED
        is_alone = not has_server and spec.ranks_per_agent == 1
        counted = [rank.result.window_use for rank in self.training] if is_alone else []
        return mean_use(self.training, counted=counted)

    def used(self, name: str) -> float | Unknown | None:
        """Return a mean of `MeanUse` over the ranks that train."""
        why = self._use.unknown_because.get(name)
        value: float | None = getattr(self._use, name)
        return value if why is None else Unknown(why)

    def mean_of(self, read: Callable[[Sample], float | None]) -> float | None:
        """Return the mean of something sampled, over the ranks that train and the timed seconds."""
        return timed_mean([timed_values(rank, read) for rank in self.training])

    @functools.cached_property
    def exchange(self) -> ExchangeFigures:
        """Return the bytes exchanged and the idle time of the ranks that train."""
        results = [rank.result for rank in self.training]
        return exchange_figures(
            [result.profile for result in results],
            [result.exchange for result in results],
            is_synchronous=self.is_synchronous,
        )

    def mean_of_profiles(self, read: Callable[[StepProfile], float]) -> float | None:
        """Return the mean over the ranks that train and have profiled steps."""
        profiles = [rank.result.profile for rank in self.training]
        return mean(read(profile) for profile in profiles if profile is not None)

    @property
    def sent_bytes_per_step(self) -> float | Unknown:
        """Return the bytes that a rank sent for a step, on average over the ranks."""
        return self._bytes_per_step(TrafficDirection.SENT)

    @property
    def received_bytes_per_step(self) -> float | Unknown:
        """Return the bytes that a rank received for a step, on average over the ranks."""
        return self._bytes_per_step(TrafficDirection.RECEIVED)

    def _bytes_per_step(self, direction: TrafficDirection) -> float | Unknown:
        return bytes_per_step(
            self.training, direction, traffic=self.traffic, is_synchronous=self.is_synchronous
        )


def steps_in_epoch(examples_count: int, global_batch_size: int) -> float:
    """Return the steps of an epoch, N / B, counting a partial step as a fraction.

    A time per epoch is this many step times, whether measured or predicted: the examples of an
    epoch at the rate of the full steps. With a batch larger than the data set, which repeats
    examples, an epoch is one full step.
    """
    return max(1.0, examples_count / global_batch_size)


def servers(spec: JobSpec, ranks: Sequence[RankOutcome]) -> tuple[ServerFigures, ...]:
    """Return the usage of the ranks that only serve, which come after those that train.

    They cannot tell timed steps from others, so that rank 0 tells when the steps were timed; the
    receipts of *go*, which seconds are counted from, are at most a message's time apart.
    """
    chief = next(r for r in ranks if r.rank == 0)
    found = []
    for rank in ranks:
        if rank.rank < spec.training_agent_count:
            continue
        as_chief = dataclasses.replace(chief, rank=rank.rank, samples=rank.samples)
        use = mean_use([as_chief])
        found.append(
            ServerFigures(
                rank=rank.rank,
                cpu_ratio=use.cpu_ratio,
                resident_bytes=_largest(s.resident_bytes for s in window_samples(as_chief)),
                net_rx_bytes_per_s=use.net_rx_bytes_per_s,
                net_tx_bytes_per_s=use.net_tx_bytes_per_s,
            )
        )
    return tuple(found)


def window_samples(rank: RankOutcome) -> tuple[Sample, ...]:
    """Return the samples from the first timed step to the last, evaluation in between included.

    A window shorter than a second holds none; then every sample after *go* is the best there is
    for what changes slowly, such as memory. No mean over timed steps is made of them.
    """
    if rank.timed_begun_s is None:
        return rank.samples
    end_s = rank.timed_begun_s + rank.result.timed_window_s
    inside = tuple(s for s in rank.samples if s.tick - 1 >= rank.timed_begun_s and s.tick <= end_s)
    return inside or rank.samples


def timed_samples(rank: RankOutcome) -> tuple[Sample, ...]:
    """Return the samples whose second lies wholly within timed steps.

    Warm-up, evaluation and waiting between epochs are in none of them.
    """
    begun_s, parts = rank.timed_begun_s, rank.result.timed_parts
    if begun_s is None:
        return ()
    if parts is None:
        parts = (TimedPart(begin_s=0.0, end_s=rank.result.timed_window_s),)
    # Days of training have a hundred thousand samples and as many parts.
    spans = sorted((begun_s + part.begin_s, begun_s + part.end_s) for part in parts)
    begins = [begin_s for begin_s, _ in spans]

    def is_timed(sample: Sample) -> bool:
        last = bisect.bisect_right(begins, sample.tick - 1) - 1
        return last >= 0 and sample.tick <= spans[last][1]

    return tuple(filter(is_timed, rank.samples))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanUse:
    """Means over ranks and over timed steps; None goes with its reason."""

    cpu_ratio: float | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None
    unknown_because: Mapping[str, str]


def mean_use(ranks: Sequence[RankOutcome], *, counted: Sequence[WindowUse] = ()) -> MeanUse:
    """Return what ranks used while steps were timed: the mean over the seconds sampled then.

    Where a rank has too few such seconds, the mean of what their trainers `counted`.
    """
    means: dict[str, float | None] = {}
    unknown: dict[str, str] = {}
    for name in ("cpu_ratio", "net_rx_bytes_per_s", "net_tx_bytes_per_s"):
        values = {rank.rank: timed_values(rank, attrgetter(name)) for rank in ranks}
        means[name] = timed_mean(values.values())
        if means[name] is None:
            means[name] = _mean_of_all([getattr(use, name) for use in counted])
        if means[name] is None and values:
            rank, fewest = min(values.items(), key=lambda item: len(item[1]))
            unknown[name] = (
                f"{len(fewest)} whole seconds with timed steps were sampled on rank {rank},"
                f" and a mean takes {_LEAST_TICKS}: time more steps"
            )
    return MeanUse(**means, unknown_because=unknown)


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    return None if None in values else mean(values)


def timed_values(rank: RankOutcome, read: Callable[[Sample], float | None]) -> list[float]:
    """Return the values sampled in the seconds with timed steps, without missing ones."""
    return [value for sample in timed_samples(rank) if (value := read(sample)) is not None]


def timed_mean(by_rank: Collection[Sequence[float]]) -> float | None:
    """Return the mean over all ranks; None if one of them has too few seconds for a mean."""
    if any(len(values) < _LEAST_TICKS for values in by_rank):
        return None
    return mean(itertools.chain.from_iterable(by_rank))


class TrafficDirection(enum.Enum):
    SENT = "sent"
    RECEIVED = "received"

    def of(self, result: TrainerResult) -> int | None:
        """Return the payload of a rank's own connections in the timed window."""
        is_sent = self is TrafficDirection.SENT
        return result.payload_tx_bytes if is_sent else result.payload_rx_bytes


def bytes_per_step(
    ranks: Sequence[RankOutcome],
    direction: TrafficDirection,
    *,
    traffic: Traffic | None = None,
    is_synchronous: bool = True,
) -> float | Unknown:
    """Return the bytes that one rank sends, or receives, per step over its TCP connections.

    The average over the ranks, and None where one of them has no count. Payload alone: headers
    come on top, and what else passed the interface is not in it. Partial steps send as much as full
    ones and are counted as such.

    A count below what the strategy must exchange (`traffic`) has missed something, such as what
    went by another way than TCP, and is no figure. What ranks out of step exchange in a partial
    step depends on who has examples in it, so only their full steps have a minimum.
    """
    counts = {rank.rank: direction.of(rank.result) for rank in ranks}
    uncounted = [rank for rank, count in counts.items() if count is None]
    if uncounted:
        return Unknown(f"the kernel reported no byte counts on rank {uncounted[0]}")
    per_step = [
        (
            count / r.result.window_step_count,
            _least_bytes(r, traffic, is_synchronous=is_synchronous),
        )
        for r in ranks
        if (count := counts[r.rank]) is not None and r.result.window_step_count
    ]
    value, least = mean(v for v, _ in per_step), mean(least for _, least in per_step)
    if value is None or least is None:
        return Unknown("no step was counted")
    if value < least * (1 - _ROUNDING):
        return Unknown(
            f"{value:,.0f} bytes a step were counted on TCP connections, and the strategy"
            f" needs at least {least:,.0f}: the count has missed some"
        )
    return value


def _least_bytes(rank: RankOutcome, traffic: Traffic | None, *, is_synchronous: bool) -> float:
    """Return what a rank must have exchanged for a step of its timed window, on average."""
    if traffic is None:
        return 0.0
    result = rank.result
    step_count = result.window_step_count
    if traffic.is_by_examples:
        step_count = min(step_count, result.timed_step_count)
    if not is_synchronous:
        # By its speed a rank may have no example of a full batch either, and then no update.
        updates = (
            result.timed_step_count if result.exchange is None else result.exchange.update_count
        )
        step_count = min(result.timed_step_count, updates)
    whole = step_count // traffic.period * traffic.period
    return traffic.bytes * whole / result.window_step_count


def scaling_efficiency_ratio(
    *, throughput_examples_per_s: float, machine_count: int, single_examples_per_s: float
) -> float:
    """Strong scaling efficiency: throughput(n) / (n x throughput(1)), same global batch size.

    n machines with ranks that train, however many ranks each has.
    """
    return throughput_examples_per_s / (machine_count * single_examples_per_s)


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
