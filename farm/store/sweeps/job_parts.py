"""Finds the attempt and rank that a request names."""

from __future__ import annotations

from farm.errors import NotFound
from farm.store.sweeps.jobs import AttemptDetail, JobDetail
from farm.store.tables import RankRow


def find_attempt(detail: JobDetail, number: int | None) -> AttemptDetail | None:
    """Return the attempt with a number, or the last one; None: the job had none yet.

    Raises:
        NotFound: it has none with this number.
    """
    if number is None:
        return detail.attempts[-1] if detail.attempts else None
    for attempt in detail.attempts:
        if attempt.attempt.number == number:
            return attempt
    raise NotFound(f"attempt {number} of job {detail.job.id}: there is none")


def find_rank(attempt: AttemptDetail, number: int | None) -> RankRow:
    """Return the rank with a number, or rank 0.

    Raises:
        NotFound: the gang has none with this number.
    """
    for row in attempt.ranks:
        if row.rank == (number or 0):
            return row
    where = f"attempt {attempt.attempt.number} of job {attempt.attempt.job_id}"
    raise NotFound(f"rank {number or 0} of {where}: there is none")
