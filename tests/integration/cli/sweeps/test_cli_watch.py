"""Following a sweep: what is shown, and when the waiting ends."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.sweeps.watch import PlainDisplay, Snapshot, SweepWatch, follow, summary_line
from farm.errors import FarmError
from farm.gang.lifecycle import AttemptState, JobState
from farm.settings.server import load_settings
from farm.store.engine import writing
from farm.store.sweeps.jobs import request_cancel_sweep
from farm.store.tables import AttemptRow, JobRow, SweepRow
from tests.factories import NOW, add_agent, add_attempt, add_sweep, job_spec, seconds


@pytest.fixture
def watch(engine: sa.Engine, tmp_path: Path) -> SweepWatch:
    """A sweep of three jobs of one rank that nobody has looked at."""
    with writing(engine) as session:
        jobs = add_sweep(session, *(job_spec(repetition=i) for i in range(3)))
        sweep_id = session.get_one(JobRow, jobs[0]).sweep_id
    settings = load_settings({"FARM_HOME": str(tmp_path)})
    return SweepWatch(engine, sweep_id, settings=settings)


def _pause(wanted_s: float) -> None:
    assert wanted_s > 0


def test_a_sweep_that_does_not_move_ends_the_waiting_with_the_reason(watch: SweepWatch) -> None:
    with pytest.raises(FarmError, match=r"no job changed for 0 s \(no agent is alive\)"):
        follow(watch, PlainDisplay(), pause=_pause, stalled_after_s=0.0)


def test_a_job_that_runs_is_waited_for_however_long_it_takes(
    watch: SweepWatch, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        add_attempt(session, 1, ["a1"], state=AttemptState.RUNNING)
    running: list[int] = []

    class Display:
        def show(self, snapshot: Snapshot) -> None:
            running.append(snapshot.active_count)
            if len(running) == 4:
                with writing(engine) as session:
                    job = session.get_one(JobRow, 1)
                    job.state, job.attempt_id = JobState.SUCCEEDED, None

    with pytest.raises(FarmError, match="no job changed"):
        follow(watch, Display(), pause=_pause, stalled_after_s=0.0)
    assert running[:4] == [1, 1, 1, 1]
    assert running[4:]
    assert not any(running[4:])


def test_a_budget_that_is_used_up_ends_the_waiting_once_nothing_runs(
    watch: SweepWatch, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        add_attempt(session, 1, ["a1"], state=AttemptState.RUNNING)
        sweep = session.get_one(SweepRow, watch.sweep_id)
        sweep.budget_machine_s, sweep.budget_used_up_at = 3600.0, NOW
    seen: list[str] = []

    class Display:
        def show(self, snapshot: Snapshot) -> None:
            seen.append(summary_line(snapshot))
            if len(seen) == 2:
                with writing(engine) as session:
                    job = session.get_one(JobRow, 1)
                    job.state, job.attempt_id = JobState.SUCCEEDED, None

    with pytest.raises(FarmError, match="budget of 1 machine hour is used up, and 2 jobs wait: `"):
        follow(watch, Display(), pause=_pause)
    running = "0 of 3 jobs done, 1 running, over budget"
    assert seen == [running, running, "1 of 3 jobs done, over budget"]


def test_jobs_that_nobody_can_serve_end_the_waiting_once_nothing_else_is_left(
    watch: SweepWatch, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        for job_id in (2, 3):
            session.get_one(JobRow, job_id).agent_count = 2

    def first_job_ends() -> None:
        with writing(engine) as session:
            session.get_one(JobRow, 1).state = JobState.SUCCEEDED

    seen: list[int] = []

    class Display:
        def show(self, snapshot: Snapshot) -> None:
            seen.append(snapshot.summary.final_count)
            if len(seen) == 3:
                first_job_ends()

    expected = r"2 jobs wait for agents that are not there \(needs 2 agents; the farm has 1\)"
    with pytest.raises(FarmError, match=expected):
        follow(watch, Display(), pause=_pause, unschedulable_after_s=0.0)
    assert seen[:3] == [0, 0, 0]
    assert seen[-1] == 1


def test_following_ends_with_the_last_job(watch: SweepWatch, engine: sa.Engine) -> None:
    def cancel() -> None:
        with writing(engine) as session:
            request_cancel_sweep(session, 1, now=dt.datetime.now(dt.UTC))

    summary = follow(watch, PlainDisplay(), pause=_pause, check_processes=cancel)
    assert summary.counts[JobState.CANCELLED] == 3


def test_the_time_left_follows_from_the_jobs_that_are_done(
    watch: SweepWatch, engine: sa.Engine
) -> None:
    with writing(engine) as session:
        add_agent(session, "a1", heartbeat_at=dt.datetime.now(dt.UTC))
        token = add_attempt(session, 1, ["a1"], state=AttemptState.SUCCEEDED)
        session.get_one(AttemptRow, token).ended_at = NOW + seconds(20)
        add_attempt(session, 2, ["a1"], state=AttemptState.RUNNING)
    line = summary_line(watch.look())
    assert line == "1 of 3 jobs done, 1 running, about 40 s left"


def test_plain_lines_come_only_with_news(
    watch: SweepWatch, capsys: pytest.CaptureFixture[str]
) -> None:
    display = PlainDisplay(line_every_s=0)
    display.show(watch.look())
    display.show(watch.look())
    shown = capsys.readouterr()
    assert shown.err == "0 of 3 jobs done, no agent is alive\n"
    assert shown.out == ""
