"""Repetitions until a cell is precise, as the store adds them."""

from __future__ import annotations

import datetime as dt
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import select

from farm.cells.json_forms import SweepCells
from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, JobState, SweepState
from farm.measuring.precision import Target
from farm.store.engine import reading, writing
from farm.store.measurements.repetitions import extend_cells
from farm.store.queue.waiting import waiting_jobs
from farm.store.sweeps.jobs import list_jobs, request_cancel_job, request_cancel_sweep, retry_job
from farm.store.sweeps.sweeps import insert_sweep, sweep_summary
from farm.store.tables import AttemptRow, JobEvent, JobRow
from farm.submission import plan, submit
from farm.values.codec import from_json
from tests.factories import NOW, add_agent, add_attempt, add_measurement, job_spec, seconds
from tests.services.postgres_server import wait_until_blocked
from tests.stored.sweep_cells import cells_in

CASE = {
    "model": "mlp",
    "dataset": "digits",
    "strategy": "single",
    "world_size": 1,
    "global_batch_size": [32, 64],
    "seed": 7,
}


def submitted(engine: sa.Engine, **fields: Any) -> int:
    sweep = {"name": "s", "repetitions": "auto", "priority": 5, "case": [CASE], **fields}
    with writing(engine) as session:
        return submit(session, plan(sweep), now=NOW).sweep_id


def end(
    engine: sa.Engine,
    job_id: int,
    *,
    step_time_s: float = 0.1,
    failure: str | None = None,
    now: dt.datetime = NOW,
) -> int:
    """End a job as a scheduler does, in one transaction; return how many repetitions it added."""
    with writing(engine) as session:
        token = ended(session, job_id, step_time_s=step_time_s, failure=failure)
        return extend_cells(session, [token], now=now)


def ended(session: Any, job_id: int, *, step_time_s: float, failure: str | None = None) -> int:
    tried = select(sa.func.count()).select_from(AttemptRow).where(AttemptRow.job_id == job_id)
    number = 1 + session.scalar(tried)
    state = AttemptState.SUCCEEDED if failure is None else AttemptState.FAILED
    token = add_attempt(session, job_id, state=state, number=number)
    session.get_one(AttemptRow, token).ended_at = NOW + seconds(10)
    job = session.get_one(JobRow, job_id)
    job.failure_kind = failure
    add_measurement(
        session,
        f"job {job_id}",
        job_id=job_id,
        status=failure or "ok",
        step_time_s=None if failure else step_time_s,
        fingerprint="x",
    )
    return token


def waiting(engine: sa.Engine, sweep_id: int) -> list[JobRow]:
    with reading(engine) as session:
        jobs = list_jobs(session, sweep_id=sweep_id, limit=1000)
    return [job for job in jobs if job.state is JobState.WAITING]


def run(engine: sa.Engine, sweep_id: int, draw: Callable[[JobRow], float]) -> None:
    """Measure whatever waits, until nothing does."""
    while jobs := waiting(engine, sweep_id):
        for job in jobs:
            end(engine, job.id, step_time_s=draw(job))


def cells_of(engine: sa.Engine, sweep_id: int) -> SweepCells:
    with reading(engine) as session:
        return cells_in(session, sweep_id)


def end_all(engine: sa.Engine, jobs: Sequence[JobRow], times_s: Sequence[float]) -> int:
    pairs = zip(jobs, times_s, strict=True)
    return sum(end(engine, job.id, step_time_s=time_s) for job, time_s in pairs)


def test_noisy_cells_get_more_repetitions_than_calm_ones(engine: sa.Engine) -> None:
    sweep_id = submitted(engine)
    rng = random.Random(1)
    noise = {32: 0.002, 64: 0.02}
    run(engine, sweep_id, lambda job: 0.1 * math.exp(rng.gauss(0, noise[job.global_batch_size])))
    found = cells_of(engine, sweep_id)
    calm, noisy = found.cells
    assert (calm.line.statistics.target, calm.line.statistics.count) == (Target.REACHED, 3)
    assert noisy.line.statistics.target in (Target.REACHED, Target.CAP)
    assert 4 <= noisy.line.statistics.count <= 10
    with reading(engine) as session:
        summary = sweep_summary(session, sweep_id)
    assert summary.state is SweepState.FINISHED
    assert summary.max_job_count == summary.job_count


