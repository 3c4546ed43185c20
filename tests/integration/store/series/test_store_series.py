from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.errors import NotFound
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import Epoch, StepKind
from farm.store.engine import reading, writing
from farm.store.result_tables import SampleRow, StepChunk
from farm.store.series.series import (
    epochs_by_rank,
    epochs_of,
    samples_by_rank,
    steps_by_rank,
    steps_of,
)
from tests.factories import NOW, add_attempt, add_job
from tests.stored.stored_series import insert_epoch, insert_samples, insert_steps, samples_of


@pytest.fixture
def token(engine: sa.Engine) -> int:
    with writing(engine) as session:
        add_attempt(session, add_job(session))  # so that a token is not its job's id by chance
        return add_attempt(session, add_job(session))


def _insert(session: Session, token: int, samples: Iterable[Sample], *, rank: int = 0) -> None:
    insert_samples(session, day=NOW.date(), token=token, rank=rank, samples=tuple(samples))


def test_a_sample_comes_back_as_it_was(engine: sa.Engine, token: int) -> None:
    full = Sample(
        tick=0,
        machine_cpu_ratio=0.5,
        machine_steal_ratio=0.0,
        cpu_ratio=0.25,
        memory_used_bytes=2**40,
        resident_bytes=2**33,
        net_rx_bytes_per_s=1.5e9,
        net_tx_bytes_per_s=0.0,
        disk_read_bytes_per_s=1.0,
        disk_write_bytes_per_s=2.0,
        disk_read_operations_per_s=3.0,
        disk_write_operations_per_s=4.0,
        extra={"gpu0_ratio": 0.75},
    )
    unmeasured = Sample(tick=1)
    with writing(engine) as session:
        _insert(session, token, [full, unmeasured])
    with reading(engine) as session:
        assert samples_of(session, token, rank=0) == [full, unmeasured]


