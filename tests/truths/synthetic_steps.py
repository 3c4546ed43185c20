"""Step times by a law that is known, so that predictions can be held against the truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.predictors.contracts import FittedPredictor, PointEstimate

WORLD_SIZES = (1, 2, 3, 4)
BATCHES = (64, 128, 256, 512, 1024)
DELAYS_S = (0.0, 0.02, 0.04, 0.06)


def configuration(world_size: int, batch: int, delay_s: float = 0.0, **more: Any) -> Configuration:
    """A ring of a small network, unless told otherwise; one machine has no delay."""
    values: dict[str, Any] = {
        "model": "small_cnn",
        "dataset": "digits",
        "framework": "tensorflow",
        "strategy": "mwms_ring",
        "world_size": world_size,
        "global_batch_size": batch,
        "one_way_delay_s": 0.0 if world_size == 1 else delay_s,
        **more,
    }
    return Configuration(**values)


def law(c: Configuration) -> float:
    """0.1 ms an example, 2 ms a step, 1 ms for each other machine, and two round trips."""
    others = c.world_size - 1
    waits_s = 4 * c.one_way_delay_s if others else 0.0
    return 1e-4 * c.per_replica_batch_size + 2e-3 + 1e-3 * others + waits_s


def grid(
    *,
    world_sizes: Sequence[int] = WORLD_SIZES,
    batches: Sequence[int] = BATCHES,
    delays_s: Sequence[float] = DELAYS_S,
    **more: Any,
) -> list[Configuration]:
    """Every combination once."""
    return list(
        dict.fromkeys(
            configuration(n, b, d, **more) for n in world_sizes for b in batches for d in delays_s
        )
    )


def measure(
    configurations: Sequence[Configuration],
    *,
    seed: int = 0,
    log_noise: Callable[[Configuration], float] = lambda c: 0.02,
    repetitions: int = 1,
    time_s: Callable[[Configuration], float] = law,
) -> list[Observation]:
    """Measure each, with a log-normal error of each measurement."""
    draw = random.Random(seed)
    return [
        Observation(
            measurement_id=index,
            configuration=c,
            step_time_s=time_s(c) * math.exp(draw.gauss(0, log_noise(c))),
        )
        for index, c in enumerate((c for c in configurations for _ in range(repetitions)), start=1)
    ]


class Lawful:
    """A predictor that knows the law, and from a fit only how large times are altogether.

    What it is off by is therefore the measurements' own error.
    """

    name = "lawful"

    def fit(self, observations: Sequence[Observation]) -> FittedPredictor:
        logs = sorted(math.log(o.step_time_s / law(o.configuration)) for o in observations)
        known = {o.configuration.strategy for o in observations}
        return _FittedLawful(math.exp(logs[len(logs) // 2]) if logs else 1.0, known)


class _FittedLawful:
    def __init__(self, scale: float, strategies: set[str | None]) -> None:
        self._scale = scale
        self._strategies = strategies

    def predict(self, configurations: Sequence[Configuration]) -> list[PointEstimate]:
        return [
            PointEstimate(step_time_s=self._scale * law(c))
            if c.strategy in self._strategies
            else PointEstimate(step_time_s=None, unknown_because="strategy: not measured")
            for c in configurations
        ]
