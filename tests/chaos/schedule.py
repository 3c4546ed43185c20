"""Which faults strike when: drawn from a seed, so that a campaign can be had again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.faults.contract import Fault

_LONGEST_WAIT_S = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One strike to come. `wait_s`: after the one before it; `seed`: of what it draws itself."""

    number: int
    fault: Fault
    wait_s: float
    lasts_s: float
    seed: int

    def __str__(self) -> str:
        return f"{self.number}: +{self.wait_s:.2f} s {self.fault.name} for {self.lasts_s:.2f} s"


def draw(faults: Sequence[Fault], *, count: int, seed: int) -> list[Planned]:
    """Draw so many strikes; each fault comes as often as any other, or once more."""
    rng = random.Random(seed)
    order: list[Fault] = []
    while len(order) < count:
        order += rng.sample(faults, len(faults))
    return [
        Planned(
            number=number,
            fault=fault,
            wait_s=rng.uniform(0, _LONGEST_WAIT_S),
            lasts_s=rng.uniform(*fault.lasts_s),
            seed=rng.getrandbits(32),
        )
        for number, fault in enumerate(order[:count], 1)
    ]
