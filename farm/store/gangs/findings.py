"""Reads the data from which the outcomes of many attempts are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from farm.errors import InvalidSpec
from farm.measuring.control_run import ControlRun
from farm.messages.rank_limits import MOST_SAMPLES_READ, MOST_STEPS_READ
from farm.messages.reports import Sample
from farm.messages.trainer_lines import StepKind
from farm.store.agents.control_runs import control_runs
from farm.store.gangs.attempts import Member, locked_attempts
from farm.store.result_tables import SampleRow, StepChunk
from farm.store.series.series import whole_series

_CHUNKS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is stored of one attempt. All but `members` is by rank.

    `chunks`: of timed steps in order, as stored: what cannot be read is found when this attempt is
    evaluated, and not when those of all are read.
    """

    members: Sequence[Member]
    samples: Mapping[int, Sequence[Sample]] = field(default_factory=dict)
    chunks: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    control_runs: Mapping[int, ControlRun] = field(default_factory=dict)

    @property
    def sample_count(self) -> int:
        return sum(map(len, self.samples.values()))

    @property
    def step_count(self) -> int:
        """Return how many step times the chunks hold, which are not unpacked for it."""
        return sum(chunk.step_count for chunks in self.chunks.values() for chunk in chunks)


def findings_of(session: Session, clocks: Mapping[int, Sequence[int]]) -> dict[int, Findings]:
    """Return by token what is stored of active attempts.

    `clocks`: token to the ranks whose steps are wanted, since they tell its time. It is
    for the caller not to ask for more attempts at once than memory has room for.

    Raises:
        InvalidSpec: it is more than is ever read at once; nothing more was read.
    """
    if not clocks:
        return {}
    stored = locked_attempts(session, clocks)
    # The day comes first in the key: without it every day's partition would be searched.
    days = {one.attempt.leased_at.date() for one in stored.values()}
    which = [SampleRow.day.in_(days), SampleRow.attempt_id.in_(clocks)]
    samples = whole_series(session, which, most=MOST_SAMPLES_READ)
    # The attempts are named apart too, for the key: what a database makes of pairs differs.
    pairs = [(token, rank) for token, ranks in clocks.items() for rank in ranks]
    chunks: dict[int, dict[int, list[Any]]] = {token: {} for token in clocks}
    columns = (StepChunk.first_step, StepChunk.begun_s, StepChunk.step_count, StepChunk.times)
    step_count = 0
    rows = session.execute(
        select(StepChunk.attempt_id, StepChunk.rank, StepChunk.kind, *columns)
        .where(
            StepChunk.attempt_id.in_(clocks),
            tuple_(StepChunk.attempt_id, StepChunk.rank).in_(pairs),
            StepChunk.kind == StepKind.TIMED,
        )
        .order_by(StepChunk.attempt_id, StepChunk.rank, StepChunk.first_step)
        .execution_options(yield_per=_CHUNKS_AT_ONCE)
    )
    for row in rows:
        step_count += row.step_count
        if step_count > MOST_STEPS_READ:
            rows.close()
            expected = f"at most {MOST_STEPS_READ} step times of all ranks"
            raise InvalidSpec("step_chunks", f"{step_count} and more", expected)
        chunks[row.attempt_id].setdefault(row.rank, []).append(row)
    runs: dict[int, dict[int, ControlRun]] = {token: {} for token in clocks}
    for (token, rank), run in control_runs(session, clocks).items():
        runs[token][rank] = run
    return {
        token: Findings(
            members=one.members,
            samples=samples.get(token, {}),
            chunks=chunks[token],
            control_runs=runs[token],
        )
        for token, one in stored.items()
    }
