"""What trainers write reaches whoever asks, through every process of a farm, while they train."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, JobState
from farm.store.engine import reading
from farm.store.reports.logs import log_stretch
from farm.store.tables import AttemptRow
from farm.values.codec import from_json
from tests.commands.farm_command import FarmCommand
from tests.e2e.live_farm import LiveFarm, live_farm, wait_until
from tests.web.web_client import client_of

TALKING = {"FAKE_TRAINER": "talk,steps_s:0.1"}
STEPS = 100


def log_while_it_trains(farm: LiveFarm, token: int, rank: int) -> str:
    """The log so far; empty once the attempt is over."""
    with reading(farm.engine) as session:
        is_running = session.get_one(AttemptRow, token).state is AttemptState.RUNNING
        return log_stretch(session, token, rank=rank).text if is_running else ""


def test_logs_come_while_trainers_write_and_are_whole_although_the_collector_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_farm(tmp_path, agent_count=2, trainer=TALKING) as farm:
        sweep_id = farm.submit(steps=STEPS)
        token = farm.wait_for_state(sweep_id, JobState.RUNNING).attempt_id
        assert token is not None
        for rank in (0, 1):
            so_far = partial(log_while_it_trains, farm, token, rank)
            text = wait_until(so_far, f"a log of rank {rank}")
            assert text.startswith("the fake trainer begins\n")
        farm.kill("collector")
        farm.start_server("collector")
        [job] = farm.wait_for_end(sweep_id)
        assert job.state is JobState.SUCCEEDED, farm.story(sweep_id)

        first = from_json(JobSpec, job.spec).warmup_step_count
        steps = [first, *(first + n for n in range(10, STEPS + 1, 10))]
        whole = "".join(["the fake trainer begins\n", *(f"step {n}\n" for n in steps)])
        command = FarmCommand(farm.engine, tmp_path / "elsewhere", monkeypatch)
        client = client_of(farm.engine)
        for rank in (0, 1):
            assert command.text("logs", str(job.id), "--rank", str(rank)) == whole
            file = client.get(f"/jobs/{job.id}/log?rank={rank}")
            assert file.get_data(as_text=True) == whole
            shown = client.get(f"/api/v1/jobs/{job.id}/log?rank={rank}").json
            assert shown is not None
            assert (shown["text"], shown["is_complete"]) == (whole, True)
