"""Systems whose step times are known, and where each of them changes its ways.

A kink is listed here, before anything is fitted: `regime` names the law that a configuration
follows. Where nothing that was measured of a curve follows a law, no method can know it, and the
prediction has to be called a guess. Everywhere else intervals have to cover what they promise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import canonical, names_of
from tests.truths.synthetic_steps import grid

ONE_REGIME = "the same everywhere"
WORLD_SIZES = (1, 2, 4, 8, 16)
BATCHES = (64, 128, 256)
DELAYS_S = (0.0, 0.01, 0.03)
LOG_NOISE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundTruth:
    """`time_s` without noise; `regime`: which law holds, as one name for each."""

    name: str
    configurations: tuple[Configuration, ...]
    time_s: Callable[[Configuration], float]
    regime: Callable[[Configuration], str] = lambda c: ONE_REGIME
    log_noise: Callable[[Configuration], float] = lambda c: LOG_NOISE

    def measured(self, seed: int) -> list[Observation]:
        """Measure each configuration once."""
        draw = random.Random(f"{self.name} {seed}")
        return [
            Observation(
                measurement_id=i,
                configuration=c,
                step_time_s=self.time_s(c) * math.exp(draw.gauss(0, self.log_noise(c))),
            )
            for i, c in enumerate(self.configurations, start=1)
        ]

    def is_knowable(self, configuration: Configuration, training: Sequence[Configuration]) -> bool:
        """Whether anything measured with the same names follows the same law."""
        own = names_of(canonical(configuration))
        return any(
            names_of(c) == own and self.regime(c) == self.regime(configuration) for c in training
        )


def _work_s(c: Configuration) -> float:
    return 2e-3 + 1e-4 * c.per_replica_batch_size


def _others(c: Configuration) -> int:
    return c.world_size - 1


def _of_strategy(c: Configuration) -> float:
    """A parameter server takes half as long again as a ring for the same exchange."""
    return 1.5 if c.strategy == "ps_sync" else 1.0


def _additive(c: Configuration) -> float:
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    return _work_s(c) + _of_strategy(c) * (1e-3 * _others(c) + waits_s)


def _ring(c: Configuration) -> float:
    n = c.world_size
    return _work_s(c) + _of_strategy(c) * (
        2e-2 * _others(c) / n + 2 * _others(c) * (2e-4 + c.one_way_delay_s / 2)
    )


_RACK = 4


def _hierarchical(c: Configuration) -> float:
    racks = -(-c.world_size // _RACK)
    within = min(c.world_size, _RACK)
    exchange_s = 1e-2 * (within - 1) / within + 3e-2 * (racks - 1)
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    return _work_s(c) + _of_strategy(c) * (exchange_s + waits_s)


_INPUT_S = 2.5e-5  # an example, read by all replicas from one disk


def _input_bound(c: Configuration) -> float:
    waits_s = 2 * c.one_way_delay_s if _others(c) else 0.0
    exchange_s = _of_strategy(c) * (1e-3 * math.log2(c.world_size) + waits_s)
    return max(_work_s(c), _INPUT_S * c.global_batch_size) + exchange_s


def _is_input_bound(c: Configuration) -> bool:
    return _INPUT_S * c.global_batch_size > _work_s(c)


_CACHED = 48  # examples a replica


def _cache(c: Configuration) -> float:
    beyond = max(0.0, c.per_replica_batch_size - _CACHED)
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    return _work_s(c) + 1.5e-4 * beyond + _of_strategy(c) * (1e-3 * _others(c) + waits_s)


_FULL = 8  # machines that fill the switch


def _congestion(c: Configuration) -> float:
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    exchange_s = 2e-3 * _others(c) + 1e-2 * max(0, c.world_size - _FULL)
    return _work_s(c) + _of_strategy(c) * (exchange_s + waits_s)


def _stragglers(c: Configuration) -> float:
    """The slowest of n replicas, each 8 % of its work off."""
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    slowest = 1 + 0.08 * math.sqrt(2 * math.log(c.world_size))
    return _work_s(c) * slowest + _of_strategy(c) * (1e-3 * _others(c) + waits_s)


# How fast each computes, and how long its exchange takes.
_TYPES = {"small": (1.0, 1.0), "medium": (1.6, 1.0), "large": (2.5, 0.8), "fast": (4.0, 0.4)}


def _instance_types(c: Configuration) -> float:
    speed, exchange = _TYPES[c.instance_type or ""]
    waits_s = 4 * c.one_way_delay_s if _others(c) else 0.0
    return _work_s(c) / speed + exchange * 1.5e-3 * _others(c) + waits_s


def _two_strategies() -> tuple[Configuration, ...]:
    gangs = [
        c
        for strategy in ("mwms_ring", "ps_sync")
        for c in grid(
            world_sizes=WORLD_SIZES[1:], batches=BATCHES, delays_s=DELAYS_S, strategy=strategy
        )
    ]
    return (*grid(world_sizes=(1,), batches=BATCHES, strategy="single"), *gangs)


def _four_types() -> tuple[Configuration, ...]:
    return tuple(
        c
        for name in _TYPES
        for c in grid(
            world_sizes=WORLD_SIZES, batches=BATCHES, delays_s=DELAYS_S[:2], instance_type=name
        )
    )


TRUTHS = (
    GroundTruth(name="additive", configurations=_two_strategies(), time_s=_additive),
    GroundTruth(name="ring", configurations=_two_strategies(), time_s=_ring),
    GroundTruth(
        name="hierarchical",
        configurations=_two_strategies(),
        time_s=_hierarchical,
        regime=lambda c: "several racks" if c.world_size > _RACK else "one rack",
    ),
    GroundTruth(
        name="input-bound",
        configurations=_two_strategies(),
        time_s=_input_bound,
        regime=lambda c: "input" if _is_input_bound(c) else "work",
    ),
    GroundTruth(
        name="cache",
        configurations=_two_strategies(),
        time_s=_cache,
        regime=lambda c: "from memory" if c.per_replica_batch_size > _CACHED else "cached",
    ),
    GroundTruth(
        name="congestion",
        configurations=_two_strategies(),
        time_s=_congestion,
        regime=lambda c: "full" if c.world_size > _FULL else "free",
    ),
    GroundTruth(
        name="stragglers",
        configurations=_two_strategies(),
        time_s=_stragglers,
        log_noise=lambda c: 0.02 + 0.01 * math.log2(c.world_size),
    ),
    GroundTruth(name="instance types", configurations=_four_types(), time_s=_instance_types),
)