def test_a_sweep_of_one_cell_is_never_said_to_have_reached_its_target(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    rng = random.Random(1)
    run(engine, sweep_id, lambda _: 0.1 * math.exp(rng.gauss(0, 0.0005)))
    [cell] = cells_of(engine, sweep_id).cells
    assert (cell.line.statistics.target, cell.line.statistics.count) == (Target.BACK_TO_BACK, 3)


def test_repetitions_of_several_cells_are_added_in_rounds(engine: sa.Engine) -> None:
    """Those of one cell are apart in time, and each round has an order of its own."""
    sizes = list(range(1, 9))
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": sizes}])
    times_s = {0: 0.1, 1: 0.11, 2: 0.12}
    with writing(engine) as session:
        tokens = [
            ended(session, job.id, step_time_s=times_s[job.repetition])
            for job in list_jobs(session, sweep_id=sweep_id, limit=100)
        ]
        assert extend_cells(session, tokens, now=NOW) > len(sizes)
    added = sorted(waiting(engine, sweep_id), key=lambda job: job.id)
    rounds = [added[i : i + len(sizes)] for i in range(0, len(added), len(sizes))]
    assert [{job.repetition for job in one} for one in rounds] == [
        {3 + i} for i in range(len(rounds))
    ]
    orders = [[job.global_batch_size for job in one] for one in rounds]
    assert all(sorted(order) == sizes for order in orders)
    assert orders[0] != orders[1]


def test_what_the_scheduler_stops_at_is_what_is_told(engine: sa.Engine) -> None:
    """Whatever other cells measured later: no cell that is over is said to go on."""
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": [8, 16, 32, 64]}])
    rng = random.Random(3)
    drift = 0.0

    def draw(job: JobRow) -> float:
        nonlocal drift
        drift = 0.8 * drift + rng.gauss(0, 0.006)
        return 0.1 * math.exp(drift)

    run(engine, sweep_id, draw)
    targets = {cell.line.statistics.target for cell in cells_of(engine, sweep_id).cells}
    assert targets <= {Target.REACHED, Target.CAP}


def test_an_added_repetition_is_like_the_others_but_for_number_and_seed(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32, "labels": {"a": "b"}}])
    first = waiting(engine, sweep_id)
    end_all(engine, first, [0.1, 0.12, 0.11])
    more = waiting(engine, sweep_id)
    specs = [from_json(JobSpec, job.spec) for job in more]
    assert [(s.repetition, s.seed) for s in specs] == [(3 + i, 10 + i) for i in range(len(specs))]
    assert {job.cell_hash for job in [*first, *more]} == {first[0].cell_hash}
    assert {(job.priority, job.due_at) for job in more} == {(5, NOW)}
    assert {s.labels["a"] for s in specs} == {"b"}
    with reading(engine) as session:
        events = session.scalars(select(JobEvent.event).where(JobEvent.job_id == more[0].id)).all()
    assert events == ["job: waiting"]


def test_nothing_is_added_before_the_last_repetition_of_the_cell_is_over(
    engine: sa.Engine,
) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    a, b, c = waiting(engine, sweep_id)
    assert end_all(engine, [a, b], [0.1, 0.2]) == 0
    assert end(engine, c.id, step_time_s=0.3) > 0


