"""Gangs with parameter servers, through the real scheduler, collector and agents."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Iterator

import pytest

from farm.configuration.expansion import expand
from farm.configuration.sweep import parse_sweep
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.trainer_lines import FailureKind
from farm.registry import catalogue
from farm.store.engine import reading, writing
from farm.store.sweeps.jobs import AttemptDetail, job_detail
from farm.submission import SubmissionPlan, submit
from tests.e2e.live_farm import LiveFarm, live_farm, wait_until

STEPS = 150
STEADY = {"FAKE_TRAINER": "steps_s:0.01"}
AGENT_COUNT = min(3, len(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveFarm]:
    """Three agents, enough for two ranks that train and a server apart; or one for each core."""
    with live_farm(
        tmp_path_factory.mktemp("farm"), agent_count=AGENT_COUNT, trainer=STEADY
    ) as farm:
        yield farm


def submit_served(farm: LiveFarm, **axes: object) -> int:
    """Submit a case that one rank may train, too, so that few cores do for a server apart."""
    known = catalogue()
    strategies = {
        name: dataclasses.replace(facts, min_world_size=1)
        for name, facts in known.strategies.items()
    }
    case = {"model": "mlp", "dataset": "digits", "global_batch_size": 32, **axes}
    data: dict[str, object] = {"name": "servers", "case": [case]}
    sweep = parse_sweep(data)
    expansion = expand(sweep, dataclasses.replace(known, strategies=strategies))
    with writing(farm.engine) as session:
        planned = SubmissionPlan(data=data, sweep=sweep, expansion=expansion)
        return submit(session, planned, now=dt.datetime.now(dt.UTC)).sweep_id


def last_attempt(farm: LiveFarm, job_id: int) -> AttemptDetail:
    with reading(farm.engine) as session:
        return job_detail(session, job_id).attempts[-1]


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_server_apart_has_a_rank_and_an_agent_of_its_own(farm: LiveFarm, world_size: int) -> None:
    if world_size >= AGENT_COUNT:
        pytest.skip("every agent needs a core of its own")
    [job] = farm.wait_for_end(
        submit_served(
            farm,
            strategy="ps_async",
            world_size=world_size,
            server_placement="apart",
            steps=STEPS,
        )
    )
    assert (job.state, job.agent_count) == (JobState.SUCCEEDED, world_size + 1)
    ranks = last_attempt(farm, job.id).ranks
    assert len({rank.agent_id for rank in ranks}) == len(ranks) == world_size + 1
    server = ranks[-1]
    assert server.ended is not None
    assert server.ended["result"]["window_step_count"] == 0
    row = farm.measurement(job.id)
    assert (row.world_size, row.server_count, row.server_placement) == (world_size, 1, "apart")
    # The server's own counters are in no mean, and its row is beside them.
    assert row.sent_bytes_per_step == row.received_bytes_per_step == 8000
    [apart] = row.details["servers"]
    assert (apart["rank"], apart["resident_bytes"] > 0) == (world_size, True)
    # Ranks out of step each tell their time, and make updates of their own.
    assert row.timed_step_count == world_size * STEPS
    assert row.update_count == world_size * STEPS
    assert (row.staleness_mean, row.staleness_max) == (0.5, 1)
    assert row.details["staleness_counts"] == [world_size * STEPS // 2] * 2
    assert (row.push_s, row.pull_s) == (0.001, 0.002)


def test_collocated_servers_need_no_agents_of_their_own(farm: LiveFarm) -> None:
    sweep_id = farm.submit(strategy="ps_sync", server_count=3, steps=STEPS)
    [job] = farm.wait_for_end(sweep_id)
    assert (job.state, job.agent_count) == (JobState.SUCCEEDED, 2)
    row = farm.measurement(job.id)
    assert (row.server_count, row.server_placement) == (3, "collocated")
    assert "servers" not in row.details
    assert row.timed_step_count == STEPS  # they step together


@pytest.mark.parametrize("server_placement", ["apart", "collocated"])
def test_a_dead_server_fails_the_attempt(farm: LiveFarm, server_placement: str) -> None:
    sweep_id = submit_served(
        farm,
        strategy="ps_async",
        world_size=1,
        server_placement=server_placement,
        steps=4 * STEPS,
    )
    job = farm.wait_for_state(sweep_id, JobState.RUNNING)
    ranks = last_attempt(farm, job.id).ranks
    rank = ranks[-1] if server_placement == "apart" else ranks[0]
    role = 0 if server_placement == "apart" else 1
    processes = sorted(farm.trainers_of(rank.agent_id), key=lambda process: process.pid)
    processes[role].kill()

    def first_ended() -> bool:
        return farm.attempts(job.id)[0].ended_at is not None

    wait_until(first_ended, "the attempt whose server died is over", within_s=20)
    first = farm.attempts(job.id)[0]
    assert first.state is AttemptState.LOST
    # A rank that trains beside it may be quicker to say so than the agent.
    known = {FailureKind.KILLED.value, FailureKind.PEER_LOST.value}
    assert first.failure_kind in known
    assert first.reason is not None
    assert f"rank {rank.rank} on {rank.agent_id}" in first.reason
    # A machine has failed, so the job is tried again, and its processes are all gone before.
    farm.wait_for_end(sweep_id)
