"""Reads active attempts: locked rows, snapshots for decisions, and agents' reports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from farm.configuration.spec import MOST_STEPS_READ, BatchSplit, JobSpec
from farm.errors import InvalidSpec, NotFound
from farm.gang.lifecycle import ACTIVE_ATTEMPT_STATES, AttemptState, RankPhase
from farm.gang.snapshots import AttemptView, RankView
from farm.measuring.control_run import ControlRun
from farm.messages.rank_limits import MOST_SAMPLES_READ
from farm.messages.reports import PeersMeasured, Prepared, RankEnded, RankStarted, Sample, Shaped
from farm.messages.trainer_lines import StepKind
from farm.store.agents.control_runs import control_runs
from farm.store.engine import IDS_A_QUERY
from farm.store.result_tables import SampleRow, StepChunk
from farm.store.series.series import whole_series
from farm.store.tables import AgentRow, AttemptRow, JobRow, RankRow
from farm.values.codec import from_json

# Under this name a session keeps what `active_attempts` has locked: each decision would read it
# once more.
_LOCKED = "locked attempts"

# On an untouched network ranks tell of both at once.
_HAVE_MEASURED = (RankPhase.MEASURED, RankPhase.SHAPED)

# When a rank's round trips are looked at.
_JUDGED = {
    (AttemptState.SHAPING, RankPhase.SHAPED),
    (AttemptState.RUNNING, RankPhase.ENDED),
}

_CHUNKS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A rank's row, and the lease and labels of its agent."""

    rank: RankRow
    leased_to: int | None
    lease_expires_at: dt.datetime | None
    labels: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttempt:
    """The rows of one attempt. `members`: by rank."""

    attempt: AttemptRow
    job: JobRow
    members: Sequence[Member]


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """Active attempts, oldest first. `unreadable`: token to the error in its rows."""

    attempts: tuple[AttemptView, ...]
    unreadable: Mapping[int, str]


def active_attempts(
    session: Session, tokens: Sequence[int], *, now: dt.datetime, locks: bool = True
) -> Active:
    """Return the active ones of these attempts; with `locks`, lock them.

    Attempts that another scheduler has locked are left out. The jobs are locked with them:
    cancelling a sweep locks its jobs in another order, and waiting for them here, with some locked
    already, would be a deadlock. Without locks it only serves to see whether there is anything to
    do, so the control runs are left out.
    """
    if not tokens:
        return Active(attempts=(), unreadable={})
    active = (
        select(AttemptRow, JobRow)
        .join(JobRow, JobRow.id == AttemptRow.job_id)
        .where(AttemptRow.state.in_(ACTIVE_ATTEMPT_STATES), AttemptRow.id.in_(tokens))
        .order_by(AttemptRow.id)
    )
    if locks:
        active = active.with_for_update(of=[AttemptRow, JobRow], skip_locked=True)
    stored = _with_members(session, [(row[0], row[1]) for row in session.execute(active)])
    runs: Mapping[tuple[int, int], ControlRun] = {}
    if locks:
        session.info[_LOCKED] = stored
        awaiting = [t for t, s in stored.items() if _awaits_judgement(s) or _awaits_shares(s)]
        runs = control_runs(session, awaiting)
    return views_of(stored.values(), now=now, runs=runs)


def views_of(
    stored: Iterable[StoredAttempt],
    *,
    now: dt.datetime,
    runs: Mapping[tuple[int, int], ControlRun] | None = None,
) -> Active:
    """Return the snapshots of these attempts for decisions; `runs`: by token and rank."""
    views: list[AttemptView] = []
    unreadable: dict[int, str] = {}
    for one in stored:
        try:
            views.append(_view(one, runs or {}, now=now))
        except InvalidSpec as error:
            unreadable[one.attempt.id] = str(error)
    return Active(attempts=tuple(views), unreadable=unreadable)


