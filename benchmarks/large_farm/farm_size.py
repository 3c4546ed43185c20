"""The size of the made-up farm that a benchmark uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """`done_count` and `active_count` are of the jobs; the others wait. `again_count` jobs of
    another sweep repeat the first ones.

    `day_count`: over which they were done. `delay_count`: values of the axis that makes the sweep
    as large as it is.
    """

    agent_count: int
    job_count: int
    done_count: int
    active_count: int
    again_count: int
    sample_count: int
    long_job_s: int
    day_count: int
    delay_count: int


LARGE = Size(
    agent_count=100,
    job_count=5000,
    done_count=4400,
    active_count=16,
    again_count=500,
    sample_count=10_000_000,
    long_job_s=86_400,
    day_count=14,
    delay_count=10,
)
SMALL = Size(
    agent_count=40,
    job_count=200,
    done_count=150,
    active_count=3,
    again_count=20,
    sample_count=40_000,
    long_job_s=600,
    day_count=2,
    delay_count=1,
)
