from dataclasses import dataclass

import pytest

from farm.core.progress import UnfinishedJob, remaining_s


@dataclass(frozen=True)
class Finished:
    world_size: int
    duration_s: float


def waiting(count: int, world_size: int = 1) -> list[UnfinishedJob]:
    return [UnfinishedJob(world_size=world_size)] * count


def test_nothing_is_known_before_the_first_job_has_finished() -> None:
    assert remaining_s([], waiting(3), agent_count=2) is None


def test_nothing_is_left_once_every_job_has_finished() -> None:
    assert remaining_s([], [], agent_count=2) == 0.0


def test_narrow_jobs_share_the_agents() -> None:
    assert remaining_s([Finished(1, 10.0)], waiting(6), agent_count=2) == pytest.approx(30.0)


def test_wide_jobs_run_one_after_another() -> None:
    assert remaining_s([Finished(2, 10.0)], waiting(3, 2), agent_count=3) == pytest.approx(30.0)


def test_each_width_takes_what_its_own_jobs_took_on_average() -> None:
    finished = [Finished(1, 10.0), Finished(1, 20.0), Finished(2, 100.0)]
    unfinished = waiting(2) + waiting(1, 2)
    assert remaining_s(finished, unfinished, agent_count=2) == pytest.approx(15.0 + 100.0)


def test_a_width_not_seen_yet_takes_what_jobs_took_so_far() -> None:
    finished = [Finished(1, 10.0), Finished(1, 30.0)]
    assert remaining_s(finished, waiting(1, 2), agent_count=2) == pytest.approx(20.0)


def test_time_already_spent_counts() -> None:
    running = [UnfinishedJob(world_size=1, elapsed_s=4.0)]
    assert remaining_s([Finished(1, 10.0)], running, agent_count=1) == pytest.approx(6.0)


def test_a_job_that_takes_longer_than_expected_shortens_no_other() -> None:
    unfinished = [UnfinishedJob(world_size=1, elapsed_s=40.0), *waiting(2)]
    assert remaining_s([Finished(1, 10.0)], unfinished, agent_count=1) == pytest.approx(20.0)


def test_many_agents_do_not_finish_a_job_sooner_than_it_takes() -> None:
    assert remaining_s([Finished(1, 10.0)], waiting(1), agent_count=100) == pytest.approx(10.0)


@pytest.mark.parametrize("agent_count", [0, 1])
def test_a_job_wider_than_the_farm_has_no_end_in_sight(agent_count: int) -> None:
    assert remaining_s([Finished(2, 10.0)], waiting(1, 2), agent_count=agent_count) is None
