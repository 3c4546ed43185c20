"""About how long a sweep, and the queue, will take."""

from __future__ import annotations

import pytest

from farm.placement.progress import JobPace, SweepLoad, UnfinishedJob, estimate_queue, remaining_s


def pace(world_size: int, mean_s: float, job_count: int = 1) -> JobPace:
    return JobPace(agent_count=world_size, job_count=job_count, mean_s=mean_s)


def waiting(count: int, world_size: int = 1) -> list[UnfinishedJob]:
    return [UnfinishedJob(agent_count=world_size, job_count=count)]


def load(
    paces: list[JobPace],
    *,
    active: list[UnfinishedJob] | None = None,
    waits: list[UnfinishedJob] | None = None,
    is_held: bool = False,
) -> SweepLoad:
    return SweepLoad(
        paces=tuple(paces),
        active=tuple(active or ()),
        waiting=tuple(waits or ()),
        is_held=is_held,
    )


def test_nothing_is_known_before_the_first_job_has_finished() -> None:
    assert remaining_s([], waiting(3), agent_count=2) is None


def test_nothing_is_left_once_every_job_has_finished() -> None:
    assert remaining_s([], [], agent_count=2) == 0.0


def test_narrow_jobs_share_the_agents() -> None:
    assert remaining_s([pace(1, 10.0)], waiting(6), agent_count=2) == pytest.approx(30.0)


def test_jobs_count_as_often_as_there_are_of_them() -> None:
    one_by_one = [UnfinishedJob(agent_count=1)] * 6
    assert remaining_s([pace(1, 10.0)], one_by_one, agent_count=2) == pytest.approx(30.0)


def test_wide_jobs_run_one_after_another() -> None:
    assert remaining_s([pace(2, 10.0)], waiting(3, 2), agent_count=3) == pytest.approx(30.0)


def test_each_width_takes_what_its_own_jobs_took_on_average() -> None:
    unfinished = waiting(2) + waiting(1, 2)
    paces = [pace(1, 15.0, 2), pace(2, 100.0)]
    assert remaining_s(paces, unfinished, agent_count=2) == pytest.approx(15.0 + 100.0)


def test_a_width_not_seen_yet_takes_what_all_jobs_took_so_far() -> None:
    paces = [pace(1, 10.0, 3), pace(3, 50.0)]
    assert remaining_s(paces, waiting(1, 2), agent_count=3) == pytest.approx(20.0)


def test_time_already_spent_counts() -> None:
    running = [UnfinishedJob(agent_count=1, elapsed_s=4.0)]
    assert remaining_s([pace(1, 10.0)], running, agent_count=1) == pytest.approx(6.0)


def test_a_job_that_takes_longer_than_expected_shortens_no_other() -> None:
    unfinished = [UnfinishedJob(agent_count=1, elapsed_s=40.0), *waiting(2)]
    assert remaining_s([pace(1, 10.0)], unfinished, agent_count=1) == pytest.approx(20.0)


def test_many_agents_do_not_finish_a_job_sooner_than_it_takes() -> None:
    assert remaining_s([pace(1, 10.0)], waiting(1), agent_count=100) == pytest.approx(10.0)


@pytest.mark.parametrize("agent_count", [0, 1])
def test_a_job_wider_than_the_farm_has_no_end_in_sight(agent_count: int) -> None:
    assert remaining_s([pace(2, 10.0)], waiting(1, 2), agent_count=agent_count) is None


def test_the_queue_takes_what_its_sweeps_take_together() -> None:
    loads = [load([pace(1, 10.0)], waits=waiting(4)), load([pace(1, 30.0)], waits=waiting(2))]
    assert estimate_queue(loads, [], agent_count=2).remaining_s == pytest.approx(20.0 + 30.0)


def test_jobs_that_run_beside_each_other_end_with_the_longest() -> None:
    running = [UnfinishedJob(agent_count=1, elapsed_s=10.0)]
    loads = [load([pace(1, 110.0)], active=running), load([pace(1, 60.0)], active=running)]
    assert estimate_queue(loads, [], agent_count=2).remaining_s == pytest.approx(100.0)


def test_a_sweep_without_a_result_goes_by_those_of_others() -> None:
    loads = [load([], waits=waiting(2))]
    assert estimate_queue(loads, [pace(1, 7.0)], agent_count=1).remaining_s == pytest.approx(14.0)
    unknown = estimate_queue(loads, [], agent_count=1)
    assert (unknown.remaining_s, unknown.unknown_count) == (None, 2)


def test_what_a_pause_holds_back_is_not_in_it_and_what_runs_is() -> None:
    running = [UnfinishedJob(agent_count=1)]
    paused = load([pace(1, 10.0)], active=running, waits=waiting(5), is_held=True)
    found = estimate_queue([paused], [], agent_count=1)
    assert (found.remaining_s, found.held_count) == (10.0, 5)
    assert len(paused.unfinished) == 2


def test_jobs_too_wide_for_the_farm_are_told_and_left_out() -> None:
    loads = [load([pace(1, 10.0)], waits=[*waiting(2), *waiting(3, 4)])]
    found = estimate_queue(loads, [], agent_count=2)
    assert (found.remaining_s, found.too_wide_count) == (10.0, 3)
    nobody = estimate_queue(loads, [], agent_count=0)
    assert (nobody.remaining_s, nobody.too_wide_count) == (None, 5)


def test_an_empty_queue_is_done() -> None:
    assert estimate_queue([], [], agent_count=0).remaining_s == 0.0