def test_the_same_end_twice_adds_once(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    jobs = waiting(engine, sweep_id)
    end_all(engine, jobs, [0.1, 0.2, 0.3])
    with writing(engine) as session:
        tokens = session.scalars(select(AttemptRow.id)).all()
        assert extend_cells(session, tokens, now=NOW) == 0


def test_a_fixed_number_of_repetitions_stays_fixed(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, repetitions=3)
    run(engine, sweep_id, lambda job: 0.1 * (1 + job.repetition))
    found = cells_of(engine, sweep_id)
    assert [cell.line.statistics.count for cell in found.cells] == [3, 3]
    assert [cell.line.statistics.target for cell in found.cells] == [None, None]
    assert (found.precision, found.saving) == (None, None)


def test_the_cap_is_never_passed(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, max_repetitions=5)
    run(engine, sweep_id, lambda job: 0.1 * (1 + job.repetition % 2))
    found = cells_of(engine, sweep_id)
    assert [(c.line.statistics.target, len(c.line.repetitions)) for c in found.cells] == [
        (Target.CAP, 5)
    ] * 2


def test_a_configuration_that_fails_is_not_repeated_and_a_retry_goes_on(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    a, b, c = waiting(engine, sweep_id)
    end_all(engine, [a, b], [0.1, 0.2])
    assert end(engine, c.id, failure="out_of_memory") == 0
    assert cells_of(engine, sweep_id).cells[0].line.statistics.target is Target.ENDED
    with writing(engine) as session:
        retry_job(session, c.id, now=NOW)
    assert cells_of(engine, sweep_id).cells[0].line.statistics.target is Target.RUNNING
    assert end(engine, c.id, step_time_s=0.3) > 0


def test_a_job_that_machines_lost_for_good_is_made_up_for(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    a, b, c = waiting(engine, sweep_id)
    end_all(engine, [a, b], [0.1, 0.1])
    assert end(engine, c.id, failure="killed") == 1


def test_a_cancelled_sweep_gets_no_new_repetitions(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    a, b, c = waiting(engine, sweep_id)
    end_all(engine, [a, b], [0.1, 0.2])
    with writing(engine) as session:
        add_agent(session, "a1")
        token = add_attempt(session, c.id, ["a1"], state=AttemptState.RUNNING)
        assert request_cancel_sweep(session, sweep_id, now=NOW) == 1
        # Its last steps may still be reported as a success.
        job, attempt = session.get_one(JobRow, c.id), session.get_one(AttemptRow, token)
        job.state, job.attempt_id = JobState.SUCCEEDED, None
        attempt.state = AttemptState.SUCCEEDED
        assert extend_cells(session, [token], now=NOW) == 0


def test_a_repetition_that_somebody_cancelled_ends_its_cell_alone(engine: sa.Engine) -> None:
    sweep_id = submitted(engine)
    jobs = waiting(engine, sweep_id)
    cancelled = next(job for job in jobs if job.global_batch_size == 32)
    with writing(engine) as session:
        request_cancel_job(session, cancelled.id, now=NOW)
    run(engine, sweep_id, lambda job: 0.1 * (1 + job.repetition))
    stopped, other = cells_of(engine, sweep_id).cells
    assert (stopped.line.statistics.target, len(stopped.line.repetitions)) == (Target.ENDED, 3)
    assert (other.line.statistics.target, len(other.line.repetitions)) == (Target.CAP, 10)


def test_a_sweep_says_how_many_jobs_it_may_have_at_most(engine: sa.Engine) -> None:
    sweep_id = submitted(engine)
    with reading(engine) as session:
        assert sweep_summary(session, sweep_id).max_job_count == 20
    calm = [job for job in waiting(engine, sweep_id) if job.global_batch_size == 32]
    end_all(engine, calm, [0.1, 0.1, 0.1])
    with reading(engine) as session:
        summary = sweep_summary(session, sweep_id)
    assert (summary.final_count, summary.job_count, summary.max_job_count) == (3, 6, 13)
    assert summary.state is SweepState.RUNNING


def test_the_sweep_of_another_version_keeps_what_it_has(engine: sa.Engine) -> None:
    with writing(engine) as session:
        sweep_id = insert_sweep(
            session,
            name="s",
            spec={"repetitions": "auto", "precision_percent": "very"},
            jobs=[job_spec()],
            skipped=[],
            priority=0,
            now=NOW,
        )
    [job] = waiting(engine, sweep_id)
    assert end(engine, job.id) == 0
    assert cells_of(engine, sweep_id).cells[0].line.statistics.count == 1


def test_jobs_of_a_version_that_wrote_less_are_repeated_all_the_same(engine: sa.Engine) -> None:
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    with writing(engine) as session:
        for job in session.scalars(select(JobRow)):
            job.spec = {key: value for key, value in job.spec.items() if key != "seed"}
    assert end_all(engine, waiting(engine, sweep_id), [0.1, 0.2, 0.3]) > 0


def test_machine_time_is_that_of_all_attempts_times_agents(engine: sa.Engine) -> None:
    sweep_id = submitted(engine)
    run(engine, sweep_id, lambda job: 0.1 if job.global_batch_size == 32 else 0.2)
    found = cells_of(engine, sweep_id)
    assert [cell.machine_s for cell in found.cells] == [30.0, 30.0]
    assert found.saving is not None
    assert (found.saving.machine_s, found.saving.machine_hours_saved) == (60.0, 0.0)


def test_the_last_two_repetitions_of_a_cell_may_end_at_the_same_time(engine: sa.Engine) -> None:
    """Two schedulers each end one; however they interleave, the cell is extended exactly once."""
    sizes = list(range(1, 9))
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": sizes}], max_repetitions=4)
    by_size: dict[int, list[JobRow]] = {size: [] for size in sizes}
    for job in waiting(engine, sweep_id):
        by_size[job.global_batch_size].append(job)
    for jobs in by_size.values():
        end(engine, jobs[0].id, step_time_s=0.1)
    barrier = threading.Barrier(2)
    added: list[int] = []

    def scheduler(position: int) -> None:
        for jobs in by_size.values():
            barrier.wait(timeout=30)
            added.append(end(engine, jobs[position].id, step_time_s=0.1 + position))

    threads = [threading.Thread(target=scheduler, args=(i,)) for i in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sum(added) == len(sizes)
    with reading(engine) as session:
        stored = list_jobs(session, sweep_id=sweep_id, limit=1000)
    counts = Counter((job.global_batch_size, job.repetition) for job in stored)
    assert set(counts.values()) == {1}
    assert len(counts) == 4 * len(sizes)


def test_schedulers_that_end_cells_of_several_sweeps_do_not_lock_each_other_out(
    engine: sa.Engine,
) -> None:
    case = [{**CASE, "global_batch_size": list(range(1, 7))}]
    sweeps = [submitted(engine, case=case, max_repetitions=4) for _ in range(2)]
    halves: list[list[list[JobRow]]] = [[], []]
    for sweep_id in sweeps:
        jobs = waiting(engine, sweep_id)
        for size in range(1, 7):
            cell = [job for job in jobs if job.global_batch_size == size]
            end_all(engine, cell[:2], [0.1, 0.2])
            halves[size % 2].append(cell[2:])
    barrier = threading.Barrier(2)
    added: list[int] = []
    errors: list[BaseException] = []

    def scheduler(cells: list[list[JobRow]]) -> None:
        barrier.wait(timeout=30)
        try:
            with writing(engine) as session:
                tokens = [ended(session, job.id, step_time_s=0.3) for cell in cells for job in cell]
                added.append(extend_cells(session, tokens, now=NOW))
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=scheduler, args=(cells,)) for cells in (halves[0], halves[1][::-1])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    assert sum(added) == 12


@pytest.mark.parametrize("database_kind", ["postgresql"])  # SQLite has one writer at a time
def test_a_cancel_meets_the_repetitions_that_are_added_meanwhile(engine: sa.Engine) -> None:
    """Whoever cancels waits for the scheduler's lock, and then sees what it has added."""
    sweep_id = submitted(engine, case=[{**CASE, "global_batch_size": 32}])
    a, b, c = waiting(engine, sweep_id)
    end_all(engine, [a, b], [0.1, 0.2])
    is_locked = threading.Event()
    counts: list[int] = []

    def cancel() -> None:
        assert is_locked.wait(timeout=30)
        with writing(engine) as session:
            counts.append(request_cancel_sweep(session, sweep_id, now=NOW))

    thread = threading.Thread(target=cancel)
    thread.start()
    with writing(engine) as session:
        session.execute(select(JobRow.id).where(JobRow.id == c.id).with_for_update())
        is_locked.set()
        wait_until_blocked(engine)
        token = ended(session, c.id, step_time_s=0.3)
        added = extend_cells(session, [token], now=NOW)
    thread.join(timeout=60)
    assert added > 0
    assert counts == [added]
    assert waiting(engine, sweep_id) == []


def test_a_waiting_repetition_knows_who_has_measured_its_cell(engine: sa.Engine) -> None:
    sweep_id = submitted(engine)
    jobs = waiting(engine, sweep_id)
    first = next(job for job in jobs if job.repetition == 0 and job.global_batch_size == 32)
    with writing(engine) as session:
        add_agent(session, "a1", fingerprint="kind 1")
        add_agent(session, "a2", fingerprint="kind 2")
        add_attempt(session, first.id, ["a2"], state=AttemptState.LOST)
        add_attempt(session, first.id, ["a1"], state=AttemptState.SUCCEEDED, number=2)
        found = {job.job_id: job for job in waiting_jobs(session, now=NOW)}
    for job in jobs:
        if job.id == first.id:
            continue
        is_again = job.repetition > 0 and job.global_batch_size == 32
        assert found[job.id].measured_by == ({"a1": 1} if is_again else {})
        assert found[job.id].measured_on == (frozenset({"kind 1"}) if is_again else frozenset())
