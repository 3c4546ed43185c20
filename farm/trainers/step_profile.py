"""Split profiled steps into computing and communicating."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from farm.core.trainer_lines import StepProfile


def step_profile(
    times_s: Sequence[float], collectives_s: Sequence[float] | None
) -> StepProfile | None:
    """Return medians per step, from the steps' times and the times inside collectives, in order.

    The last step only closes the one before: the profiler may stop before it has written the end
    of the last collective (2 of 16 traces lacked it), so that step is left out.

    None where the profiler gave nothing, or more is missing than that.
    """
    step_count = len(times_s) - 1
    if collectives_s is None or step_count < 1:
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
    return StepProfile(
        step_count=step_count,
        step_time_s=statistics.median(times_s[:step_count]),
        compute_s=statistics.median(compute_s),
        communication_s=statistics.median(communication_s),
    )
