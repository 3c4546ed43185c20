"""What the store tells of roles and of trainings by epochs."""

from __future__ import annotations

import sqlalchemy as sa

from farm.configuration.spec import ServerPlacement
from farm.messages.reports import Sample
from farm.messages.trainer_lines import Epoch
from farm.store.engine import reading, writing
from farm.store.measurements.trained_cells import learning_curves, trained_cells
from farm.store.series.sample_ranges import SERVING, TRAINING, roles_apart, roles_collocated
from farm.store.tables import AttemptRow, JobRow
from tests import factories
from tests.stored.stored_series import insert_epoch, insert_samples


def _attempt(engine: sa.Engine, agent_count: int, samples: dict[int, list[Sample]]) -> int:
    spec = factories.job_spec(
        strategy="ps_async",
        world_size=2,
        server_count=1,
        server_placement=ServerPlacement.APART if agent_count > 2 else ServerPlacement.COLLOCATED,
    )
    with writing(engine) as session:
        job_id = factories.add_job(session, spec)
        agents = [factories.add_agent(session, f"a{n}") for n in range(agent_count)]
        token = factories.add_attempt(session, job_id, agents)
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank, series in samples.items():
            insert_samples(session, day=day, token=token, rank=rank, samples=series)
    return token


def test_ranks_that_train_are_averaged_and_servers_stand_apart(engine: sa.Engine) -> None:
    def series(*cpu_ratios: float | None) -> list[Sample]:
        return [
            Sample(tick=t, cpu_ratio=ratio, net_tx_bytes_per_s=1000.0)
            for t, ratio in enumerate(cpu_ratios)
        ]

    token = _attempt(engine, 3, {0: series(0.2, None), 1: series(0.4, 0.6), 2: series(0.9, 1.0)})
    with reading(engine) as session:
        attempt = session.get_one(AttemptRow, token)
        training, serving = roles_apart(session, attempt, training_count=2, max_points=100)
        [wide, _] = roles_apart(session, attempt, training_count=2, max_points=1)
    assert (training.name, serving.name) == (TRAINING, SERVING)
    assert [tick for tick, _ in training.metrics["cpu_ratio"]] == [0, 1]
    assert [round(v or 0, 9) for _, v in training.metrics["cpu_ratio"]] == [0.3, 0.6]
    assert [v for _, v in serving.metrics["cpu_ratio"]] == [0.9, 1.0]
    assert training.metrics["net_tx_bytes_per_s"] == [(0, 1000.0), (1, 1000.0)]
    assert training.metrics["resident_bytes"] == [(0, None), (1, None)]
    assert [(tick, round(v or 0, 9)) for tick, v in wide.metrics["cpu_ratio"]] == [(0, 0.4)]


def test_roles_of_one_rank_are_told_by_their_processes(engine: sa.Engine) -> None:
    def series(worker: float, ps: float) -> list[Sample]:
        extra = {"worker_cpu_ratio": worker, "ps_cpu_ratio": ps, "ps_resident_bytes": 5e6}
        return [Sample(tick=t, cpu_ratio=worker + ps, extra=extra) for t in range(3)]

    token = _attempt(engine, 2, {0: series(0.5, 0.1), 1: series(0.7, 0.3)})
    with reading(engine) as session:
        attempt = session.get_one(AttemptRow, token)
        training, serving = roles_collocated(session, attempt, max_points=100)
    assert [round(v or 0, 9) for _, v in training.metrics["cpu_ratio"]] == [0.6] * 3
    assert [round(v or 0, 9) for _, v in serving.metrics["cpu_ratio"]] == [0.2] * 3
    assert serving.metrics["resident_bytes"] == [(t, 5e6) for t in range(3)]


def test_an_attempt_without_samples_has_no_roles(engine: sa.Engine) -> None:
    token = _attempt(engine, 3, {})
    with reading(engine) as session:
        attempt = session.get_one(AttemptRow, token)
        assert roles_apart(session, attempt, training_count=2, max_points=9) == []
        assert roles_collocated(session, attempt, max_points=9) == []


def test_an_epoch_takes_as_long_as_on_the_slowest_of_its_ranks(engine: sa.Engine) -> None:
    times_s = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): 2.0, (1, 1): 1.5, (2, 1): 9.0}  # by epoch, rank
    with writing(engine) as session:
        agents = [factories.add_agent(session, f"a{n}") for n in range(2)]
        job_id = factories.add_job(session, factories.job_spec(world_size=2, epochs=3))
        token = factories.add_attempt(session, job_id, agents)
        for (epoch, rank), train_s in times_s.items():
            one = Epoch(
                epoch=epoch,
                train_s=train_s,
                step_count=4,
                train_loss=None,
                val_loss=None,
                val_accuracy_ratio=0.4 * (epoch + 1) if rank == 0 else None,
            )
            insert_epoch(session, token=token, rank=rank, epoch=one)
    with reading(engine) as session:
        found = learning_curves(session, [token])
    # Of the third, rank 0 has told nothing yet.
    assert found[token].train_s == (3.0, 2.0)
    assert found[token].accuracy_ratios == (0.4, 0.8)


def test_trainings_are_told_by_cell_with_their_accuracies(engine: sa.Engine) -> None:
    specs = [factories.job_spec(epochs=2, repetition=n) for n in range(2)]
    with writing(engine) as session:
        ids = factories.add_sweep(session, *specs, factories.job_spec())
        for number, job_id in enumerate(ids):
            agent = factories.add_agent(session, f"a{number}")
            token = factories.add_attempt(session, job_id, [agent])
            factories.add_measurement(
                session,
                str(job_id),
                job_id=job_id,
                attempt_id=token,
                epochs=2 if number < 2 else None,
                fingerprint="a kind",
            )
            for epoch in range(2):
                one = Epoch(
                    epoch=epoch,
                    train_s=1.0 + number,
                    step_count=4,
                    train_loss=None,
                    val_loss=None,
                    val_accuracy_ratio=0.4 * (epoch + 1),
                )
                insert_epoch(session, token=token, rank=0, epoch=one)
        sweep_id = session.get_one(JobRow, ids[0]).sweep_id
    with reading(engine) as session:
        found = trained_cells(session, sweep_id, max_jobs=10)
        assert not trained_cells(session, sweep_id, max_jobs=1).is_complete
    [cell] = found.cells
    assert found.is_complete
    assert cell.job_ids == tuple(ids[:2])
    assert [curve.train_s for curve in cell.curves] == [(1.0, 1.0), (2.0, 2.0)]
    assert cell.curves[0].accuracy_ratios == (0.4, 0.8)
    assert cell.spec["epochs"] == 2
