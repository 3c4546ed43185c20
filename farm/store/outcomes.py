"""From a finished attempt's rows to its one measurement, in the transaction that ends it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from farm.core.agents import Hardware
from farm.core.codec import content_hash, from_json
from farm.core.measurement import OK, RankOutcome, measure
from farm.core.reports import Prepared, RankEnded, RankStarted, Sample, Shaped
from farm.core.spec import NetworkProfile
from farm.core.trainer_lines import Failure, StepKind
from farm.core.views import AttemptView
from farm.store.measurements import insert_measurement
from farm.store.series import epochs_of, samples_of, steps_of
from farm.store.tables import Agent, Rank

ORIGIN = "farm"


def record_outcome(
    session: Session, attempt: AttemptView, *, failure: Failure | None, now: dt.datetime
) -> None:
    """Write the measurement of an attempt that succeeded, or the failed cell of one that cannot.

    The caller owns the transaction, which is the one that ends the attempt: a job has its
    measurement exactly when it is over.
    """
    members = session.execute(
        select(Rank, Agent)
        .join(Agent, Agent.id == Rank.agent_id)
        .where(Rank.attempt_id == attempt.token)
        .order_by(Rank.rank)
    ).all()
    values = _configuration(attempt, members, now=now)
    values["status"] = failure.kind.value if failure else OK
    if failure is None:
        values |= _measured(session, attempt, members)
    else:
        values["details"]["failure"] = failure.message
    insert_measurement(session, **values)


def _configuration(
    attempt: AttemptView, members: Sequence[Row[Rank, Agent]], *, now: dt.datetime
) -> dict[str, Any]:
    """Return the columns that say what was measured, on what, and by which attempt."""
    spec = attempt.spec
    network = spec.network or NetworkProfile()
    hardware = [rank.hardware for rank, _ in members]
    prepared = [from_json(Prepared, r.prepared) for r, _ in members if r.prepared]
    types = sorted({agent.facts["labels"].get("instance_type", "") for _, agent in members} - {""})
    return {
        "origin": ORIGIN,
        "source_key": f"job {attempt.job_id}",
        "job_id": attempt.job_id,
        "attempt_id": attempt.token,
        "created_at": now,
        "model": spec.model,
        "dataset": spec.dataset,
        "training_pass": spec.training_pass.value,
        "framework": prepared[0].framework if prepared else None,
        "strategy": spec.strategy,
        "instance_type": "+".join(types) or None,
        "world_size": spec.world_size,
        "server_count": spec.server_count,
        "global_batch_size": spec.global_batch_size,
        "one_way_delay_s": network.one_way_delay_s,
        "bandwidth_bytes_per_s": network.bandwidth_bytes_per_s,
        "packet_loss_ratio": network.packet_loss_ratio,
        "jitter_s": network.jitter_s,
        "repetition": spec.repetition,
        "epochs": spec.epochs,
        "fingerprint": _fingerprint(hardware),
        "details": {
            "agents": [agent.id for _, agent in members],
            "hardware": hardware,
            "dataset_source": (members[0][0].prepared or {}).get("dataset"),
            "seed": spec.seed,
        },
    }


def _measured(
    session: Session, attempt: AttemptView, members: Sequence[Row[Rank, Agent]]
) -> dict[str, Any]:
    outcomes = [_rank_outcome(session, rank) for rank, _ in members]
    timed = [
        time_s
        for chunk in steps_of(session, attempt.token, rank=0)
        if chunk.kind is StepKind.TIMED
        for time_s in chunk.times_s
    ]
    prepared = from_json(Prepared, members[0][0].prepared)
    started = from_json(RankStarted, members[0][0].started)
    shaped = [from_json(Shaped, rank.shaped) for rank, _ in members if rank.shaped]
    measured = measure(
        attempt.spec,
        outcomes,
        timed_steps_s=timed,
        epochs=epochs_of(session, attempt.token, rank=0),
        train_examples_count=prepared.dataset.train_examples_count,
    )
    return {
        **{f.name: getattr(measured, f.name) for f in dataclasses.fields(measured)},
        "parameter_count": started.parameter_count,
        "gradient_bytes": started.gradient_bytes,
        "network": shaped[0].emulator if shaped else None,
        "rtt_s": max((p.rtt_s for s in shaped for p in s.rtts), default=None),
    }


def _rank_outcome(session: Session, rank: Rank) -> RankOutcome:
    ended = from_json(RankEnded, rank.ended)
    assert ended.result is not None, "the attempt succeeded"
    samples: Sequence[Sample] = samples_of(session, rank.attempt_id, rank=rank.rank)
    return RankOutcome(
        rank=rank.rank,
        result=ended.result,
        timed_begun_s=ended.timed_begun_s,
        samples=tuple(samples),
    )


def _fingerprint(hardware: Sequence[dict[str, Any]]) -> str:
    """Return the hash of the gang's hardware: of the one kind, or of the mixture's kinds."""
    kinds = sorted({from_json(Hardware, h).fingerprint for h in hardware})
    return kinds[0] if len(kinds) == 1 else content_hash(kinds)
