"""The latency study's arithmetic: its configurations, and a fitted line for each. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from farm.configuration.catalogue import GangShape
from farm.measuring.precision import TimeInterval
from farm.measuring.study_run import StudyRun
from farm.registry import strategy
from farm.statistics import LineFit, fit_line, mean
from farm.studies.run_groups import study_interval

_Key = TypeVar("_Key", float, tuple[int, str], tuple[str, str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPoint:
    """One configuration at one delay; times are medians over its runs, with a 95 % interval.

    `rtt_s` is None without a network. `interval` is None with fewer than 3 runs.
    """

    one_way_delay_s: float
    rtt_s: float | None
    step_time_s: float
    interval: TimeInterval | None
    steps_per_epoch: int
    rank_0_compute_s: float | None
    other_ranks_compute_s: float | None
    runs: tuple[StudyRun, ...]

    @property
    def half_width_ratio(self) -> float | None:
        """Half of the interval, over the median."""
        if self.interval is None:
            return None
        return (self.interval.high_s - self.interval.low_s) / 2 / self.step_time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One model, batch size and world size over the delays, by delay.

    `fit`: step time over round-trip time, of all runs; None without a network, or with too few.
    """

    points: tuple[LatencyPoint, ...]
    fit: LineFit | None

    @property
    def first(self) -> StudyRun:
        """A run that has its model, batch size, world size and strategy, as all its runs do."""
        return self.points[0].runs[0]

    @property
    def world_size(self) -> int:
        return self.first.world_size

    @property
    def runs(self) -> tuple[StudyRun, ...]:
        return tuple(run for point in self.points for run in point.runs)

    @property
    def core_count(self) -> int:
        """The fewest cores that any of its gangs had together."""
        return min(run.core_count for run in self.runs)

    @property
    def ranks_on_a_core(self) -> int:
        """How many ranks the fullest core has, if they are spread evenly."""
        return -(-self.world_size // max(1, self.core_count))

    @property
    def bend_ratio(self) -> float | None:
        """How far the median at any delay lies from the line, over the line; None: no line."""
        if self.fit is None:
            return None
        return max(
            abs(point.step_time_s / self.fit.at(point.rtt_s) - 1)
            for point in self.points
            if point.rtt_s is not None
        )

    @property
    def expected_bytes_per_step(self) -> float | None:
        """What the strategy's theory says one rank sends."""
        gradients = [run.gradient_bytes for run in self.runs if run.gradient_bytes]
        if not gradients:
            return None
        return strategy(self.first.strategy or "").traffic(self._gang, gradients[0]).bytes

    @property
    def serial_trips(self) -> int:
        """The round trips of a step if nothing in it overlaps and every message goes at once.

        One for the ranks' asking the first for the exchange's parameters, and one for each of the
        2 (n - 1) messages around the ring, which their receivers ask for.
        """
        traffic = strategy(self.first.strategy or "").traffic(self._gang, 1.0)
        return 1 + round(traffic.messages)

    @property
    def _gang(self) -> GangShape:
        return GangShape(world_size=self.world_size)

    def mean_of(self, column: str) -> float | None:
        """Return the mean over all runs of what was measured in that column."""
        return mean(getattr(run, column) for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The curves of one model and batch size, by world size."""

    curves: tuple[Curve, ...]

    @property
    def first(self) -> StudyRun:
        """A run that has its model, data set and batch size, as all its runs do."""
        return self.curves[0].first

    @property
    def alone(self) -> Curve | None:
        """The curve of one rank, which needs no network."""
        return next((curve for curve in self.curves if curve.world_size == 1), None)

    @property
    def gangs(self) -> tuple[Curve, ...]:
        return tuple(curve for curve in self.curves if curve.world_size > 1)


def panels_of(runs: Sequence[StudyRun]) -> list[Panel]:
    """Group the runs of one kind of hardware by model, batch size and world size."""

    def panel_key(run: StudyRun) -> tuple[str, str, int]:
        return run.model or "", run.dataset or "", run.global_batch_size

    def curve_key(run: StudyRun) -> tuple[int, str]:
        return run.world_size, run.strategy or ""

    panels = []
    for _, group in _grouped(runs, panel_key):
        curves = tuple(_curve(members) for _, members in _grouped(group, curve_key))
        panels.append(Panel(curves=curves))
    # The larger model first: what it shows is what people ask for.
    return sorted(
        panels,
        key=lambda panel: (
            -max((run.parameter_count or 0 for c in panel.curves for run in c.runs), default=0),
            panel_key(panel.first),
        ),
    )


def worth_it_up_to_s(curve: Curve, alone: Curve) -> float | None:
    """Return the one-way delay below which the gang is quicker than one rank; None: at no delay.

    Where a + r 2 d = t(1), with the fitted a and r and the measured step time t(1) of one rank.
    """
    assert curve.fit is not None
    [first] = alone.points[:1]
    gain_s = first.step_time_s - curve.fit.intercept
    if gain_s <= 0 or curve.fit.slope <= 0:
        return None
    return gain_s / curve.fit.slope / 2


def _grouped(
    runs: Sequence[StudyRun], key: Callable[[StudyRun], _Key]
) -> list[tuple[_Key, list[StudyRun]]]:
    ordered = sorted(runs, key=key)
    return [(value, list(group)) for value, group in itertools.groupby(ordered, key=key)]


def _curve(runs: Sequence[StudyRun]) -> Curve:
    first = runs[0]
    points = tuple(_point(group) for _, group in _grouped(runs, lambda run: run.one_way_delay_s))
    # Without a second delay the slope would be made of the probes' own noise.
    pairs = [
        (run.rtt_s, run.step_time_s)
        for run in runs
        if run.rtt_s is not None and run.step_time_s is not None
    ]
    return Curve(
        points=points,
        fit=fit_line(pairs) if first.world_size > 1 and len(points) > 1 else None,
    )


def _point(runs: Sequence[StudyRun]) -> LatencyPoint:
    def median(column: str) -> float | None:
        known = [value for run in runs if (value := getattr(run, column)) is not None]
        return statistics.median(known) if known else None

    times_s = [run.step_time_s for run in runs if run.step_time_s is not None]
    return LatencyPoint(
        one_way_delay_s=runs[0].one_way_delay_s,
        rtt_s=median("rtt_s") if runs[0].world_size > 1 else None,
        step_time_s=statistics.median(times_s),
        interval=study_interval(times_s),
        steps_per_epoch=max(run.steps_per_epoch or 1 for run in runs),
        rank_0_compute_s=median("rank_0_compute_s"),
        other_ranks_compute_s=median("other_ranks_compute_s"),
        runs=tuple(runs),
    )
