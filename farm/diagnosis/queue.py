"""Whether the jobs that wait can ever be served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from farm.diagnosis.finding import Finding, counted, doubt, well

_MOST_REASONS = 5


def judge_queue(*, waiting_count: int, hopeless: Mapping[int, str]) -> list[Finding]:
    """Judge the queue. `hopeless`: jobs that the agents alive cannot serve, and why."""
    if not hopeless:
        jobs = counted(waiting_count, "job")
        return [well(f"{jobs} wait{'s' if waiting_count == 1 else ''}, each for its turn")]
    reasons = Counter(hopeless.values()).most_common()
    found = []
    for reason, count in reasons[:_MOST_REASONS]:
        first = min(job_id for job_id, why in hopeless.items() if why == reason)
        example = f"job {first}" if count == 1 else f"{count} jobs, such as {first}"
        found.append(
            doubt(
                f"nobody can serve {example}: {reason}",
                "start agents that can, or `farm cancel` the sweep",
            )
        )
    left = sum(count for _, count in reasons[_MOST_REASONS:])
    if left:
        what = f"nor {counted(left, 'more job')}, for other reasons"
        found.append(doubt(what, "`farm status` names the first of them"))
    return found
