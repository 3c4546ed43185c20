"""What a study says of the memory of roles: of servers beside ranks that train, and of none."""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa

from farm.gang.lifecycle import AttemptState
from farm.measuring.study_run import StudyRun
from farm.messages.reports import RankEnded, Sample
from farm.messages.trainer_lines import TrainerResult
from farm.store.engine import reading, writing
from farm.store.measurements.studies import study_runs
from farm.store.tables import RankRow, SweepRow
from farm.values.codec import to_json
from tests.factories import NOW, add_agent, add_attempt, add_measurement, add_sweep, job_spec
from tests.stored.stored_series import insert_samples

# Timed are the seconds 2 to 4, of which ticks 3 and 4 lie wholly within.


def _ended(rank: int) -> RankEnded:
    """Seconds 2 to 4 were timed. Rank 0 has sent 300 bytes a step, rank 1 twice as many."""
    result = TrainerResult(
        timed_step_count=10,
        window_step_count=10,
        timed_window_s=2.0,
        timed_begun_monotonic_s=1002.0,
        interface_rx_bytes=0,
        interface_tx_bytes=3000 * (rank + 1),
        payload_rx_bytes=0,
        payload_tx_bytes=0,
        train_loss=None,
        val_accuracy_ratio=None,
        peak_resident_bytes=0,
        seed=0,
    )
    return RankEnded(result=result, failure=None, timed_begun_s=2.0, log_tail="")


def measured(engine: sa.Engine, *ranks: list[Sample], **columns: Any) -> StudyRun:
    """Measure a gang with these samples of each rank, and return what a study has of it."""
    with writing(engine) as session:
        names = [f"h{rank}" for rank, _ in enumerate(ranks)]
        for name in names:
            add_agent(session, name)
        [job_id] = add_sweep(session, job_spec(world_size=len(ranks)))
        token = add_attempt(session, job_id, names, state=AttemptState.SUCCEEDED)
        for rank, samples in enumerate(ranks):
            session.get_one(RankRow, (token, rank)).ended = cast(
                dict[str, Any], to_json(_ended(rank))
            )
            day = NOW.date()
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
        add_measurement(session, "1", job_id=job_id, attempt_id=token, **columns)
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()
    with reading(engine) as session:
        [run] = study_runs(session, sweep_id)
    return run


def of_roles(tick: int, *, worker: float, ps: float) -> Sample:
    extra = {"worker_resident_bytes": worker, "ps_resident_bytes": ps}
    return Sample(tick=tick, resident_bytes=round(worker + ps), extra=extra)


def test_collocated_servers_have_their_memory_apart_from_what_trains(engine: sa.Engine) -> None:
    with_server = [
        of_roles(2, worker=9000, ps=9000),  # not timed
        of_roles(3, worker=410, ps=300),
        of_roles(4, worker=400, ps=310),
        of_roles(5, worker=9000, ps=9000),
    ]
    without = [Sample(tick=tick, resident_bytes=420) for tick in (3, 4)]
    run = measured(
        engine,
        with_server,
        without,
        world_size=2,
        strategy="ps_sync",
        server_count=1,
        server_placement="collocated",
        resident_bytes=710,
    )

    assert run["resident_bytes"] == 710  # both roles together
    assert (run.worker_resident_bytes, run.server_resident_bytes) == (420, 310)
    assert run["training_pass"] == "forward_backward"


def test_without_collocated_servers_a_rank_is_what_trains(engine: sa.Engine) -> None:
    samples = [Sample(tick=3, resident_bytes=500)]
    run = measured(engine, samples, samples, world_size=2, resident_bytes=499)

    assert (run.worker_resident_bytes, run.server_resident_bytes) == (499, None)


def test_a_run_without_samples_leaves_memory_open(engine: sa.Engine) -> None:
    run = measured(engine, [], [], world_size=2, server_count=2, server_placement="collocated")

    assert (run.worker_resident_bytes, run.server_resident_bytes) == (None, None)


def test_the_rank_that_sends_most_is_told_beside_the_mean(engine: sa.Engine) -> None:
    run = measured(engine, [], [], world_size=2)
    assert (run.wire_bytes_per_step, run.largest_wire_bytes_per_step) == (450, 600)
