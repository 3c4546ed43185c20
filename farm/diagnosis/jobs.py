"""Checks whether waiting jobs can ever run, and whether measurements are valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from farm.diagnosis.finding import Finding, doubt, well
from farm.text.display import duration
from farm.text.plurals import counted

_MOST_REASONS = 5
_MOST_LAG_S = 600.0


def judge_queue(
    *, waiting_count: int, unschedulable: Mapping[int, str], held_count: int = 0
) -> list[Finding]:
    """Judge the queue. `unschedulable`: jobs that the agents alive cannot serve, and why.

    `held_count`: of the jobs that wait, those of held sweeps or in a pause of their own.
    """
    if not unschedulable:
        turn_count = waiting_count - held_count
        jobs = counted(turn_count, "job")
        held = f", and {counted(held_count, 'more job')} for the end of a pause or another budget"
        verb = "waits" if turn_count == 1 else "wait"
        return [well(f"{jobs} {verb}, each for its turn{held if held_count else ''}")]
    reasons = Counter(unschedulable.values()).most_common()
    first_ids: dict[str, int] = {}
    for job_id, reason in unschedulable.items():
        first_ids[reason] = min(job_id, first_ids.get(reason, job_id))
    found = []
    for reason, count in reasons[:_MOST_REASONS]:
        first = first_ids[reason]
        example = f"job {first}" if count == 1 else f"{count} jobs, such as {first}"
        found.append(
            doubt(
                f"no agent can serve {example}: {reason}",
                "start agents that can, or `farm cancel` the sweep",
            )
        )
    left = sum(count for _, count in reasons[_MOST_REASONS:])
    if left:
        what = f"nor {counted(left, 'more job')}, for other reasons"
        found.append(doubt(what, "`farm status` names the first of them"))
    return found


def judge_noise(void_reasons: Mapping[str, int], *, measured_count: int) -> list[Finding]:
    """Report void attempts of the last hour. `measured_count`: how many were not void.

    `void_reasons`: what disturbed them, in words, and how many each.
    """
    void_count = sum(void_reasons.values())
    if not void_count:
        return [well("no attempt of the last hour was void")]
    example = max(void_reasons, key=lambda reason: void_reasons[reason])
    return [
        doubt(
            f"{void_count} of {counted(void_count + measured_count, 'attempt')} of the last hour "
            f"were void, since something else used the machine ({example}); their jobs were tried "
            "again",
            "give agents cores that nobody else uses; where they have to share a machine, "
            "FARM_NOISE_POLICY=flag on the server keeps what is measured, with the reasons",
        )
    ]


def judge_tracker(
    name: str, *, waiting_count: int, lag_s: float | None, given_up_count: int, trouble: str | None
) -> list[Finding]:
    """Judge the sending to a tracker. `lag_s`: how long the oldest job waits, None: none does.

    `given_up_count`: of the newest measurements; `trouble`: why the last sending failed.
    """
    found = []
    if trouble is not None:
        found.append(doubt(f"sending to {name} fails: {trouble}", "it is tried again by itself"))
    elif lag_s is not None and lag_s > _MOST_LAG_S:
        what = f"{counted(waiting_count, 'job')} since {duration(lag_s)}"
        found.append(doubt(f"{name} lacks {what}", "see the scheduler's log"))
    if given_up_count:
        found.append(
            doubt(
                f"{name} lacks {counted(given_up_count, 'job')} at which sending failed each time",
                f"see the scheduler's log, then `farm export SWEEP --to {name}`",
            )
        )
    return found or [well(f"{name} has every job, but for {waiting_count} of the last minutes")]
