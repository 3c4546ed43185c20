"""Finds implausible measurements and lowers their weight. Nothing is deleted.

Three signs make a measurement suspicious. None of them proves an error: a system may have two
regimes, and the rare one looks like an error. So suspicious measurements get a lower weight.

- It is far from its prediction by all others, compared with others nearby.
- It breaks a law: with more delay, or with more examples in the same batch, no step is faster.
- It equals, to the last digit, the measurement of another strategy, set-up or network, which
  suggests a copying error. If many values are equal, they are rounded, and it means nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.held_out import HeldOut
from farm.recommend.calibrated.novelty import Neighbourhood, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import NAMES, canonical, without_names
from farm.recommend.setup import published_name
from farm.statistics import NORMAL_SCALE
from farm.text.display import duration

# Of a normal error one in 16,000 lies further out; real errors have longer tails.
_FAR_Z = 4.0
# A law is broken when it is so by more than repetitions differ.
_BROKEN_LOG = 0.1
# An equal pair counts half: one of the two may be right, and nothing says which.
_COPIED_WEIGHT = 0.5
# More equal values than that, and it is how they were rounded.
_MOST_EQUAL_RATIO = 0.1
# Errors nearby that are smaller than repetitions differ make nobody suspicious.
_LEAST_SPREAD_LOG = 0.03
_REACH = 1.0  # in steps from one measured value to the next


_LEAST_WEIGHT = 0.1
# Field, how an amount of it is written, a configuration without it, and the amount itself.
_LAWS: tuple[
    tuple[
        str,
        Callable[[float], str],
        Callable[[Configuration], Configuration],
        Callable[[Configuration], float],
    ],
    ...,
] = (
    (
        "one_way_delay_s",
        lambda delay_s: f"{duration(delay_s)} of delay",
        lambda c: dataclasses.replace(c, one_way_delay_s=0.0),
        lambda c: c.one_way_delay_s,
    ),
    (
        "global_batch_size",
        lambda size: f"a batch of {size:g}",
        lambda c: dataclasses.replace(c, global_batch_size=1),
        lambda c: float(c.global_batch_size),
    ),
)


class SuspicionKind(enum.Enum):
    FAR_OFF = "far_off"
    LESS_TIME_FOR_MORE = "less_time_for_more"
    COPIED = "copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """`weight`: how much of the measurement is still believed; above 0, below 1."""

    measurement_id: int
    kind: SuspicionKind
    message: str
    weight: float


def find_suspicious(observations: Sequence[Observation], held_out: HeldOut) -> list[Suspicion]:
    """Return the implausible measurements, in their order.

    `held_out`: what was predicted of them, with configurations held out among others.
    """
    errors = _standard_errors(observations, held_out)
    found = [
        *_far_off(observations, errors),
        *_broken_laws(observations, errors),
        *_copied(observations),
    ]
    return sorted(found, key=lambda s: (s.measurement_id, s.kind.value))


def believed(
    observations: Iterable[Observation], suspicions: Iterable[Suspicion]
) -> list[Observation]:
    """Return the observations, with the weights of suspicious ones lowered."""
    weights: dict[int, float] = {}
    for suspicion in suspicions:
        known = weights.get(suspicion.measurement_id, 1.0)
        weights[suspicion.measurement_id] = min(known, suspicion.weight)
    return [
        dataclasses.replace(o, weight=min(o.weight, weights[o.measurement_id]))
        if o.measurement_id in weights
        else o
        for o in observations
    ]


@dataclass(frozen=True, slots=True)
class _Error:
    """ln(measured / predicted without it), and over what errors are nearby.

    `is_between`: other measurements lie on both sides. Of what lay beyond them once it was held
    out nobody can say how it should be.
    """

    log_error: float
    z: float
    is_between: bool


def _standard_errors(observations: Sequence[Observation], held_out: HeldOut) -> dict[int, _Error]:
    """Return the error of each position."""
    import numpy as np

    cells = np.flatnonzero(held_out.is_cell)
    rows = held_out.rows[cells]
    configurations = [canonical(observations[row].configuration) for row in rows]
    if not configurations:
        return {}
    number_of = {c: index for index, c in enumerate(dict.fromkeys(configurations))}
    numbers = np.array([number_of[c] for c in configurations])
    neighbourhood = Neighbourhood.of(Space.of(o.configuration for o in observations))
    places = neighbourhood.locate(configurations)
    log_errors = held_out.log_errors[cells]
    sizes = np.abs(log_errors)
    usual = max(NORMAL_SCALE * float(np.median(sizes)), _LEAST_SPREAD_LOG)
    found = {}
    for index, row in enumerate(rows):
        apart = numbers != numbers[index]
        squares = np.sum((places[apart] - places[index]) ** 2, axis=1)
        near = np.exp(-squares / (2 * _REACH**2))
        # The mean and not the median: where a predictor is wrong in a whole region, nobody there
        # is suspicious.
        nearby = float((near @ sizes[apart] + usual) / (np.sum(near) + 1))
        error = float(log_errors[index])
        is_between = all(gap.is_between for gap in held_out.gaps[cells[index]])
        found[int(row)] = _Error(error, error / max(1.25 * nearby, usual), is_between)
    return found


def _far_off(observations: Sequence[Observation], errors: Mapping[int, _Error]) -> list[Suspicion]:
    found = []
    for position, error in errors.items():
        z = abs(error.z)
        if error.is_between and z > _FAR_Z:
            longer = "longer" if error.log_error > 0 else "shorter"
            times = f"{math.exp(abs(error.log_error)):.3g} times {longer}"
            found.append(
                Suspicion(
                    measurement_id=observations[position].measurement_id,
                    kind=SuspicionKind.FAR_OFF,
                    message=(
                        f"{times} than the others predict, {z:.1f} times as far off as "
                        "usual hereabouts"
                    ),
                    weight=_FAR_Z / z,
                )
            )
    return found


def _broken_laws(
    observations: Sequence[Observation], errors: Mapping[int, _Error]
) -> list[Suspicion]:
    """Find neighbours of which the one with more takes less time, and doubt the odder of both.

    Where they are about equally odd, both are doubted, each only half as much (the root).
    """
    found: dict[tuple[int, str], Suspicion] = {}
    for field, write, without, amount in _LAWS:
        curves: dict[Configuration, list[int]] = {}
        for position, observation in enumerate(observations):
            alike = without(canonical(observation.configuration))
            curves.setdefault(alike, []).append(position)
        for curve in curves.values():
            medians = _medians(observations, curve, amount)
            for less, more in itertools.pairwise(medians):
                broken = math.log(less.time_s / more.time_s)
                if broken <= _BROKEN_LOG:
                    continue
                message = (
                    f"{duration(less.time_s)} with {write(less.amount)}, but "
                    f"{duration(more.time_s)} with {write(more.amount)}"
                )
                oddities = [_oddity(errors, point.positions) for point in (less, more)]
                points = zip((less, more), oddities, strict=True)
                doubted = [point for point, odd in points if odd >= max(oddities) / 2]
                weight = max(_LEAST_WEIGHT, _BROKEN_LOG / broken) ** (1 / len(doubted))
                for position in (i for point in doubted for i in point.positions):
                    found[position, field] = Suspicion(
                        measurement_id=observations[position].measurement_id,
                        kind=SuspicionKind.LESS_TIME_FOR_MORE,
                        message=message,
                        weight=weight,
                    )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Point:
    """The repetitions of one configuration; `positions` among the observations."""

    amount: float
    time_s: float
    positions: tuple[int, ...]


def _medians(
    observations: Sequence[Observation],
    positions: Iterable[int],
    amount: Callable[[Configuration], float],
) -> list[_Point]:
    """Return one point for each amount, in their order."""
    groups: dict[float, list[int]] = {}
    for i in positions:
        groups.setdefault(amount(observations[i].configuration), []).append(i)
    return [
        _Point(value, statistics.median(observations[i].step_time_s for i in rows), tuple(rows))
        for value, rows in sorted(groups.items())
    ]


def _oddity(errors: Mapping[int, _Error], positions: Iterable[int]) -> float:
    return max((abs(errors[i].z) for i in positions if i in errors), default=0.0)


def _copied(observations: Sequence[Observation]) -> list[Suspicion]:
    """Find equal times of configurations that differ in names alone."""
    equal: dict[tuple[Configuration, float], list[Observation]] = {}
    for observation in observations:
        key = (without_names(observation.configuration), float(f"{observation.step_time_s:.6g}"))
        equal.setdefault(key, []).append(observation)
    groups = [g for g in equal.values() if len({canonical(o.configuration) for o in g}) > 1]
    groups = [g for g in groups if not all(o.configuration.is_one_machine for o in g)]
    if sum(map(len, groups)) > _MOST_EQUAL_RATIO * len(observations):
        return []
    return [
        Suspicion(
            measurement_id=observation.measurement_id,
            kind=SuspicionKind.COPIED,
            message=(
                f"{observation.step_time_s:.6g} s, as measurement "
                f"{', '.join(str(o.measurement_id) for o in group if o is not observation)} of "
                f"{_difference(group)}"
            ),
            weight=_COPIED_WEIGHT,
        )
        for group in groups
        for observation in group
    ]


def _difference(group: Sequence[Observation]) -> str:
    differing = [
        published_name(name)
        for name in NAMES
        if len({getattr(o.configuration, name) for o in group}) > 1
    ]
    return f"another {' and '.join(differing)}".replace("_", " ")
