"""A sweep until precision on a farm of real processes, with a trainer of known noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.gang.lifecycle import JobState
from farm.measuring.precision import Target
from farm.store.engine import reading
from tests.e2e.live_farm import DEADLINE_S, live_farm
from tests.stored.sweep_cells import cells_in

pytestmark = pytest.mark.alone

CALM = {"FAKE_TRAINER": "steps_s:0.002,jitter:0.001", "AGENT_LABELS": "noise=calm"}
NOISY = {"FAKE_TRAINER": "steps_s:0.002,jitter:0.3", "AGENT_LABELS": "noise=loud"}


def test_a_noisy_cell_is_repeated_up_to_the_cap_and_a_calm_one_until_it_is_precise(
    tmp_path: Path,
) -> None:
    with live_farm(tmp_path, agent_count=1, trainer=CALM) as farm:
        farm.start_agent(2, trainer=NOISY)
        farm.wait_for_idle_agents(2)
        single = {"strategy": "single", "world_size": 1, "repetitions": "auto"}
        calm = farm.submit(**single, global_batch_size=[32, 64], labels={"noise": "calm"})
        noisy = farm.submit(**single, labels={"noise": "loud"})
        for sweep_id in (calm, noisy):
            jobs = farm.wait_for_end(sweep_id, within_s=DEADLINE_S)
            assert {job.state for job in jobs} == {JobState.SUCCEEDED}, farm.story(sweep_id)
        with reading(farm.engine) as session:
            found = {s: cells_in(session, s).cells for s in (calm, noisy)}
    # Where other programs disturb a repetition, it does not count, and another is added.
    for cell in found[calm]:
        assert (cell.line.statistics.target, len(cell.line.repetitions) < 10) == (
            Target.REACHED,
            True,
        )
    [alone] = found[noisy]
    assert (alone.line.statistics.target, len(alone.line.repetitions)) == (Target.CAP, 10)
