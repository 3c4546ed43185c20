"""Ask for advice and import a table, as people do: in Chromium, at a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from farm.store.engine import make_engine, writing
from farm.store.schema import upgrade
from tests import factories
from tests.e2e.browser.browser import (
    NEEDS_CHROMIUM,
    WIDTHS,
    browser,
    check,
    check_in_the_dark,
    page_of,
    picture,
    playwright,
)
from tests.e2e.web_process import web_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = playwright.expect
pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose store knows one workload on one to eight machines."""
    home = tmp_path_factory.mktemp("home")
    url = f"sqlite:///{home}/farm.db"
    engine = make_engine(url)
    upgrade(engine)
    with writing(engine) as session:
        for batch in (64, 128, 256, 512):
            for world_size in (1, 2, 4, 8):
                step_time_s = 0.004 * batch / world_size + 0.05 * (world_size > 1)
                for repetition, factor in enumerate((1.0, 1.02, 0.99)):
                    factories.add_measurement(
                        session,
                        f"{batch} {world_size} {repetition}",
                        model="small_cnn",
                        dataset="cifar10",
                        strategy="single" if world_size == 1 else "mwms_ring",
                        world_size=world_size,
                        global_batch_size=batch,
                        repetition=repetition,
                        instance_type="Standard_D2s_v3",
                        step_time_s=step_time_s * factor,
                        steps_per_epoch=50_000 // batch,
                        time_per_epoch_s=step_time_s * factor * (50_000 // batch),
                    )
        factories.add_measurement(
            session,
            "too large",
            model="small_cnn",
            dataset="cifar10",
            global_batch_size=2048,
            instance_type="Standard_D2s_v3",
            status="out_of_memory",
            step_time_s=None,
        )
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


def test_advice_is_asked_for_and_drawn(page: Page, address: str) -> None:
    page.goto(f"{address}/advice")
    check(page)
    page.get_by_label("Global batch size").fill("512")
    page.get_by_label("Weight of cost, beta").fill("10")
    page.get_by_label("Epochs").fill("5")
    page.get_by_text("Narrow down what is considered").click()
    page.get_by_label("World sizes").fill("2, 4, 8, 16")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Recommended for batch 512").wait_for()
    assert "global_batch_size=512" in page.url
    assert "jitter_ms" not in page.url
    page.locator(".plot.is-drawn").nth(2).wait_for()
    assert page.locator(".plot .canvas .main-svg").count() >= 3
    assert page.locator(".plot .source").first.is_hidden()
    check(page)
    page.get_by_text("Predictions are being computed").wait_for(state="detached")
    picture(page, "advice", is_whole=True)
    check_in_the_dark(page)
    page.get_by_text("Prices of machines").click()
    page.get_by_label("Standard_D2s_v3, USD an hour").fill("9.6")
    check(page)
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("at 9.6 USD an hour for each machine").wait_for()
    page.get_by_role("link", name="What to measure next").click()
    page.get_by_role("heading", name="As a sweep").wait_for()
    assert "[[case]]" in page.get_by_role("textbox").input_value()
    check(page)


def test_a_chart_follows_the_colours_of_the_system(page: Page, address: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/advice?global_batch_size=256")
    page.locator(".plot.is-drawn").nth(2).wait_for()
    tick = page.locator(".plot .xtick text").first
    in_the_dark = tick.evaluate("text => getComputedStyle(text).fill")
    page.emulate_media(color_scheme="light")
    expect(tick).not_to_have_css("fill", in_the_dark)


def test_a_chart_is_saved_as_a_picture(chromium: Browser, address: str, tmp_path: Path) -> None:
    with page_of(chromium, device="desktop") as page:
        page.goto(f"{address}/advice?global_batch_size=256")
        page.locator(".plot.is-drawn").nth(2).wait_for()
        for kind, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
            page.locator(".plot").first.hover()
            with page.expect_download() as saved:
                page.locator(f".plot [data-title='Save as {kind.upper()}']").first.click()
            saved.value.save_as(tmp_path / kind)
            assert (tmp_path / kind).read_bytes().startswith(begins)


def test_the_page_is_complete_without_scripts(page: Page, address: str) -> None:
    page.route("**/*.js", lambda route: route.abort())
    page.goto(f"{address}/advice?global_batch_size=256")
    assert page.locator(".plot .source table").count() == 3
    assert page.locator(".plot .source").first.is_visible()
    check(page)


def test_a_table_with_a_bad_row_is_mended_and_imported(
    page: Page, address: str, tmp_path: Path
) -> None:
    width = (page.viewport_size or {"width": 0})["width"]
    file = tmp_path / "mine.csv"
    header = "world_size,global_batch_size,step_time_s\n"
    file.write_text(f"{header}1,64,0.5\n2,64,-3\n")
    page.goto(f"{address}/data")
    check(page)
    table = page.get_by_role("region", name="A table of your own")
    table.get_by_label("CSV file").set_input_files(file)
    table.get_by_label("Origin").fill(f"mine{width}")
    page.get_by_role("button", name="Look at it").click()
    page.get_by_text("row 3, column step_time_s").wait_for()
    page.get_by_role("link", name="choose it again").click()
    file.write_text(f"{header}1,64,0.5\n2,64,0.3\n")
    table.get_by_label("CSV file").set_input_files(file)
    table.get_by_label("Origin").fill(f"mine{width}")
    page.get_by_role("button", name="Look at it").click()
    page.get_by_role("heading", name=f"Import table mine.csv as mine{width}?").wait_for()
    check(page)
    page.get_by_role("button", name="Import").click()
    page.get_by_text("2 measurements added").wait_for()
    page.goto(f"{address}/data")
    picture(page, "data", is_whole=True)
    page.goto(f"{address}/data/origin?name=mine{width}")
    page.get_by_role("link", name="Remove").click()
    page.get_by_role("button", name="Remove 2 measurements").click()
    page.get_by_text("2 measurements removed").wait_for()