def locked_attempts(session: Session, tokens: Collection[int]) -> dict[int, StoredAttempt]:
    """Return the rows of attempts; those that `active_attempts` has not locked are locked now.

    They are not cached: rolling back to a savepoint releases locks.

    Raises:
        NotFound: there is no such attempt.
    """
    found: dict[int, StoredAttempt] = dict(session.info.get(_LOCKED, {}))
    if further := [token for token in tokens if token not in found]:
        rows = session.execute(
            select(AttemptRow, JobRow)
            .join(JobRow, JobRow.id == AttemptRow.job_id)
            .where(AttemptRow.id.in_(further))
            .order_by(AttemptRow.id)
            .with_for_update(of=[AttemptRow, JobRow])
            .execution_options(populate_existing=True)
        )
        found |= _with_members(session, [(row[0], row[1]) for row in rows])
    for token in tokens:
        if token not in found:
            raise NotFound(f"attempt {token} does not exist")
    return {token: found[token] for token in tokens}


def _with_members(
    session: Session, rows: Sequence[tuple[AttemptRow, JobRow]]
) -> dict[int, StoredAttempt]:
    """Return the attempts with their ranks, which are read for all of them at once."""
    members: dict[int, list[Member]] = {attempt.id: [] for attempt, _ in rows}
    if not members:
        return {}
    # Few of the agents' columns: what an agent is made of is much to read, and told here to nobody.
    ranks = session.execute(
        select(RankRow, AgentRow.attempt_id, AgentRow.lease_expires_at, AgentRow.facts["labels"])
        .join(AgentRow, AgentRow.id == RankRow.agent_id)
        .where(RankRow.attempt_id.in_(members))
        .order_by(RankRow.attempt_id, RankRow.rank)
    )
    for rank, leased_to, expires_at, labels in ranks:
        member = Member(
            rank=rank, leased_to=leased_to, lease_expires_at=expires_at, labels=labels or {}
        )
        members[rank.attempt_id].append(member)
    return {
        attempt.id: StoredAttempt(attempt=attempt, job=job, members=members[attempt.id])
        for attempt, job in rows
    }


def _awaits_judgement(stored: StoredAttempt) -> bool:
    """Whether all control runs of the attempt are known and it has not passed the barrier yet."""
    return stored.attempt.state is AttemptState.MEASURING and all(
        member.rank.phase in _HAVE_MEASURED for member in stored.members
    )


def _awaits_shares(stored: StoredAttempt) -> bool:
    """Whether the shares of a batch by speed are, or will next be, sent to the ranks."""
    is_near = stored.attempt.state in (AttemptState.SHAPING, AttemptState.STARTING)
    return is_near and stored.job.spec.get("batch_split") == BatchSplit.BY_SPEED.value


def _view(
    stored: StoredAttempt, runs: Mapping[tuple[int, int], ControlRun], *, now: dt.datetime
) -> AttemptView:
    attempt, job = stored.attempt, stored.job
    return AttemptView(
        token=attempt.id,
        job_id=job.id,
        spec=from_json(JobSpec, job.spec),
        state=attempt.state,
        state_age_s=(now - attempt.state_since).total_seconds(),
        ranks=tuple(
            _rank_view(member, runs.get((attempt.id, member.rank.rank)), attempt.state, now=now)
            for member in stored.members
        ),
        cancel_requested=job.cancel_requested,
    )


def _rank_view(
    member: Member, control: ControlRun | None, state: AttemptState, *, now: dt.datetime
) -> RankView:
    rank = member.rank
    # An agent may have been leased again only after this attempt ended, so a lease of another
    # attempt can only mean that this one's is over.
    holds = member.leased_to == rank.attempt_id
    expires_at = member.lease_expires_at if holds else None
    prepared = from_json(Prepared, rank.prepared) if rank.prepared else None
    ended = from_json(RankEnded, rank.ended) if rank.ended else None
    is_judged = (state, rank.phase) in _JUDGED
    shaped = from_json(Shaped, rank.shaped) if is_judged and rank.shaped else None
    is_starting = state is AttemptState.STARTING
    started = from_json(RankStarted, rank.started) if is_starting and rank.started else None
    return RankView(
        rank=rank.rank,
        agent_id=rank.agent_id,
        phase=rank.phase,
        address=prepared.address if prepared else None,
        framework=_software(prepared) if prepared else None,
        weights_checksum=started.weights_checksum if started else None,
        lease_s=(expires_at - now).total_seconds() if expires_at else -1.0,
        command_age_s=(
            (now - rank.commanded_at).total_seconds() if rank.commanded_at else float("inf")
        ),
        succeeded=ended is not None and ended.result is not None,
        failure=ended.failure if ended else None,
        ended_age_s=(now - rank.ended_at).total_seconds() if rank.ended_at else None,
        control=control,
        device_control_s=prepared.device_control_s if prepared else None,
        untouched=from_json(PeersMeasured, rank.peers).rtts if is_judged and rank.peers else (),
        back=ended.rtts if ended else (),
        shaped=shaped.rtts if shaped else (),
        bandwidths=shaped.bandwidths if shaped else (),
        emulator=shaped.emulator if shaped else None,
    )


