"""Thinned step times."""

from __future__ import annotations

from farm.charts.job.steps import thin_steps
from farm.messages.reports import StepTimes
from farm.messages.trainer_lines import StepKind


def _chunk(first_step: int, *times_s: float, kind: StepKind = StepKind.TIMED) -> StepTimes:
    return StepTimes(kind=kind, first_step=first_step, begun_s=float(first_step), times_s=times_s)


def test_few_steps_stay_as_they_are() -> None:
    points = thin_steps([_chunk(0, 0.1, 0.2), _chunk(2, 0.3)], max_points=10)
    assert [(p.step, p.step_count, p.step_time_s) for p in points] == [
        (0, 1, 0.1),
        (1, 1, 0.2),
        (2, 1, 0.3),
    ]
    assert [p.begun_s for p in points] == [0.0, 0.1, 2.0]


def test_many_steps_become_medians_of_equal_stretches() -> None:
    chunks = [_chunk(n, 1.0 if n % 10 else 9.0) for n in range(100)]
    points = thin_steps(chunks, max_points=20)
    assert len(points) <= 20
    assert sum(p.step_count for p in points) == 100
    assert {p.step_time_s for p in points} == {1.0}  # a median does not follow one slow step


def test_two_kinds_never_share_a_point() -> None:
    warmup = _chunk(0, *[5.0] * 7, kind=StepKind.WARMUP)
    points = thin_steps([warmup, _chunk(7, *[1.0] * 93)], max_points=10)
    assert sum(p.step_count for p in points if p.kind is StepKind.WARMUP) == 7
    assert {p.step_time_s for p in points if p.kind is StepKind.WARMUP} == {5.0}
    assert {p.step_time_s for p in points if p.kind is StepKind.TIMED} == {1.0}


def test_a_hole_between_chunks_is_not_bridged() -> None:
    points = thin_steps([_chunk(0, 1.0, 1.0), _chunk(50, 1.0, 1.0)], max_points=2)
    assert [p.step for p in points] == [0, 50]


def test_the_limit_holds_whatever_comes() -> None:
    kinds = (StepKind.TIMED, StepKind.PARTIAL)
    chunks = [_chunk(n, 0.1, kind=kinds[n % 2]) for n in range(5000)]
    for max_points in (1, 7, 2000):
        assert 1 <= len(thin_steps(chunks, max_points=max_points)) <= max_points
    assert thin_steps([], max_points=10) == []
