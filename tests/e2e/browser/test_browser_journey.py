"""From a new sweep to advice, as a researcher goes: with the mouse, a finger, the keys alone.

On a whole farm of real processes, where only the trainers are fake. At every page it is checked
that it can be read, reached and understood, in the light and in the dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser.browser import (
    NEEDS_CHROMIUM,
    Finger,
    Hand,
    Keys,
    Mouse,
    browser,
    check,
    check_in_the_dark,
    page_of,
    picture,
)
from tests.e2e.live_farm import live_farm
from tests.e2e.web_process import web_process

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = NEEDS_CHROMIUM

TABLE = "world_size,global_batch_size,step_time_s\n1,64,0.5\n2,64,0.3\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A farm with two agents, and the address of its pages."""
    home = tmp_path_factory.mktemp("farm")
    with (
        live_farm(home, agent_count=2) as farm,
        web_process(farm.database_url, home=home / "web", broker_url=farm.redis.url) as served,
    ):
        yield served


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.mark.parametrize("way", ["mouse", "finger", "keys"])
def test_from_a_new_sweep_to_advice(
    chromium: Browser, address: str, tmp_path: Path, way: str
) -> None:
    with page_of(chromium, device="phone" if way == "finger" else "desktop") as page:
        hands: dict[str, Hand] = {"mouse": Mouse(), "finger": Finger(), "keys": Keys(page)}
        hand = hands[way]
        page.goto(f"{address}/")
        _look_at(page)
        _bring_a_script(page, hand, file=tmp_path / "train.py")
        _enqueue(page, hand, name=f"by {way}")
        _watch(page, hand, name=f"by {way}")
        _ask(page, hand)
        _import(page, hand, file=tmp_path / "mine.csv", origin=f"mine by {way}")
        hand.press(_navigation(page, "Farm"))
        page.get_by_role("link", name=f"by {way}").first.wait_for()
        check(page)
        picture(page, "farm")


def _preview(page: Page, hand: Hand, *fields: tuple[str, str]) -> None:
    """Fill in the form, small as it can be beside these fields, and ask for its preview."""
    usual = (("World sizes", "1, 2"), ("Global batch sizes", "64"), ("Repetitions", "1"))
    for label, text in (*fields, *usual):
        hand.write(page.get_by_label(label, exact=True), text)
    hand.press(page.get_by_role("button", name="Preview"))


def _bring_a_script(page: Page, hand: Hand, *, file: Path) -> None:
    """Send a script with a mistake in its arguments, mend it, and see what it would become."""
    file.write_text("print(1)")
    hand.press(_navigation(page, "New sweep"))
    hand.press(page.get_by_text("Or a training script of your own"))
    hand.choose_file(page.get_by_label("Its files", exact=True), file)
    _preview(
        page, hand, ("Args", "--batch {batch} --hidden {hidden}"), ("Parameters", "hidden=256,1024")
    )
    page.get_by_text("args: expected a placeholder").wait_for()
    _look_at(page)
    # The file need not be chosen again.
    args = "--batch {per_rank_batch_size} --hidden {hidden}"
    hand.write(page.get_by_label("Args", exact=True), args)
    hand.press(page.get_by_role("button", name="Preview"))
    page.get_by_role("heading", name="Enqueue ").wait_for()
    page.get_by_role("button", name="Enqueue 4 jobs").wait_for()
    _look_at(page)


def _enqueue(page: Page, hand: Hand, *, name: str) -> None:
    hand.press(_navigation(page, "New sweep"))
    page.get_by_role("heading", name="New sweep", exact=True).wait_for()
    _look_at(page)
    _preview(page, hand, ("Name", name), ("Steps", "40"))
    page.get_by_role("heading", name=f"Enqueue {name}?").wait_for()
    # Of two strategies on one machine and on two, one is for one machine alone.
    page.get_by_text("Cannot run, and is left out").wait_for()
    _look_at(page)
    picture(page, "new-sweep")
    hand.press(page.get_by_role("button", name="Enqueue"))


def _watch(page: Page, hand: Hand, *, name: str) -> None:
    """See a sweep finish without loading its page again, and read the story of its first job."""
    page.get_by_role("heading", name=name, exact=True).wait_for()
    page.get_by_text("in the queue").first.wait_for()
    page.evaluate("window.isStillHere = true")
    check(page)
    page.locator("#progress").get_by_text("finished", exact=True).wait_for()
    job = page.locator("main a[href^='/jobs/']").filter(visible=True).first
    job.wait_for()
    assert page.evaluate("window.isStillHere")
    _look_at(page)
    hand.press(job)
    page.get_by_role("heading", name="Job ").first.wait_for()
    page.get_by_text("succeeded", exact=True).first.wait_for()
    page.locator("main .plot.is-drawn").first.wait_for(state="attached")
    _look_at(page)


def _ask(page: Page, hand: Hand) -> None:
    hand.press(_navigation(page, "Advice"))
    hand.write(page.get_by_label("Global batch size", exact=True), "64")
    hand.write(page.get_by_label("Epochs", exact=True), "10")
    hand.press(page.get_by_text("Prices of machines"))
    hand.write(page.get_by_label("Type not known, USD an hour"), "0.25")
    hand.press(page.get_by_role("button", name="Ask"))
    page.get_by_role("heading", name="Recommended for batch 64").wait_for()
    page.get_by_text("at 0.25 USD an hour for each machine").wait_for()
    page.locator("figcaption", has_text="Cost against the world size").wait_for()
    page.locator(".plot.is-drawn").nth(1).wait_for()
    _look_at(page)


def _import(page: Page, hand: Hand, *, file: Path, origin: str) -> None:
    file.write_text(TABLE)
    hand.press(_navigation(page, "Data"))
    table = page.get_by_role("region", name="A table of your own")
    hand.choose_file(table.get_by_label("CSV file"), file)
    hand.write(table.get_by_label("Origin"), origin)
    hand.press(page.get_by_role("button", name="Look at it"))
    page.get_by_role("heading", name=f"Import table {file.name} as {origin}?").wait_for()
    _look_at(page)
    hand.press(page.get_by_role("button", name="Import"))
    page.get_by_text("2 measurements added").wait_for()
    _look_at(page)


def _look_at(page: Page) -> None:
    check(page)
    check_in_the_dark(page)


def _navigation(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Main").get_by_role("link", name=name, exact=True)
