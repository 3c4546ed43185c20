"""A farm's scheduler sends what was measured to its tracker, without being asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.gang.lifecycle import JobState
from tests.e2e.live_farm import live_farm, wait_until

pytest.importorskip("tensorboard", reason="needs the extra tensorboard")


def test_a_job_is_at_the_tracker_soon_after_it_was_measured(tmp_path: Path) -> None:
    events = tmp_path / "events"
    with live_farm(
        tmp_path, agent_count=2, server={"FARM_TRACKER": f"tensorboard {events}"}
    ) as farm:
        [job] = farm.wait_for_end(farm.submit())
        assert job.state is JobState.SUCCEEDED, farm.story(job.sweep_id)
        found = wait_until(lambda: list(events.glob(f"*/job-{job.id}/events.*")), "its events")
        assert len(found) == 1
