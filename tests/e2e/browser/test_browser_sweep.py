"""A finished sweep and the comparison of two, in Chromium, at a desk and on a phone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import farm.cli
from farm.configuration.spec import NetworkProfile
from farm.gang.lifecycle import AttemptState
from farm.store.engine import make_engine, writing
from farm.store.schema import upgrade
from farm.store.tables import JobRow
from farm.submission import plan, read_sweep_file
from tests import factories
from tests.e2e.browser.browser import (
    NEEDS_CHROMIUM,
    WIDTHS,
    browser,
    check,
    check_in_the_dark,
    page_of,
    picture,
)
from tests.e2e.web_process import web_process
from tests.integration.web.pages.test_web_sweep_page import add_measured

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with two sweeps of the same cells, of which one has failed in the first."""
    home = tmp_path_factory.mktemp("home")
    url = f"sqlite:///{home}/farm.db"
    engine = make_engine(url)
    upgrade(engine)
    specs = [
        factories.job_spec(
            model="small_cnn",
            dataset="cifar10",
            world_size=n,
            global_batch_size=batch,
            repetition=r,
            seed=r,
            network=NetworkProfile(one_way_delay_s=delay_s) if n > 1 and delay_s else None,
        )
        for batch in (64, 128, 256, 512)
        for n in (1, 2, 4, 8)
        for delay_s in ((0.0, 0.02) if n > 1 else (0.0,))
        for r in range(3)
    ]
    too_large = factories.job_spec(model="small_cnn", dataset="cifar10", global_batch_size=1024)
    add_measured(engine, *specs, name="small CNN on the old machines")
    add_measured(engine, *specs, name="small CNN on the new machines", factor=0.8)
    with writing(engine) as session:
        [job_id] = factories.add_sweep(session, too_large)
        job = session.get_one(JobRow, job_id)
        job.sweep_id = 1
        factories.add_attempt(session, job_id, state=AttemptState.FAILED)
        job.failure_kind, job.reason = "out_of_memory", "the kernel killed rank 0"
    engine.dispose()
    with web_process(url, home=home) as served:
        yield served


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(params=list(WIDTHS))
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    with page_of(chromium, device=request.param) as opened:
        yield opened


def test_a_sweep_is_mapped_drawn_and_looked_at_another_way(page: Page, address: str) -> None:
    page.goto(f"{address}/sweeps/1")
    page.locator(".plot.is-drawn").nth(4).wait_for()
    assert page.locator(".plot.map .canvas .shape-group path").count() == 4 * 5
    assert page.locator(".plot.map .source").is_hidden()
    # 64 examples: 103 ms on one machine, in the map's own numbers.
    assert page.locator(".plot.map .canvas text", has_text="101 ms").count() >= 1
    check(page)
    picture(page, "cells", is_whole=True)
    check_in_the_dark(page)
    page.get_by_label("Map of").select_option("Scaling efficiency")
    page.get_by_label("across").select_option("Delay")
    page.get_by_role("button", name="Show").click()
    page.locator("figcaption", has_text="Scaling efficiency over delay and batch").wait_for()
    assert "metric=efficiency" in page.url
    page.get_by_role("link", name="Step time", exact=True).focus()
    page.keyboard.press("Enter")
    page.locator("th[aria-sort=ascending]").wait_for()
    assert "metric=efficiency" in page.url
    page.get_by_role("link", name="of which something failed").click()
    page.get_by_text("out of memory: the kernel killed rank 0").first.wait_for()
    check(page)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[str]:
    """A server with the demo's sweep: of the demo that BENCHFARM_DEMO names, or with made up times.

    The picture in the README is of a demo on a quiet machine:
    BENCHFARM_DEMO=FOLDER BENCHFARM_PICTURES=docs/images \\
        pytest tests/e2e/browser/test_browser_sweep.py
    """
    given = os.environ.get("BENCHFARM_DEMO")
    url = f"sqlite:///{given or tmp_path}/farm.db"
    if not given:
        engine = make_engine(url)
        upgrade(engine)
        sweep = plan(read_sweep_file(Path(farm.cli.__file__).with_name("demo.toml")))
        add_measured(engine, *sweep.expansion.jobs, name=sweep.sweep.name)
        engine.dispose()
    with web_process(url, home=tmp_path) as served:
        yield served


def test_every_cell_of_the_demo_stands_on_its_map(chromium: Browser, demo: str) -> None:
    with page_of(chromium, device="desktop") as page:
        page.goto(f"{demo}/sweeps/1")
        page.locator(".plot.is-drawn").nth(4).wait_for()
        fields = page.locator(".plot.map .canvas .textpoint")
        assert fields.count() == 4
        assert all(re.match(r"[\d.]+ .?s", text) for text in fields.all_text_contents())
        assert "not in this sweep" not in page.locator("main").inner_text()
        check(page)
        picture(page, "sweep", is_whole=True)


def test_the_map_is_there_without_scripts_and_says_its_numbers(page: Page, address: str) -> None:
    page.route("**/*.js", lambda route: route.abort())
    page.goto(f"{address}/sweeps/1")
    assert page.locator(".plot.map .canvas").is_hidden()
    page.get_by_text("The same as a table, with links").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("row", name="1 024").first.is_visible()


def test_two_sweeps_are_compared(page: Page, address: str) -> None:
    page.goto(f"{address}/sweeps/1")
    page.get_by_role("link", name="Compare with another sweep").click()
    page.get_by_label("held against it").select_option("2")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Cells in common").wait_for()
    assert page.locator("td .faster").count() == 28
    check(page)
    picture(page, "compare")
    check_in_the_dark(page)


def test_a_chart_opens_as_a_file_of_its_own(page: Page, address: str) -> None:
    page.goto(f"{address}/sweeps/1/charts/map.svg")
    paper = page.locator("#patch_1 path").first
    assert paper.evaluate("one => getComputedStyle(one).fill") == "rgb(255, 255, 255)"
