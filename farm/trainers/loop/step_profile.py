"""Split profiled steps into computing and communicating."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Sequence

from farm.messages.trainer_lines import StepProfile


def exchange_times(
    collectives: Iterable[tuple[int, int]],
    agreements: Iterable[tuple[int, int]],
    operations: Iterable[tuple[int, int]],
) -> tuple[int, ...]:
    """Return how long each collective took with the agreement before it, in order of time.

    Of (begin, duration) of each kind; `operations` are all that compute. A trace may lack the end
    of the last collective, or all agreements (5 of 15 of ranks other than the first). Then a
    collective's agreement is the time since the last operation before it, which made its input.
    """
    own = sorted(collectives)
    before = [duration for _, duration in sorted(agreements)]
    if len(before) < len(own):
        ends = sorted(begin + duration for begin, duration in operations)
        before = [_since_the_last(ends, begin) for begin, _ in own]
    return tuple(duration + earlier for (_, duration), earlier in zip(own, before, strict=False))


def _since_the_last(ends: Sequence[int], begin: int) -> int:
    place = bisect.bisect_right(ends, begin)
    return begin - ends[place - 1] if place else 0


def step_profile(
    times_s: Sequence[float], collectives_s: Sequence[float] | None, *, period: int = 1
) -> StepProfile | None:
    """Return medians per step, from the steps' times and the times inside collectives, in order.

    Where ranks exchange something only in every `period`-th step, a median would not see it: then
    it is means over whole periods.

    The last step only closes the one before: the profiler may stop before it has written the end
    of the last collective (2 of 16 traces lacked it), so that step is left out.

    None where the profiler gave nothing, more is missing than that, or fewer steps were profiled
    than one period has: by chance none of them has the exchange, or one too many has.
    """
    step_count = len(times_s) - 1
    whole = step_count // period * period
    if collectives_s is None or whole < 1:
        return None
    per_step = math.ceil(len(collectives_s) / len(times_s))
    if len(collectives_s) < per_step * step_count:
        return None
    communication_s = [
        sum(collectives_s[step * per_step : (step + 1) * per_step]) for step in range(step_count)
    ]
    # Collectives of one step may overlap, and then their sum can exceed the step.
    compute_s = [
        max(0.0, time_s - inside_s)
        for time_s, inside_s in zip(times_s[:step_count], communication_s, strict=True)
    ]
    middle = statistics.median if period == 1 else statistics.fmean
    return StepProfile(
        step_count=step_count,
        step_time_s=middle(times_s[:whole]),
        compute_s=middle(compute_s[:whole]),
        communication_s=middle(communication_s[:whole]),
        idle_ratios=tuple(
            round(1 - own_s / time_s, 4) if time_s > 0 else 0.0
            for time_s, own_s in zip(times_s[:step_count], compute_s, strict=True)
        ),
    )
