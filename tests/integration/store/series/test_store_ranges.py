"""Series as charts need them: thinned in the database, peaks kept."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from farm.measuring.noise import INTERRUPT_EXTRA
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import reading, writing
from farm.store.result_tables import SampleRow
from farm.store.series.sample_ranges import RankRanges, ranges_by_rank, stored_span
from farm.store.series.step_ranges import step_series, steps_within
from farm.store.tables import AttemptRow
from tests.factories import NOW, add_attempt, add_job
from tests.stored.stored_series import insert_samples, insert_steps


@pytest.fixture
def token(engine: sa.Engine) -> int:
    with writing(engine) as session:
        add_attempt(session, add_job(session))  # so that a token is not its job's id by chance
        return add_attempt(session, add_job(session))


def _insert(session: Session, token: int, *samples: Sample, rank: int = 0) -> None:
    insert_samples(session, day=NOW.date(), token=token, rank=rank, samples=samples)


def _ranges(
    session: Session, token: int, *ranks: int, max_ranges: int = 1000, **bounds: int
) -> dict[int, RankRanges]:
    attempt = session.get_one(AttemptRow, token)
    return ranges_by_rank(session, attempt, ranks=ranks, max_ranges=max_ranges, **bounds)


def test_a_peak_of_one_second_survives_in_a_long_series(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        quiet = [Sample(tick=t, cpu_ratio=0.5, net_rx_bytes_per_s=1e6) for t in range(5000)]
        quiet[1234] = Sample(tick=1234, cpu_ratio=0.0, net_rx_bytes_per_s=9e6)
        _insert(session, token, *quiet)
    with reading(engine) as session:
        one = _ranges(session, token, 0, max_ranges=100)[0]
    assert len(one.first_ticks) == 100
    assert (one.width_ticks, one.first_ticks[:3], one.last_ticks[:2]) == (
        50,
        [0, 50, 100],
        [49, 99],
    )
    assert max(value or 0 for value in one.highs["net_rx_bytes_per_s"]) == 9e6
    assert min(one.lows["cpu_ratio"]) == 0.0  # type: ignore[type-var] # all were measured
    place = one.highs["net_rx_bytes_per_s"].index(9e6)
    assert one.first_ticks[place] <= 1234 <= one.last_ticks[place]


@pytest.mark.parametrize(("first", "ticks"), [(0, 2000), (0, 2001), (7, 5000), (1999, 4001)])
def test_there_are_never_more_ranges_than_asked_for(
    engine: sa.Engine, token: int, first: int, ticks: int
) -> None:
    with writing(engine) as session:
        _insert(session, token, *[Sample(tick=first + t, cpu_ratio=0.5) for t in range(ticks)])
    with reading(engine) as session:
        one = _ranges(session, token, 0, max_ranges=500)[0]
    assert 250 < len(one.first_ticks) <= 500
    assert (one.first_ticks[0], one.last_ticks[-1]) == (first, first + ticks - 1)


def test_a_short_series_is_itself_and_holes_stay_holes(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(
            session,
            token,
            Sample(tick=0, cpu_ratio=0.25, resident_bytes=5, throttled_ratio=0.5),
            Sample(tick=3, cpu_ratio=None, machine_steal_ratio=0.25),
        )
    with reading(engine) as session:
        one = _ranges(session, token, 0)[0]
    assert one.width_ticks == 1
    assert one.first_ticks == one.last_ticks == [0, 3]
    assert one.lows["cpu_ratio"] == one.highs["cpu_ratio"] == [0.25, None]
    assert one.highs["resident_bytes"] == [5, None]
    assert one.highs["throttled_ratio"] == [0.5, None]
    assert one.highs["machine_steal_ratio"] == [None, 0.25]


def test_interrupts_are_no_foreign_load_where_they_are_known(engine: sa.Engine, token: int) -> None:
    def sample(tick: int) -> Sample:
        extra = {INTERRUPT_EXTRA: 0.125}
        return Sample(tick=tick, machine_cpu_ratio=0.75, cpu_ratio=0.25, extra=extra)

    with writing(engine) as session:
        _insert(session, token, *map(sample, range(10)))
        _insert(session, token, Sample(tick=0, machine_cpu_ratio=0.25, cpu_ratio=0.5), rank=1)
    with reading(engine) as session:
        plain = _ranges(session, token, 0, 1)
        thinned = _ranges(session, token, 0, 1, max_ranges=2)
    assert plain[0].highs["foreign_load_ratio"][0] == 0.375
    assert thinned[0].highs["foreign_load_ratio"] == [0.5, 0.5]
    # The trainers' share may exceed the machine's, and that is no load below zero.
    assert plain[1].highs["foreign_load_ratio"] == [0.0]
    assert thinned[1].highs["foreign_load_ratio"] == [0.0]


def test_only_the_ranks_and_seconds_asked_for_are_read(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        for rank in range(3):
            samples = [Sample(tick=t, cpu_ratio=rank / 4) for t in range(20)]
            _insert(session, token, *samples, rank=rank)
        _insert(session, token - 1, Sample(tick=5, cpu_ratio=1.0))
    with reading(engine) as session:
        found = _ranges(session, token, 0, 2, first_tick=4, last_tick=6)
        assert _ranges(session, token, 7) == {}
        assert _ranges(session, token) == {}
        assert _ranges(session, token, 0, first_tick=100) == {}
    assert {rank: one.first_ticks for rank, one in found.items()} == {
        0: [4, 5, 6],
        2: [4, 5, 6],
    }
    assert found[2].lows["cpu_ratio"] == [0.5, 0.5, 0.5]


def test_rows_that_were_thinned_in_the_store_leave_no_holes(engine: sa.Engine, token: int) -> None:
    with writing(engine) as session:
        _insert(session, token, *[Sample(tick=t, cpu_ratio=0.5) for t in range(9, 1000, 10)])
        session.execute(sa.update(SampleRow).values(span_ticks=10))
        assert stored_span(session, session.get_one(AttemptRow, token)) == 10
        for max_ranges in (1000, 300, 20):
            one = _ranges(session, token, 0, max_ranges=max_ranges)[0]
            assert len(one.first_ticks) <= max_ranges
            pairs = zip(one.last_ticks, one.first_ticks[1:], strict=False)
            assert all(later - earlier <= one.width_ticks for earlier, later in pairs)


def _steps(first: int, *times_s: float, kind: StepKind = StepKind.TIMED) -> StepTimes:
    return StepTimes(kind=kind, first_step=first, begun_s=float(first), times_s=times_s)


def test_few_steps_are_all_read(engine: sa.Engine, token: int) -> None:
    chunks = [_steps(0, 2.0, kind=StepKind.WARMUP), _steps(1, 0.5, 0.25), _steps(3, 1.0)]
    with writing(engine) as session:
        for chunk in chunks:
            insert_steps(session, token=token, rank=0, steps=chunk)
        insert_steps(session, token=token, rank=1, steps=_steps(0, 9.0))
        series = step_series(session, token, rank=0, max_ranges=10)
        some = steps_within(session, token, series, rank=0, max_ranges=9, from_s=2.5, to_s=3.5)
        assert step_series(session, token, rank=5, max_ranges=10).chunks == []
    assert series.is_complete
    assert series.chunks == chunks
    assert some.chunks == chunks[2:]


def test_of_many_steps_an_even_choice_tells_where_the_run_stood_still(
    engine: sa.Engine, token: int
) -> None:
    with writing(engine) as session:
        warmup = _steps(0, *[5.0] * 4, kind=StepKind.WARMUP)
        insert_steps(session, token=token, rank=0, steps=warmup)
        for first in range(4, 10_004, 4):
            # Steps of half a second; between two of them nothing happened for five minutes.
            begun_s = 20 + first / 2 + (300 if first > 4004 else 0)
            chunk = StepTimes(
                kind=StepKind.TIMED, first_step=first, begun_s=begun_s, times_s=(0.5,) * 4
            )
            insert_steps(session, token=token, rank=0, steps=chunk)
        series = step_series(session, token, rank=0, max_ranges=50)
        some = steps_within(session, token, series, rank=0, max_ranges=50, from_s=100.0, to_s=110.0)
    assert not series.is_complete
    warm, *timed = series.ranges
    assert (warm.kind, warm.first_step, warm.step_count) == (StepKind.WARMUP, 0, 4)
    assert {one.kind for one in timed} == {StepKind.TIMED}
    assert 40 < len(timed) <= 51
    # Each goes as far as the next, so none is counted twice and none left out.
    ends = [one.first_step + one.step_count for one in series.ranges]
    assert ends[:-1] == [one.first_step for one in timed]
    [slow] = [one for one in timed if one.long_s > 1.0]
    assert slow.first_step <= 4004 < slow.first_step + slow.step_count
    assert slow.typical_s == 0.5
    assert 20 <= len(series.chunks) <= len(series.ranges)
    assert all(len(chunk.times_s) == 4 for chunk in series.chunks)
    assert some.is_complete
    begins_s = [chunk.begun_s for chunk in some.chunks]
    assert begins_s == [begins_s[0] + 2 * n for n in range(len(begins_s))]
    assert 0 <= begins_s[0] <= 100 < 110 <= begins_s[-1] < 320
