"""A small world where the best world size and strategy change, with step times that are known."""

from __future__ import annotations

import itertools
import math

from farm.recommend.configuration import Configuration, Observation

WORLD_SIZES = (1, 2, 4, 8)
BATCHES = (64, 512, 4096)
DELAYS_S = (0.0, 0.02, 0.08)


def configuration(
    world_size: int, batch: int = 512, delay_s: float = 0.0, strategy: str = "ring"
) -> Configuration:
    """One machine has no network, whatever delay is named."""
    c = Configuration(
        model="cnn",
        dataset="digits",
        strategy=strategy,
        world_size=world_size,
        global_batch_size=batch,
        one_way_delay_s=delay_s,
    )
    return c.without_network() if world_size == 1 else c


def step_time_s(c: Configuration) -> float:
    """Compute in proportion to the replica's batch, an exchange by strategy, and a bend."""
    n = c.world_size
    compute_s = 0.005 + 4e-4 * c.per_replica_batch_size
    if c.strategy == "ring":
        exchange_s = math.log2(n) * (0.01 + 2 * c.one_way_delay_s)
    else:
        exchange_s = 0.004 * (n - 1) ** 1.5 + (3 * c.one_way_delay_s if n > 1 else 0.0)
    return (compute_s + exchange_s) * (1 + 0.05 * math.sin(3 * math.log(c.global_batch_size)))


def grid() -> list[Configuration]:
    cells = itertools.product(WORLD_SIZES, BATCHES, DELAYS_S)
    return list(dict.fromkeys(configuration(*cell) for cell in cells))


def two_strategies() -> list[Configuration]:
    """The grid, and its gangs once more with a server, which is better from some width on."""
    gangs = itertools.product(WORLD_SIZES[1:], BATCHES, DELAYS_S)
    return [*grid(), *(configuration(n, batch, delay_s, "server") for n, batch, delay_s in gangs)]


def observation(c: Configuration, *, measurement_id: int = 1, factor: float = 1.0) -> Observation:
    return Observation(
        measurement_id=measurement_id, configuration=c, step_time_s=step_time_s(c) * factor
    )