def _software(prepared: Prepared) -> str:
    """Return the software that all ranks of a gang must have in the same version."""
    sha256 = prepared.model_sha256
    return prepared.framework if sha256 is None else f"{prepared.framework}, model {sha256[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReports:
    """The reports of one attempt's agents, by their place in the gang.

    `chunks`: of timed steps in order, as stored, by place and process. They are parsed when this
    attempt is evaluated, so an error does not affect other attempts.
    """

    members: Sequence[Member]
    samples: Mapping[int, Sequence[Sample]] = field(default_factory=dict)
    chunks: Mapping[tuple[int, int], Sequence[Any]] = field(default_factory=dict)
    control_runs: Mapping[int, ControlRun] = field(default_factory=dict)

    @property
    def sample_count(self) -> int:
        return sum(map(len, self.samples.values()))

    @property
    def step_count(self) -> int:
        """Return the number of step times in the chunks, without unpacking them."""
        return sum(chunk.step_count for chunks in self.chunks.values() for chunk in chunks)


def reports_of(
    session: Session, clocks: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[int, AttemptReports]:
    """Return by token the reports of active attempts.

    `clocks`: token to the ranks whose steps are wanted, since they tell its time, each by the place
    of its agent and its process there. It is for the caller not to ask for more attempts at once
    than memory has room for.

    Raises:
        InvalidSpec: there is too much to read at once.
    """
    if not clocks:
        return {}
    stored = locked_attempts(session, clocks)
    # The day comes first in the key: without it every day's partition would be searched.
    days = {one.attempt.leased_at.date() for one in stored.values()}
    which = [SampleRow.day.in_(days), SampleRow.attempt_id.in_(clocks)]
    samples = whole_series(session, which, most=MOST_SAMPLES_READ)
    # The attempts are named apart too, for the key: what a database makes of pairs differs.
    wanted = [(token, *clock) for token, ranks in clocks.items() for clock in ranks]
    chunks: dict[int, dict[tuple[int, int], list[Any]]] = {token: {} for token in clocks}
    key = (StepChunk.attempt_id, StepChunk.rank, StepChunk.process)
    columns = (StepChunk.first_step, StepChunk.begun_s, StepChunk.step_count, StepChunk.times)
    step_count = 0
    for begin in range(0, len(wanted), IDS_A_QUERY):
        rows = session.execute(
            select(*key, StepChunk.kind, *columns)
            .where(
                StepChunk.attempt_id.in_(clocks),
                tuple_(*key).in_(wanted[begin : begin + IDS_A_QUERY]),
                StepChunk.kind == StepKind.TIMED,
            )
            .order_by(*key, StepChunk.first_step)
            .execution_options(yield_per=_CHUNKS_AT_ONCE)
        )
        for row in rows:
            step_count += row.step_count
            if step_count > MOST_STEPS_READ:
                rows.close()
                expected = f"at most {MOST_STEPS_READ} step times of all ranks"
                raise InvalidSpec("step_chunks", f"{step_count} and more", expected)
            chunks[row.attempt_id].setdefault((row.rank, row.process), []).append(row)
    runs: dict[int, dict[int, ControlRun]] = {token: {} for token in clocks}
    for (token, rank), run in control_runs(session, clocks).items():
        runs[token][rank] = run
    return {
        token: AttemptReports(
            members=one.members,
            samples=samples.get(token, {}),
            chunks=chunks[token],
            control_runs=runs[token],
        )
        for token, one in stored.items()
    }
