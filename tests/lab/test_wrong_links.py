"""A farm whose links are not what its agents were told: what it measures there does not count.

What is wrong with a link comes from outside, from the lab; only the trainers are fakes.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from farm.cli.start.lab import lab_sites
from farm.embedded.farm import EmbeddedFarm
from farm.embedded.redis import free_port
from farm.embedded.signals import StopSignals
from farm.gang.lifecycle import AttemptState, JobState
from farm.lab.lab import Lab
from farm.settings.server import load_settings
from farm.store.engine import make_engine, reading, writing
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.result_tables import MeasurementRow
from farm.store.tables import AttemptRow, JobRow
from farm.submission import plan, submit
from tests.e2e.live_farm import FAKE_TRAINER, wait_until
from tests.lab.crooked_wire import CrookedWire

CASE = {
    "model": "small_cnn",
    "dataset": "digits",
    "strategy": "mwms_ring",
    "world_size": 2,
    "global_batch_size": 32,
    "steps": 10,
}


class LabFarm:
    """A farm with an agent on each of two hosts."""

    def __init__(self, lab: Lab, farm: EmbeddedFarm, engine: sa.Engine) -> None:
        self.lab = lab
        self._farm = farm
        self._engine = engine

    def submit(self, **network: float) -> int:
        """Submit one job over an emulated network; return its sweep."""
        sweep = {"name": "a wrong link", "case": [{**CASE, **network}]}
        with writing(self._engine) as session:
            return submit(session, plan(sweep), now=dt.datetime.now(dt.UTC)).sweep_id

    def await_void(self, sweep_id: int, *, because: str) -> None:
        """Wait for an attempt that is void for a reason like `because`, a regular expression.

        A machine that others slow down now and then measures less than a link carries, so that
        the first attempt may be void with another figure.
        """

        def is_void() -> bool:
            attempts = [a for a in self.attempts(sweep_id) if a.state is AttemptState.VOID]
            assert all(a.failure_kind == "network" for a in attempts)
            return any(re.fullmatch(because, a.reason or "") for a in attempts)

        self._wait(is_void, f"an attempt is void because {because}")

    def await_success(self, sweep_id: int) -> MeasurementRow:
        """Wait for the sweep's job to have its measurement."""

        def has_succeeded() -> bool:
            with reading(self._engine) as session:
                job = session.scalars(sa.select(JobRow).where(JobRow.sweep_id == sweep_id)).one()
                return job.state is JobState.SUCCEEDED

        self._wait(has_succeeded, "the job has succeeded")
        with reading(self._engine) as session:
            [row] = list_measurements(session, MeasurementFilter(sweep_id=sweep_id), limit=2)
        return row

    def attempts(self, sweep_id: int) -> list[AttemptRow]:
        query = sa.select(AttemptRow).join(JobRow, JobRow.id == AttemptRow.job_id)
        with reading(self._engine) as session:
            return list(
                session.scalars(query.where(JobRow.sweep_id == sweep_id).order_by(AttemptRow.id))
            )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def tended() -> bool:
            self._farm.check_processes()
            return condition()

        try:
            wait_until(tended, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._farm.log_tails()}") from None


@pytest.fixture(scope="module")
def lab_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabFarm]:
    home: Path = tmp_path_factory.mktemp("farm")
    with pytest.MonkeyPatch.context() as patch, Lab(hosts=2) as lab, StopSignals() as signals:
        for name in [name for name in os.environ if name.startswith(("FARM_", "AGENT_"))]:
            patch.delenv(name)
        patch.setenv("AGENT_TRAINER", FAKE_TRAINER)
        settings = load_settings({"FARM_HOME": str(home), "FARM_WEB_PORT": str(free_port())})
        sites = lab_sites(lab, home=settings.home)
        with EmbeddedFarm(
            settings, sites=sites, broker_host=lab.server_address, signals=signals, report=print
        ) as farm:
            engine = make_engine(farm.settings.database_url)
            yield LabFarm(lab, farm, engine)
            engine.dispose()


def test_a_wire_20_ms_longer_than_it_says_voids_the_attempt_and_once_healed_the_job_succeeds(
    lab_farm: LabFarm,
) -> None:
    host, _ = lab_farm.lab.hosts
    with CrookedWire(host, more_delay_ms=20):
        sweep_id = lab_farm.submit(one_way_delay_ms=20)
        # Some tenths of a millisecond are the hosts' own.
        way = r"the round trip from rank \d on host-\d to rank \d takes 6\d(\.\d)? ms"
        twice = "and twice the one-way delay of 20.0 ms"
        lab_farm.await_void(sweep_id, because=rf"{way}, expected 4\d(\.\d)? ms: .* {twice}.*")
    row = lab_farm.await_success(sweep_id)
    assert row.rtt_s == pytest.approx(0.04, rel=0.1)
    assert row.one_way_delay_s == 0.02
    assert row.measured_bandwidth_bytes_per_s is None


def test_a_link_narrower_than_asked_voids_the_attempt_and_once_healed_the_job_succeeds(
    lab_farm: LabFarm,
) -> None:
    _, host = lab_farm.lab.hosts
    lab_farm.lab.set_link(host, bandwidth_bytes_per_s=625_000)
    try:
        sweep_id = lab_farm.submit(bandwidth_mbit_per_s=10)
        way = r"the bandwidth from rank \d on host-1 to rank \d is [45]\.\d+ Mbit/s"
        lab_farm.await_void(sweep_id, because=rf"{way}, expected 10.0 Mbit/s")
    finally:
        lab_farm.lab.set_link(host)
    row = lab_farm.await_success(sweep_id)
    assert row.bandwidth_bytes_per_s == 1_250_000
    assert row.measured_bandwidth_bytes_per_s == pytest.approx(1_250_000, rel=0.1)
    assert row.network == "vde_link"
    assert row.rtt_s is not None
    assert row.rtt_s < 0.005
