"""What a study needs of the store."""

from __future__ import annotations

import datetime as dt

import pytest
import sqlalchemy as sa

from farm.configuration.spec import TENSORFLOW
from farm.gang.lifecycle import AttemptState, JobState
from farm.placement.agent_index import SHARES_CORES
from farm.store.engine import reading, writing
from farm.store.measurements.studies import (
    find_same_sweep,
    requeue_unfinished,
    study_runs,
    unmeasured_jobs,
)
from farm.store.result_tables import EpochRow
from farm.store.tables import JobRow, RankRow, SweepRow
from farm.studies.publishing import read_runs, write_runs
from farm.submission import plan, submit
from tests.factories import (
    NOW,
    add_agent,
    add_attempt,
    add_measurement,
    add_sweep,
    agent_facts,
    job_spec,
)

SWEEP = {
    "name": "a study",
    "repetitions": "auto",
    "precision_percent": 2.5,
    "case": [
        {
            "model": "mlp",
            "dataset": "digits",
            "strategy": "mwms_ring",
            "world_size": [2, 3],
            "global_batch_size": 32,
            "one_way_delay_ms": [0, 0.5],
        }
    ],
}


def submitted(engine: sa.Engine, data: dict[str, object]) -> int:
    with writing(engine) as session:
        return submit(session, plan(data), now=NOW).sweep_id


def test_a_sweep_is_found_again_by_its_content_the_newest_first(engine: sa.Engine) -> None:
    submitted(engine, SWEEP)
    newest = submitted(engine, SWEEP)
    submitted(engine, {**SWEEP, "precision_percent": 5})
    submitted(engine, {**SWEEP, "name": "another study"})

    with reading(engine) as session:
        assert find_same_sweep(session, SWEEP) == newest
        assert find_same_sweep(session, {**SWEEP, "precision_percent": 3}) is None


def test_what_ended_without_a_result_is_taken_up_and_nothing_else(engine: sa.Engine) -> None:
    with writing(engine) as session:
        specs = [job_spec(repetition=i) for i in range(5)]
        measured, failed, lost, cancelled, waiting = add_sweep(session, *specs)
        states = {
            measured: JobState.SUCCEEDED,
            failed: JobState.FAILED,
            lost: JobState.FAILED,
            cancelled: JobState.CANCELLED,
        }
        for job_id, state in states.items():
            session.get_one(JobRow, job_id).state = state
        add_measurement(session, "1", job_id=measured)
        # Out of memory is what this configuration does.
        add_measurement(session, "2", job_id=failed, status="out_of_memory", step_time_s=None)
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()

    with writing(engine) as session:
        assert requeue_unfinished(session, sweep_id, now=NOW) == 2
    with reading(engine) as session:
        assert [job.id for job in unmeasured_jobs(session, sweep_id)] == [lost, cancelled, waiting]
        found = {job.id: job.state for job in session.scalars(sa.select(JobRow))}
        assert len(study_runs(session, sweep_id)) == 2
    assert [found[job_id] for job_id in (measured, failed)] == [states[measured], states[failed]]
    assert {found[job_id] for job_id in (lost, cancelled, waiting)} == {JobState.WAITING}


def test_a_run_says_what_its_page_needs(engine: sa.Engine) -> None:
    with writing(engine) as session:
        for name, cpu in (("h1", 0), ("h2", 1), ("h3", 0)):
            facts = agent_facts(cpus=(cpu,), capabilities=(SHARES_CORES, TENSORFLOW))
            add_agent(session, name, facts=facts)
        [job_id] = add_sweep(session, job_spec(world_size=3))
        token = add_attempt(
            session, job_id, ["h1", "h2", "h3"], state=AttemptState.SUCCEEDED, number=2
        )
        for rank, (sent, compute_s) in enumerate([(3000, 0.01), (6000, 0.05), (None, 0.07)]):
            session.get_one(RankRow, (token, rank)).ended = {
                "result": {
                    "interface_tx_bytes": sent,
                    "window_step_count": 30,
                    "profile": {"compute_s": compute_s},
                }
            }
        add_measurement(
            session,
            "1",
            job_id=job_id,
            attempt_id=token,
            world_size=3,
            rtt_s=0.04,
            flags=[{"kind": "steal", "message": "a"}, {"kind": "steal", "message": "b"}],
        )
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()

    with reading(engine) as session:
        [run] = study_runs(session, sweep_id)
    assert (run.job_id, run["world_size"], run.attempt_count) == (job_id, 3, 2)
    assert run.measured_at == NOW.astimezone(dt.UTC)
    assert run.core_count == 2  # h1 and h3 share one
    assert run.wire_bytes_per_step == 150  # the mean of those that were counted
    assert (run.rank_0_compute_s, run.other_ranks_compute_s) == pytest.approx((0.01, 0.06))
    assert run.flags == ("steal",)
    assert (run.cpu_model, run.tensorflow_version) == ("A CPU", "2.21.0")


def test_a_run_without_its_ranks_leaves_open_what_they_would_tell(engine: sa.Engine) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        add_measurement(session, "1", job_id=job_id)
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()

    with reading(engine) as session:
        [run] = study_runs(session, sweep_id)
    assert (run.wire_bytes_per_step, run.cpu_model, run.core_count) == (None, None, 0)


def test_a_run_has_a_value_of_every_axis_and_reads_back_from_its_file(engine: sa.Engine) -> None:
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        add_measurement(session, "1", job_id=job_id, replicas_per_rank=None, epochs=3)
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()

    with reading(engine) as session:
        runs = study_runs(session, sweep_id)
    assert (runs[0]["replicas_per_rank"], runs[0]["server_count"], runs[0]["epochs"]) == (1, 0, 3)
    assert read_runs(write_runs(runs), name="x.csv") == runs


def test_a_run_says_what_its_servers_used_and_what_rank_0_lost_at_last(engine: sa.Engine) -> None:
    used = {"cpu_ratio": 0.5, "net_rx_bytes_per_s": 10.0, "net_tx_bytes_per_s": None}
    with writing(engine) as session:
        [job_id] = add_sweep(session)
        token = add_attempt(session, job_id, [], state=AttemptState.SUCCEEDED)
        for rank, epoch, loss in ((0, 0, 0.9), (0, 1, 0.4), (1, 1, 0.1)):
            session.add(
                EpochRow(
                    attempt_id=token,
                    rank=rank,
                    epoch=epoch,
                    train_s=1.0,
                    step_count=10,
                    train_loss=loss,
                    val_loss=2 * loss,
                )
            )
        servers = [{**used, "rank": i, "resident_bytes": i * 100} for i in (2, 3)]
        add_measurement(session, "1", job_id=job_id, attempt_id=token, details={"servers": servers})
        sweep_id = session.scalars(sa.select(SweepRow.id)).one()

    with reading(engine) as session:
        [run] = study_runs(session, sweep_id)
    assert (run.training_loss, run.test_loss) == pytest.approx((0.4, 0.8))
    assert (run.server_cpu_ratio, run.server_resident_bytes) == (0.5, 250)
    assert (run.server_rx_bytes_per_s, run.server_tx_bytes_per_s) == (10.0, None)
