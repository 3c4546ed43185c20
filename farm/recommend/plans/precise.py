"""Which configurations are measured well enough that measuring them again would teach little."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain

# Of the mean of ln(time); a single measurement without a doubt is held to be as good.
ENOUGH_LOG = 0.03
# What is less believed than this was flagged as suspicious: that is a reason to measure it again.
_BELIEVED = 0.5
# However much it varies, more of the same does not change that.
_MOST_REPETITIONS = 10


def precisely_measured(observations: Iterable[Observation]) -> frozenset[Configuration]:
    """Return the configurations, without a network for one machine, that are known well enough."""
    repetitions: dict[Configuration, list[Observation]] = {}
    for observation in observations:
        repetitions.setdefault(plain(observation.configuration), []).append(observation)
    return frozenset(c for c, group in repetitions.items() if _is_enough(group))


def _is_enough(group: list[Observation]) -> bool:
    believed = [o for o in group if o.weight >= _BELIEVED]
    if len(believed) < 2 or len(believed) >= _MOST_REPETITIONS:
        return bool(believed)
    deviation = statistics.stdev(math.log(o.step_time_s) for o in believed)
    return deviation / math.sqrt(len(believed)) <= ENOUGH_LOG
