"""Pages that are open before there are data: what arrives is shown without loading them again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from farm.configuration.spec import JobSpec
from farm.gang.lifecycle import AttemptState, JobState
from farm.messages.reports import Sample, StepTimes
from farm.messages.trainer_lines import StepKind
from farm.store.engine import make_engine, writing
from farm.store.result_tables import MeasurementRow
from farm.store.schema import upgrade
from farm.store.tables import AttemptRow, JobRow, RankRow
from tests import factories
from tests.e2e.browser.browser import NEEDS_CHROMIUM, browser, check, page_of, playwright
from tests.e2e.web_process import web_process
from tests.stored.stored_series import insert_samples, insert_steps

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = playwright.expect
pytestmark = NEEDS_CHROMIUM

SPECS = [
    factories.job_spec(world_size=n, global_batch_size=batch) for n in (1, 2) for batch in (64, 128)
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """A store with two agents, to which each test adds a sweep of its own."""
    engine = make_engine(f"sqlite:///{tmp_path_factory.mktemp('store')}/farm.db")
    upgrade(engine)
    with writing(engine) as session:
        for agent_id in ("a1", "a2"):
            factories.add_agent(session, agent_id, heartbeat_at=dt.datetime.now(dt.UTC))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def address(engine: sa.Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with web_process(str(engine.url), home=tmp_path_factory.mktemp("home")) as served:
        yield served


@pytest.fixture
def jobs(engine: sa.Engine) -> dict[int, JobSpec]:
    """The waiting jobs of a new sweep, by id."""
    with writing(engine) as session:
        return dict(zip(factories.add_sweep(session, *SPECS), SPECS, strict=True))


def test_each_chart_of_a_sweep_appears_with_its_data_and_keeps_up(
    chromium: Browser, engine: sa.Engine, address: str, jobs: dict[int, JobSpec]
) -> None:
    one, other, gang, other_gang = jobs
    with page_of(chromium, device="desktop") as page:
        _open(page, f"{address}/sweeps/{_sweep_of(engine, one)}")
        waiting = page.locator(".plot.map .canvas text", has_text="waiting")
        titles = page.locator("#charts figcaption")
        expect(waiting).to_have_count(4)
        expect(titles).to_have_count(0)
        _measure(engine, one, jobs[one], step_time_s=0.1)
        expect(titles).to_have_text(
            ["Step time against world size", "Scaling efficiency against world size"]
        )
        expect(waiting).to_have_count(3)
        _measure(engine, other, jobs[other], step_time_s=0.2)
        expect(titles).to_have_count(4)
        expect(page.locator("#charts .plot.is-drawn")).to_have_count(4)
        points = page.locator("#charts .plot").first.locator(".canvas .scatterlayer .point")
        expect(points).to_have_count(2)
        _measure(engine, gang, jobs[gang], step_time_s=0.06)
        _measure(engine, other_gang, jobs[other_gang], step_time_s=0.11)
        expect(page.locator("#progress").get_by_text("finished", exact=True)).to_be_visible()
        expect(points).to_have_count(4)
        expect(waiting).to_have_count(0)
        expect(page.locator("#series")).to_have_text(f"job {gang}")
        _is_still_here(page)
        check(page)


def test_a_finished_sweep_that_is_measured_again_is_drawn_again(
    chromium: Browser, engine: sa.Engine, address: str, jobs: dict[int, JobSpec]
) -> None:
    for job_id, spec in jobs.items():
        _measure(engine, job_id, spec, step_time_s=0.1)
    last = max(jobs)
    with page_of(chromium, device="desktop") as page:
        _open(page, f"{address}/sweeps/{_sweep_of(engine, last)}")
        fields = page.locator(".plot.map .canvas text")
        expect(fields.get_by_text("100 ms")).to_have_count(4)
        with writing(engine) as session:  # somebody else retries a job
            session.execute(sa.delete(MeasurementRow).where(MeasurementRow.job_id == last))
            factories.add_attempt(session, last, state=AttemptState.RUNNING, number=2)
        expect(fields.get_by_text("running")).to_have_count(1)
        _measure(engine, last, jobs[last], step_time_s=0.07)
        expect(fields.get_by_text("70.0 ms")).to_have_count(1)
        _is_still_here(page)


def test_the_charts_of_a_job_come_with_an_attempt_and_go_with_it(
    chromium: Browser, engine: sa.Engine, address: str, jobs: dict[int, JobSpec]
) -> None:
    job_id = max(jobs)
    with page_of(chromium, device="desktop") as page:
        _open(page, f"{address}/jobs/{job_id}")
        charts, of_steps = page.locator("#series figure"), page.locator("#steps figure")
        expect(page.locator("#attempt")).to_have_count(0)
        token = _begin(engine, job_id, number=1)
        expect(page.get_by_role("heading", name="Attempt 1")).to_be_visible()
        expect(charts).to_have_count(0)
        _report(engine, token)
        expect(page.locator("#series .plot.is-drawn")).to_have_count(4)
        expect(page.locator("#steps .plot.is-drawn")).to_have_count(2)
        check(page)
        with writing(engine) as session:  # the attempt is lost, and the job is tried again
            attempt, job = session.get_one(AttemptRow, token), session.get_one(JobRow, job_id)
            attempt.state, attempt.ended_at = AttemptState.LOST, factories.NOW
            job.state, job.attempt_id = JobState.WAITING, None
        token = _begin(engine, job_id, number=2)
        expect(page.get_by_role("heading", name="Attempt 2")).to_be_visible()
        expect(charts).to_have_count(0)
        expect(of_steps).to_have_count(0)
        expect(page.locator("#charts-note")).to_have_text("Nothing measured yet.")
        _report(engine, token)
        expect(page.locator("#series .plot.is-drawn")).to_have_count(4)
        _is_still_here(page)


def test_the_charts_of_the_farm_and_of_an_agent_appear_with_their_data(
    chromium: Browser, engine: sa.Engine, address: str, jobs: dict[int, JobSpec]
) -> None:
    now = dt.datetime.now(dt.UTC)
    with writing(engine) as session:
        factories.add_agent(session, "new", heartbeat_at=now)
        for job in session.scalars(sa.select(JobRow).where(JobRow.finished_at.is_not(None))):
            job.finished_at = now - dt.timedelta(days=9)  # those of other tests
    with (
        page_of(chromium, device="desktop") as farm,
        page_of(chromium, device="desktop") as agent,
    ):
        _open(farm, f"{address}/")
        _open(agent, f"{address}/agents/new")
        expect(farm.locator("figure")).to_have_count(0)
        expect(agent.get_by_text("No control run yet.")).to_be_visible()
        with writing(engine) as session:
            for hours, job_id in enumerate(list(jobs)[:2], start=1):
                token = factories.add_attempt(
                    session, job_id, ["new"], state=AttemptState.SUCCEEDED
                )
                session.get_one(RankRow, (token, 0)).control_s = 0.5
                session.get_one(JobRow, job_id).finished_at = now - dt.timedelta(hours=2 * hours)
        expect(agent.locator(".plot.is-drawn")).to_have_count(1)
        expect(farm.locator(".plot.is-drawn")).to_have_count(1)
        _is_still_here(farm)
        _is_still_here(agent)


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.evaluate("window.isStillHere = true")


def _is_still_here(page: Page) -> None:
    assert page.evaluate("window.isStillHere"), "the page was loaded again"


def _sweep_of(engine: sa.Engine, job_id: int) -> int:
    with writing(engine) as session:
        return session.get_one(JobRow, job_id).sweep_id


def _measure(engine: sa.Engine, job_id: int, spec: JobSpec, *, step_time_s: float) -> None:
    with writing(engine) as session:
        number = session.get_one(JobRow, job_id).attempt_count + 1
        token = factories.add_attempt(session, job_id, state=AttemptState.SUCCEEDED, number=number)
        session.get_one(JobRow, job_id).finished_at = dt.datetime.now(dt.UTC)
        factories.add_measurement(
            session,
            f"job {job_id}",
            job_id=job_id,
            attempt_id=token,
            created_at=dt.datetime.now(dt.UTC),
            strategy=spec.strategy,
            world_size=spec.world_size,
            global_batch_size=spec.global_batch_size,
            step_time_s=step_time_s,
            time_per_epoch_s=100 * step_time_s,
            throughput_examples_per_s=spec.global_batch_size / step_time_s,
            fingerprint="a kind",
        )


def _begin(engine: sa.Engine, job_id: int, *, number: int) -> int:
    with writing(engine) as session:
        return factories.add_attempt(
            session, job_id, ["a1", "a2"], state=AttemptState.RUNNING, number=number
        )


def _report(engine: sa.Engine, token: int) -> None:
    """Store some seconds and steps of both ranks."""
    with writing(engine) as session:
        day = session.get_one(AttemptRow, token).leased_at.date()
        for rank in (0, 1):
            samples = [
                Sample(
                    tick=tick,
                    cpu_ratio=0.5,
                    resident_bytes=10**8,
                    net_rx_bytes_per_s=2e6,
                    net_tx_bytes_per_s=2e6,
                )
                for tick in range(5)
            ]
            insert_samples(session, day=day, token=token, rank=rank, samples=samples)
            times_s = (0.1, 0.2, 0.3)
            steps = StepTimes(kind=StepKind.TIMED, first_step=0, begun_s=1.0, times_s=times_s)
            insert_steps(session, token=token, rank=rank, steps=steps)
