"""`farm logs`: prints the output of a job's trainers, at once or as it appears."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from farm.cli.output import json_option, print_json, to_stderr
from farm.cli.session import JOB_ID, settings, store
from farm.configuration.spec import MAX_WORLD_SIZE
from farm.errors import NotFound
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, FINAL_JOB_STATES, AttemptState
from farm.processes.standard_output import print_data
from farm.store.engine import reading
from farm.store.reports.logs import log_stretch
from farm.store.sweeps.jobs import job_detail
from farm.text.log_text import readable

if TYPE_CHECKING:
    import sqlalchemy as sa

# Agents gather what is new for three seconds.
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogPiece:
    """What was new in a log. `is_end`: there is no more, for now; if `is_over` for good."""

    attempt: int
    state: AttemptState
    text: str
    is_end: bool

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE_ATTEMPT_STATES


class _Log:
    """The log of one rank, read from its beginning to its end."""

    def __init__(self, engine: sa.Engine, job_id: int, *, attempt: int | None, rank: int) -> None:
        self._engine = engine
        self._job_id = job_id
        self._attempt = attempt
        self._rank = rank
        self._next_character = 0

    def read_on(self, *, may_wait: bool) -> _LogPiece | None:
        """Return the output after what was read before; None: the job has no attempt yet.

        Raises:
            NotFound: there is no such log, nor, unless one `may_wait`, will there be.
        """
        with reading(self._engine) as session:
            detail = job_detail(session, self._job_id)
            chosen = detail.find_attempt(self._attempt)
            if chosen is None:
                if may_wait and detail.job.state not in FINAL_JOB_STATES:
                    return None
                state = detail.job.state.value
                raise NotFound(
                    f"job {self._job_id} had no attempt, so it has no log: it is {state}"
                )
            stretch = log_stretch(
                session,
                chosen.attempt.id,
                rank=chosen.find_rank(self._rank).rank,
                first_character=self._next_character,
            )
        # Should the job be tried again, this goes on with the attempt that it has begun with.
        self._attempt = chosen.attempt.number
        self._next_character = stretch.next_character
        return _LogPiece(
            attempt=chosen.attempt.number,
            state=chosen.attempt.state,
            text=stretch.text,
            is_end=stretch.is_end,
        )


@click.command()
@click.argument("job_id", metavar="JOB", type=JOB_ID)
@click.option("--attempt", type=click.IntRange(1), help="An attempt's number; by default the last.")
@click.option("--rank", type=click.IntRange(0, MAX_WORLD_SIZE), default=0, show_default=True)
@click.option("--follow", is_flag=True, help="Print new output until the attempt is over.")
@json_option
def logs(*, job_id: int, attempt: int | None, rank: int, follow: bool, as_json: bool) -> None:
    """Print what the trainers of one rank of a job write to standard output and error.

    On a terminal, control characters are removed. --json prints job_id, attempt, rank, text and
    is_complete: whether the attempt is over.
    """
    if follow and as_json:
        raise click.UsageError("--follow goes on printing, and --json prints one document")
    with store(settings()) as engine:
        log = _Log(engine, job_id, attempt=attempt, rank=rank)
        if as_json:
            _print_json(log, job_id, rank)
        else:
            _print(log, rank, follow=follow)


def _print(log: _Log, rank: int, *, follow: bool) -> None:
    is_empty = True
    while True:
        piece = log.read_on(may_wait=follow)
        if piece is None:
            _pause()
            continue
        if piece.text:
            is_empty = False
            print_data(readable(piece.text) if sys.stdout.isatty() else piece.text)
            sys.stdout.flush()
        if piece.is_end and (piece.is_over or not follow):
            break
        if piece.is_end:
            _pause()
    if is_empty:
        yet = "" if piece.is_over else " yet"
        to_stderr(f"rank {rank} has written nothing{yet}")
    if follow:
        to_stderr(f"attempt {piece.attempt} is over: {piece.state.value}")


def _print_json(log: _Log, job_id: int, rank: int) -> None:
    texts: list[str] = []
    while True:
        piece = log.read_on(may_wait=False)
        assert piece is not None
        texts.append(piece.text)
        if piece.is_end:
            break
    print_json(
        {
            "job_id": job_id,
            "attempt": piece.attempt,
            "rank": rank,
            "text": "".join(texts),
            "is_complete": piece.is_over,
        }
    )


def _pause() -> None:
    time.sleep(_LOOK_EVERY_S)
