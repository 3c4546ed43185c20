"""Writes reports to the agent's disk in order; keeps them in memory while the disk is full."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farm.errors import InvalidSpec
from farm.messages.reports import REPORT_NAMES, LogPart, RankEnded, ReportBody, Samples, StepTimes
from farm.messages.trainer_lines import Epoch, Failure
from farm.values.codec import canonical_json, from_text, to_json
from farm.values.ranges import Count, Identifier
from worker_agent.spool.spool import Spool

logger = logging.getLogger(__name__)

# What comes all the time while a rank trains. Nobody decides anything by it before the rank's end.
_SERIES = (Samples, StepTimes, Epoch, LogPart)


class Journal:
    """Writes reports to the spool; while the disk is full it keeps them in memory, in order."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._unwritten: deque[tuple[int, int, ReportBody]] = deque()
        self._has_told = False  # that the disk takes none

    @property
    def is_blocked(self) -> bool:
        """Whether a report could not be written yet; the caller should produce no more."""
        return bool(self._unwritten)

    @property
    def trouble(self) -> str | None:
        """Why the folder of the reports cannot be used; None: it can."""
        return self._spool.trouble()

    @property
    def is_full(self) -> bool:
        """Whether there is no room for the reports of another rank."""
        return self._spool.is_full or self.is_blocked

    def add(self, token: int, *, rank: int, body: ReportBody) -> None:
        """Report `body` for a rank of the attempt `token`."""
        self._unwritten.append((token, rank, body))
        self.write()

    def add_lost(self, token: int, *, rank: int, failure: Failure) -> None:
        """Report the end of a rank that this agent does not, or no longer, serve."""
        body = RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail="")
        self.add(token, rank=rank, body=body)

    def write(self) -> None:
        """Bring everything to disk, as far as it goes."""
        while self._unwritten:
            token, rank, body = self._unwritten[0]
            try:
                self._spool.append(
                    token,
                    rank=rank,
                    kind=REPORT_NAMES[type(body)],
                    body=to_json(body),
                    is_urgent=type(body) not in _SERIES,
                )
            except OSError as error:
                if not self._has_told:
                    self._has_told = True
                    ids = {"attempt_id": token, "rank": rank}
                    logger.error("report was not written: %s", error, extra=ids)  # noqa: TRY400
                return
            self._has_told = False
            self._unwritten.popleft()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    token: Identifier
    rank: Count
    job_id: int | None


class ServedRank:
    """Remembers on disk which rank runs, so that a restarted agent can report its end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def remember(self, token: int, *, rank: int, job_id: int | None) -> None:
        """`job_id` is for the log alone."""
        self._path.write_text(canonical_json(_Served(token=token, rank=rank, job_id=job_id)))

    def forget(self) -> None:
        """Forget it, if the disk lets that be done."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def read(self) -> tuple[int, int, int | None] | None:
        """Return token, rank and job of the rank that a crashed agent left unfinished, or None."""
        try:
            served = from_text(_Served, self._path.read_bytes())
        except FileNotFoundError:
            return None
        except InvalidSpec:
            # It died while writing this, so before the rank had begun.
            self.forget()
            return None
        return served.token, served.rank, served.job_id
