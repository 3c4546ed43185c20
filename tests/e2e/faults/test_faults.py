"""Whatever dies during a sweep: every job ends in exactly one outcome, and nothing is left.

At the end random faults strike farms (`tests.chaos`): 200 in `make chaos-brief`, and before the
1,000 of `make chaos`. How long recoveries take is shown here and judged there: it follows from the
machine, too. FARM_CHAOS_FAULTS, FARM_CHAOS_FARMS and FARM_CHAOS_SEED ask for other numbers here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.trainer_lines import FailureKind
from farm.store.engine import writing
from farm.store.sweeps.jobs import request_cancel_sweep
from tests.chaos.__main__ import at_hand, run, run_beside
from tests.chaos.farm import LEASE_S
from tests.chaos.faults import FAULTS
from tests.chaos.outcome import Outcome
from tests.chaos.table import slow_lines, table
from tests.e2e.live_farm import LiveFarm, live_farm, wait_until

# Long enough that a fault meets the attempt while it runs.
STEADY = {"FAKE_TRAINER": "steps_s:0.01"}
LONG = {"steps": 400}

FAULT_COUNT = int(os.environ.get("FARM_CHAOS_FAULTS", "200"))
FARM_COUNT = int(os.environ.get("FARM_CHAOS_FARMS", "2"))
SEED = int(os.environ.get("FARM_CHAOS_SEED", "2026"))
# What strikes real trainers in another way than fakes, and what they outlive.
TRAINING = (
    "agent killed",
    "trainer killed",
    "template killed",
    "scheduler killed",
    "collector killed",
    "Redis restarted",
)
# Each with the fault that brings it to light, and what the checker may say then. What a spool has
# forgotten is lost, or never stored.
PLANTED = {
    "dropped_fencing_check": ("agent stopped, for long", ["was over when the end of its rank"]),
    "spool_forgets_on_publish": (
        "messages lost",
        ["lost: Spooled(", "reports that are not stored"],
    ),
    "lease_never_freed": ("trainer killed", ["which is over"]),
    "slow_clients_keep_threads": ("slow clients", ["/health/live does not answer"]),
}
# For so long that an agent at work has something to report: at the latest, that it gave up.
LOST_FOR_S = 0.75 * LEASE_S


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LiveFarm]:
    with live_farm(tmp_path, agent_count=2, trainer=STEADY) as running:
        yield running


def assert_measured_once(farm: LiveFarm, sweep_id: int) -> None:
    jobs = farm.wait_for_end(sweep_id)
    assert [j.state for j in jobs] == [JobState.SUCCEEDED] * len(jobs), farm.story(sweep_id)
    assert [farm.measurement_count(j.id) for j in jobs] == [1] * len(jobs)
    for job in jobs:
        states = [a.state for a in farm.attempts(job.id)]
        assert states.count(AttemptState.SUCCEEDED) == 1


def test_a_sweep_is_measured_job_by_job(farm: LiveFarm) -> None:
    sweep_id = farm.submit(global_batch_size=[32, 64], repetitions=2)
    assert_measured_once(farm, sweep_id)
    farm.wait_for_idle_agents(2)


def test_a_killed_trainer_is_a_failed_machine_and_the_job_is_tried_again(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.trainers_of("agent-1")[0].kill()
    assert_measured_once(farm, sweep_id)
    first, second = farm.attempts(farm.jobs(sweep_id)[0].id)
    assert first.state is AttemptState.LOST
    assert first.failure_kind == FailureKind.KILLED.value
    assert second.state is AttemptState.SUCCEEDED


def test_a_killed_agent_frees_its_peer_and_the_job_waits_for_a_whole_gang(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("agent-1")
    wait_until(lambda: not farm.trainers_of("agent-1"), "the dead agent's trainer is gone too")
    job = farm.wait_for_state(sweep_id, JobState.WAITING)
    assert farm.attempts(job.id)[0].state is AttemptState.LOST
    farm.wait_for_idle_agents(1)
    farm.start_agent(1)
    assert_measured_once(farm, sweep_id)


def test_a_stopped_agent_loses_its_lease_and_cannot_report_afterwards(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    job = farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("agent-1", signal.SIGSTOP)
    farm.wait_for_state(sweep_id, JobState.WAITING)
    farm.kill("agent-1", signal.SIGCONT)
    assert_measured_once(farm, sweep_id)
    assert farm.attempts(job.id)[0].state is AttemptState.LOST


def test_a_killed_scheduler_goes_on_where_it_was(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG, repetitions=2)
    farm.wait_for_state(sweep_id, JobState.LEASED)
    farm.kill("scheduler")
    farm.start_server("scheduler")
    assert_measured_once(farm, sweep_id)


def test_two_schedulers_do_not_get_into_each_others_way(farm: LiveFarm) -> None:
    farm.start_server("scheduler-2")
    sweep_id = farm.submit(strategy="single", world_size=1, repetitions=6)
    assert_measured_once(farm, sweep_id)
    assert all(len(farm.attempts(j.id)) == 1 for j in farm.jobs(sweep_id))


def test_a_killed_collector_loses_no_report(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.kill("collector")
    farm.start_server("collector")
    assert_measured_once(farm, sweep_id)


def test_a_redis_that_comes_back_empty_loses_no_job(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG, repetitions=2)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.redis.kill()
    farm.redis.start()
    assert_measured_once(farm, sweep_id)


def test_a_frozen_redis_ends_in_a_retry_and_not_in_a_hang(farm: LiveFarm) -> None:
    sweep_id = farm.submit(**LONG)
    job = farm.wait_for_state(sweep_id, JobState.RUNNING)
    farm.redis.freeze()
    wait_until(
        lambda: farm.attempts(job.id)[0].state is AttemptState.LOST,
        "the lease ran out without heartbeats",
    )
    wait_until(
        lambda: not farm.trainers_of("agent-1") and not farm.trainers_of("agent-2"),
        "agents without confirmation killed their ranks",
    )
    farm.redis.thaw()
    assert_measured_once(farm, sweep_id)


def test_cancelling_stops_the_trainers_and_frees_the_agents(farm: LiveFarm) -> None:
    sweep_id = farm.submit(steps=100_000)
    farm.wait_for_state(sweep_id, JobState.RUNNING)
    with writing(farm.engine) as session:
        request_cancel_sweep(session, sweep_id, now=dt.datetime.now(dt.UTC))
    (job,) = farm.wait_for_end(sweep_id)
    assert job.state is JobState.CANCELLED
    farm.wait_for_idle_agents(2)
    assert not farm.trainers_of("agent-1")
    assert farm.measurement_count(job.id) == 0


def test_a_failed_configuration_is_a_result_at_the_first_try(tmp_path: Path) -> None:
    trainer = {"FAKE_TRAINER": "fail:not_a_number"}
    with live_farm(tmp_path, agent_count=2, trainer=trainer) as farm:
        sweep_id = farm.submit()
        (job,) = farm.wait_for_end(sweep_id)
        assert job.state is JobState.FAILED
        assert job.failure_kind == FailureKind.NOT_A_NUMBER.value
        assert len(farm.attempts(job.id)) == 1
        assert farm.measurement_count(job.id) == 1


def test_stopping_the_farm_leaves_no_process(tmp_path: Path) -> None:
    with live_farm(tmp_path, agent_count=2, trainer=STEADY) as farm:
        sweep_id = farm.submit(steps=100_000)
        farm.wait_for_state(sweep_id, JobState.RUNNING)
    left = [
        " ".join(p.cmdline())
        for p in psutil.process_iter(["cmdline"])
        if str(tmp_path) in " ".join(p.info["cmdline"] or ())
        or any(str(tmp_path) in v for v in _environment(p).values())
    ]
    assert left == []


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def summary(outcome: Outcome) -> str:
    return "\n".join([f"seed {SEED}", *map(str, outcome.strikes), *outcome.broken])


def shown(outcome: Outcome, *, took_s: float) -> str:
    head = (
        f"seed {SEED}: {len(outcome.strikes)} faults on {FARM_COUNT} farms, {outcome.job_count}"
        f" jobs, a lease of {LEASE_S:g} s, in {took_s / 60:.1f} min;"
        f" promises broken: {len(outcome.broken)}"
    )
    return "\n".join(["", head, "", *table(outcome), *slow_lines(outcome)])


@pytest.mark.campaign
@pytest.mark.timeout(840)  # .ci/run ends it after 900 s, and then nobody hears why
def test_farms_keep_their_promises_whatever_strikes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_s = time.monotonic()
    outcome = run_beside(
        tmp_path,
        at_hand(print),
        farm_count=FARM_COUNT,
        count=FAULT_COUNT,
        seed=SEED,
        say=print,
    )
    with capsys.disabled():  # whoever reads that it has passed sees by what
        print(shown(outcome, took_s=time.monotonic() - begun_s))
    assert outcome.broken == [], summary(outcome)
    assert not outcome.lost_jobs
    assert not outcome.doubled_jobs
    at_work = sum(bool(strike.jobs) for strike in outcome.strikes)
    assert len(outcome.strikes) == FAULT_COUNT
    assert at_work >= 0.8 * FAULT_COUNT, summary(outcome)


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_farm_with_real_trainers_keeps_them_too(tmp_path: Path) -> None:
    """The lease is longer, since imports and first steps of all share the cores."""
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--trainers",
        "tensorflow",
        "--faults",
        str(len(TRAINING)),
    ]
    command += [f"--only={name}" for name in TRAINING]
    command += ["--seed", str(SEED), "--keep", str(tmp_path)]
    environment = {**os.environ, "FARM_CHAOS_LEASE_S": "30"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert f"| all | {len(TRAINING)} |" in done.stdout, done.stdout + done.stderr
    assert "broken:" not in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """A short campaign for each planted bug, on a farm that has it; all at once."""

    def strike(number: int, bug: str) -> Outcome:
        faults = [fault for fault in FAULTS if fault.name == PLANTED[bug][0]]
        if faults[0].name == "messages lost":
            faults = [dataclasses.replace(faults[0], lasts_s=(LOST_FOR_S, LOST_FOR_S))]
        return run(
            tmp_path_factory.mktemp("planted"),
            faults,
            count=4,
            seed=SEED,
            say=print,
            number=FARM_COUNT + number,
            plant=bug,
            stuck_s=15.0,
            drain_limit_s=15.0,
        )

    with ThreadPoolExecutor(len(PLANTED)) as pool:
        return dict(zip(PLANTED, pool.map(strike, range(len(PLANTED)), PLANTED), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", PLANTED)
def test_the_checker_catches_a_planted_bug(planted: dict[str, Outcome], bug: str) -> None:
    told_of = [text for text in planted[bug].broken if any(s in text for s in PLANTED[bug][1])]
    assert told_of, summary(planted[bug])
