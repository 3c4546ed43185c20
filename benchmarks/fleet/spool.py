"""A spool in memory, so that a thousand agents on one disk do not wait for each other's syncs."""

from __future__ import annotations

import json
import uuid
from collections import deque
from dataclasses import dataclass

from farm.messages.commands import Confirm
from farm.messages.reports import REPORT_NAMES, Report, ReportBody, Samples, StepTimes
from farm.values.codec import to_json


@dataclass(frozen=True, slots=True)
class _Kept:
    report: Report
    byte_count: int
    born_s: float  # when what is oldest in it came to be


_SERIES = {REPORT_NAMES[Samples], REPORT_NAMES[StepTimes]}
# Of these, which are as long as the first of their kind was, give or take.
_series_sizes: dict[str, int] = {}


class MemorySpool:
    """In the place of `worker_agent.spool.spool.Spool`: the same numbers, none of it on a disk."""

    def __init__(self) -> None:
        self.generation = uuid.uuid4().hex
        self.confirmed = 0
        self.last_number = 0
        self.unconfirmed_bytes = 0
        self._urgent_number = 0
        self._kept: deque[_Kept] = deque()

    @property
    def has_urgent(self) -> bool:
        return self._urgent_number > self.confirmed

    def append(self, token: int, *, rank: int, body: ReportBody, born_s: float) -> None:
        """Add a report of which the oldest part is from `born_s`."""
        self.last_number += 1
        json_body = to_json(body)
        assert isinstance(json_body, dict)
        report = Report(
            number=self.last_number,
            token=token,
            rank=rank,
            kind=REPORT_NAMES[type(body)],
            body=json_body,
        )
        size = _size_of(report)
        self._kept.append(_Kept(report, size, born_s))
        self.unconfirmed_bytes += size
        if not isinstance(body, Samples | StepTimes):
            self._urgent_number = self.last_number

    def pending(self, *, limit: int, max_bytes: int) -> tuple[Report, ...]:
        """Return the next unconfirmed reports in order: at least one if there is any."""
        reports: list[Report] = []
        size = 0
        for kept in self._kept:
            size += kept.byte_count
            if reports and (size > max_bytes or len(reports) == limit):
                break
            reports.append(kept.report)
        return tuple(reports)

    def confirm(self, generation: str, number: int) -> None:
        """Forget the reports up to `number`."""
        self.take_confirmed(Confirm(generation=generation, number=number))

    def take_confirmed(self, confirmation: Confirm) -> list[float]:
        """Forget what is confirmed and return when each report of samples in it was born."""
        born_s: list[float] = []
        if confirmation.generation != self.generation:
            return born_s
        while self._kept and self._kept[0].report.number <= confirmation.number:
            kept = self._kept.popleft()
            self.confirmed = kept.report.number
            self.unconfirmed_bytes -= kept.byte_count
            if kept.report.kind == REPORT_NAMES[Samples]:
                born_s.append(kept.born_s)
        return born_s


def _size_of(report: Report) -> int:
    """Return how many bytes a report takes, about; to write each down only to know would show."""
    if report.kind in _series_sizes:
        return _series_sizes[report.kind]
    size = len(json.dumps(report.body, separators=(",", ":"))) + 60
    if report.kind in _SERIES:
        _series_sizes[report.kind] = size
    return size
