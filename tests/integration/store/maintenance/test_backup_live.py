"""A farm that is backed up at work, loses its store and goes on from the backup."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from farm.broker.celery_app import open_client
from farm.broker.health_records import read_health_records
from farm.gang.lifecycle import JobState
from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, SweepRow
from tests.e2e.live_farm import REPOSITORY, LiveFarm, wait_until
from tests.integration.conftest import new_database

# Jobs end one after the other, so that a backup falls into the midst of them.
STEADY = {"FAKE_TRAINER": "steps_s:0.01"}
JOBS = 4
# A machine that stands still costs attempts, and says nothing of backups.
PATIENT = {"FARM_MAX_ATTEMPTS": "50"}
LIMIT_S = 300.0


class MovableFarm(LiveFarm):
    """One whose store is where its test says."""

    def __init__(self, home: Path, database_url: str) -> None:
        self.url = database_url
        super().__init__(home, server=PATIENT)

    @property
    def database_url(self) -> str:
        return self.url

    def move_to(self, database_url: str) -> None:
        self.engine.dispose()
        self.url = database_url
        self.engine = make_engine(database_url)

    def command(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "farm.cli.main", *arguments],
            env=self.server_environment(),
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            timeout=LIMIT_S,
            check=True,
        )

    def measured_jobs(self) -> int:
        with reading(self.engine) as session:
            return session.scalar(select(func.count()).select_from(MeasurementRow)) or 0

    def is_broker_free(self) -> bool:
        client = open_client(self.redis.url, timeout_s=5)
        try:
            return not read_health_records(client)
        finally:
            client.close()

    def last_token(self) -> int:
        with reading(self.engine) as session:
            return session.scalar(select(func.max(AttemptRow.id))) or 0


@contextmanager
def movable_farm(home: Path, database_url: str) -> Iterator[MovableFarm]:
    farm = MovableFarm(home, database_url)
    try:
        farm.start(agent_count=2, trainer=STEADY)
        yield farm
    finally:
        farm.stop()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_farm_goes_on_from_a_backup_that_is_older_than_its_agents(
    request: pytest.FixtureRequest, database_url: str, database_kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "farm.backup"
    with (
        new_database(request, database_kind, is_migrated=False) as new_url,
        movable_farm(tmp_path, database_url) as farm,
    ):
        kept = farm.submit(repetitions=JOBS, world_size=1, strategy="single")
        wait_until(lambda: farm.measured_jobs() >= 1, "a job is measured", within_s=LIMIT_S)
        farm.command("db", "backup", str(file))
        farm.wait_for_end(kept, within_s=LIMIT_S)
        farm.wait_for_end(farm.submit(repetitions=1), within_s=LIMIT_S)
        given = farm.last_token()
        for name in ("scheduler", "collector"):
            farm.kill(name)

        farm.move_to(new_url)
        farm.command("db", "restore", str(file))
        assert 1 <= farm.measured_jobs() <= JOBS
        before = farm.last_token()
        # Until then the broker is in use by the store that was restored, as far as it can tell.
        wait_until(farm.is_broker_free, "the killed processes are forgotten", within_s=LIMIT_S)
        farm.start_server("scheduler")
        farm.start_server("collector")
        jobs = farm.wait_for_end(kept, within_s=LIMIT_S)
        fresh = farm.wait_for_end(farm.submit(repetitions=1), within_s=LIMIT_S)

        states = {job.state for job in (*jobs, *fresh)}
        assert states == {JobState.SUCCEEDED}, farm.story(kept) + farm.story(kept + 1)
        assert [farm.measurement_count(job.id) for job in (*jobs, *fresh)] == [1] * (JOBS + 1)
        with reading(farm.engine) as session:
            assert list(session.scalars(select(SweepRow.id).order_by(SweepRow.id))) == [
                kept,
                kept + 1,
            ]
            tokens = list(session.scalars(select(AttemptRow.id).where(AttemptRow.id > before)))
        assert tokens
        assert min(tokens) > given
