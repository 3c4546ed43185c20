"""What a campaign has come to: each strike, what it struck and how long it took, and the sum."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.faults.contract import Fault, Heal
from tests.chaos.schedule import Planned

_IDS_APART = 1_000_000


@dataclass(slots=True, kw_only=True)
class Strike:
    """One fault that has struck. Durations are since the strike; None until then.

    `jobs`: each job that it strikes, to the attempt that was under way. `before`: what the
    farm was like when they were last seen not to have recovered.
    """

    planned: Planned
    agent: str
    jobs: dict[int, int]
    struck_s: float
    heal: Heal
    healed_s: float | None = None
    healed_at: dt.datetime | None = None
    jobs_after_s: float | None = None
    serves_after_s: float | None = None
    is_stuck: bool = False
    before: str = ""

    @property
    def fault(self) -> Fault:
        return self.planned.fault

    @property
    def is_open(self) -> bool:
        return self.jobs_after_s is None or self.serves_after_s is None

    @property
    def recovered_after_s(self) -> float | None:
        """How long its jobs took, from where the fault's limit counts."""
        if self.jobs_after_s is None:
            return None
        begun_s = self.planned.lasts_s if self.fault.counts_from_end else 0.0
        return max(0.0, self.jobs_after_s - begun_s)

    def __str__(self) -> str:
        jobs = ", ".join(f"{j} (attempt {t})" for j, t in self.jobs.items()) or "no job"
        return f"{self.planned} on {self.agent}, striking {jobs}"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a campaign has come to. `broken`: what contradicts a promise."""

    strikes: list[Strike] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    lost_jobs: set[int] = field(default_factory=set)
    doubled_jobs: set[int] = field(default_factory=set)
    job_count: int = 0


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of several farms as one; ids of the second's jobs begin at a million."""
    whole = Outcome()
    for number, one in enumerate(outcomes):
        first = number * _IDS_APART
        name = f"farm {number}: " if len(outcomes) > 1 else ""
        for strike in one.strikes:
            jobs = {first + job: attempt for job, attempt in strike.jobs.items()}
            whole.strikes.append(dataclasses.replace(strike, jobs=jobs))
        whole.broken += [name + text for text in one.broken]
        whole.lost_jobs |= {first + job for job in one.lost_jobs}
        whole.doubled_jobs |= {first + job for job in one.doubled_jobs}
        whole.job_count += one.job_count
    return whole
