"""Whose turn it is, worked out by hand."""

from collections.abc import Collection

from farm.gang.snapshots import GangAtWork, WaitingJob
from farm.placement.fair_share import FairShareOrder, in_order


def jobs_of(sweep_id: int, *widths: int, waited_s: float = 0.0) -> list[WaitingJob]:
    return [
        WaitingJob(job_id=100 * sweep_id + i, sweep_id=sweep_id, agent_count=w, waited_s=waited_s)
        for i, w in enumerate(widths, start=1)
    ]


def served(
    jobs: Collection[WaitingJob], gangs: Collection[GangAtWork] = (), *, agent_count: int
) -> list[int]:
    """Return whose jobs were begun, in order, where as many agents are idle."""
    turns = FairShareOrder(jobs, gangs, agent_count=agent_count)
    sweep_ids = []
    for job in turns:
        if job.agent_count <= agent_count:
            agent_count -= job.agent_count
            turns.started(job)
            sweep_ids.append(job.sweep_id)
    return sweep_ids


def test_of_equals_the_one_that_was_just_served_waits_behind_the_others() -> None:
    """The first had waited longer before its turn; now that it was served it has not."""
    jobs = jobs_of(1, 1, 1, 1, waited_s=100) + jobs_of(2, 1, 1, waited_s=100)
    gangs = [GangAtWork(sweep_id=2, agent_ids=("a",), age_s=10.0)]
    assert served(jobs, gangs, agent_count=2) == [1, 2]


def test_of_those_served_at_the_same_time_the_first_goes_first_whatever_its_number() -> None:
    """Each has two agents after three turns, and the second sweep was served before the first."""
    jobs = jobs_of(1, 1, 1, 1, 1) + jobs_of(2, 2, 1, 1)
    assert served(jobs, agent_count=5) == [1, 2, 1, 2]


def test_repetitions_of_one_cell_are_apart_in_time_whenever_they_were_added() -> None:
    """Those of the second cell were added later, and its jobs decide when all is done."""
    first = [
        WaitingJob(job_id=i, repetition=2 + i, agent_count=1, waited_s=9.0, expected_s=1.0)
        for i in range(1, 4)
    ]
    second = [
        WaitingJob(job_id=i, repetition=i - 1, agent_count=1, waited_s=5.0, expected_s=2.0)
        for i in range(4, 7)
    ]
    jobs = [*first, *second]
    assert [job.job_id for job in in_order(jobs)] == [1, 4, 2, 5, 3, 6]
    assert [job.job_id for job in in_order(jobs, critical_s=2.0)] == [4, 1, 5, 2, 6, 3]