def test_the_same_samples_twice_change_nothing(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(session, token, [Sample(tick=0, cpu_ratio=0.1), Sample(tick=1, cpu_ratio=0.2)])
    with writing(engine) as session:
        _insert(session, token, [Sample(tick=1, cpu_ratio=0.9), Sample(tick=2, cpu_ratio=0.3)])
        assert [s.cpu_ratio for s in samples_of(session, token, rank=0)] == [0.1, 0.2, 0.3]


def test_no_samples_are_no_trouble(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(session, token, [])
        assert samples_by_rank(session, token) == {}


def test_series_are_told_apart_by_rank_and_attempt(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(session, token, [Sample(tick=0, cpu_ratio=0.0)])
        _insert(session, token, [Sample(tick=0, cpu_ratio=0.1)], rank=1)
        _insert(session, token - 1, [Sample(tick=0, cpu_ratio=0.2)])
        series = samples_by_rank(session, token)
        only = samples_of(session, token, rank=1)
    assert {rank: s[0].cpu_ratio for rank, s in series.items()} == {0: 0.0, 1: 0.1}
    assert [s.cpu_ratio for s in only] == [0.1]


def test_an_unknown_attempt_has_no_series(engine: sa.Engine) -> None:
    with reading(engine) as session, pytest.raises(NotFound):
        samples_by_rank(session, 99)


def test_thinning_gives_means_over_ranges_and_keeps_holes(engine: sa.Engine, token: int) -> None:
    """Ten ticks in at most four points are ranges of three: 0-2, 3-5 (lost), 6-8 and 9."""
    cpu_ratios = {0: 0.0, 1: 0.5, 2: 1.0, 6: 0.25, 7: None, 8: 0.75, 9: None}
    with writing(engine) as session:
        _insert(
            session,
            token,
            [
                Sample(tick=t, cpu_ratio=v, resident_bytes=10 + t, extra={"gpu0_ratio": t / 10})
                for t, v in cpu_ratios.items()
            ],
        )
        thinned = samples_of(session, token, rank=0, max_points=4)
        whole = samples_of(session, token, rank=0)
    assert [(s.tick, s.cpu_ratio) for s in thinned] == [(0, 0.5), (6, 0.5), (9, None)]
    assert [s.resident_bytes for s in thinned] == [11, 17, 19]
    assert [s.extra for s in thinned] == [{"gpu0_ratio": t} for t in (0.0, 0.6, 0.9)]
    assert [s.tick for s in whole] == list(cpu_ratios)


@pytest.mark.parametrize(("ticks", "points"), [(2000, 2000), (2001, 1001), (5000, 1667)])
def test_thinning_keeps_to_its_limit(
    engine: sa.Engine, token: int, ticks: int, points: int
) -> None:
    with writing(engine) as session:
        for rank in range(2):
            _insert(session, token, [Sample(tick=t) for t in range(ticks)], rank=rank)
        series = samples_by_rank(session, token)
    assert [len(series[rank]) for rank in range(2)] == [points, points]


def test_step_times_come_back_exactly(engine: sa.Engine, token: int) -> None:
    times_s = tuple(random.Random(0).uniform(0.001, 0.1) for _ in range(1000))
    chunks = [
        StepTimes(kind=StepKind.WARMUP, first_step=0, begun_s=0.5, times_s=(0.1, 0.3)),
        StepTimes(kind=StepKind.TIMED, first_step=2, begun_s=0.9, times_s=times_s),
    ]
    with writing(engine) as session:
        for steps in reversed(chunks):
            insert_steps(session, token=token, rank=0, steps=steps)
    with reading(engine) as session:
        assert steps_of(session, token, rank=0) == chunks
        assert steps_of(session, token, rank=1) == []
        assert steps_by_rank(session, token) == {0: chunks}


def test_quantiles_of_steps_stand_beside_them(engine: sa.Engine, token: int) -> None:
    times_s = tuple(float(n) for n in range(100, -1, -1))
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=times_s)
    with writing(engine) as session:
        insert_steps(session, token=token, rank=0, steps=steps)
        chunk = session.scalars(sa.select(StepChunk)).one()
    assert (chunk.step_count, chunk.median_s, chunk.p95_s) == (101, 50.0, 95.0)


def test_the_same_steps_and_epoch_twice_change_nothing(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        for time_s in (0.1, 0.9):
            steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=(time_s,))
            insert_steps(session, token=token, rank=0, steps=steps)
            insert_epoch(session, token=token, rank=0, epoch=_epoch(0, train_s=time_s))
        assert [s.times_s for s in steps_of(session, token, rank=0)] == [(0.1,)]
        assert [e.train_s for e in epochs_of(session, token, rank=0)] == [0.1]


def test_a_chunk_without_steps_is_not_kept(engine: sa.Engine, token: int) -> None:
    steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=0.0, times_s=())
    with writing(engine) as session:
        insert_steps(session, token=token, rank=0, steps=steps)
        assert steps_by_rank(session, token) == {}


def test_epochs_come_back_in_order(engine: sa.Engine, token: int) -> None:
    epochs = [_epoch(0), _epoch(1, val_accuracy_ratio=0.5)]
    with writing(engine) as session:
        for epoch in reversed(epochs):
            insert_epoch(session, token=token, rank=0, epoch=epoch)
        insert_epoch(session, token=token, rank=1, epoch=_epoch(0, train_s=9.0))
    with reading(engine) as session:
        assert epochs_of(session, token, rank=0) == epochs
        assert set(epochs_by_rank(session, token)) == {0, 1}


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_samples_are_partitioned_by_day_on_postgresql(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(session, token, [Sample(tick=0)])
        home = session.scalar(
            sa.select(sa.literal_column("tableoid::regclass::text")).select_from(SampleRow)
        )
    assert home == "samples_default"


def _epoch(epoch: int, *, train_s: float = 1.0, val_accuracy_ratio: float | None = None) -> Epoch:
    return Epoch(
        epoch=epoch,
        train_s=train_s,
        step_count=7,
        train_loss=2.3,
        val_loss=None,
        val_accuracy_ratio=val_accuracy_ratio,
    )
