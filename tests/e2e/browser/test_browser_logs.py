"""A log on a job's page, in Chromium: its end is in sight while lines come, unless it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from farm.gang.lifecycle import AttemptState
from farm.messages.reports import LogPart
from farm.store.engine import make_engine, writing
from farm.store.reports.logs import insert_log_parts
from farm.store.schema import upgrade
from tests import factories
from tests.e2e.browser.browser import NEEDS_CHROMIUM, WIDTHS, browser, check, page_of, playwright
from tests.e2e.web_process import web_process

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = playwright.expect
pytestmark = NEEDS_CHROMIUM


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Writes lines into the log of rank 0 of job 1, which runs."""
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    upgrade(engine)
    with writing(engine) as session:
        agent = factories.add_agent(session)
        job_id = factories.add_job(session)
        token = factories.add_attempt(session, job_id, [agent], state=AttemptState.RUNNING)
    text = ""

    def write_lines(*lines: str) -> None:
        nonlocal text
        part = LogPart(first_character=len(text), text="".join(f"{line}\n" for line in lines))
        with writing(engine) as session:
            insert_log_parts(session, token=token, rank=0, parts=[part])
        text += part.text

    yield write_lines
    engine.dispose()


@pytest.mark.parametrize("device", list(WIDTHS))
def test_the_end_of_a_log_is_in_sight_until_somebody_reads_in_it(
    write: Callable[..., None], tmp_path: Path, device: str
) -> None:
    for begin in (0, 100, 200):
        write(*(f"line {n} {'and more ' * 20}" for n in range(begin, begin + 100)))
    with (
        web_process(f"sqlite:///{tmp_path}/farm.db", home=tmp_path) as address,
        browser() as chromium,
        page_of(chromium, device=device) as page,
    ):
        page.goto(f"{address}/jobs/1")
        log = page.get_by_role("region", name="Log of rank 0")
        expect(log).to_contain_text("line 299")
        write("the newest line")
        expect(log).to_contain_text("the newest line")
        assert is_at_its_end(page)
        check(page)

        log.focus()
        page.keyboard.press("PageUp")
        page.wait_for_function("() => document.querySelector('.log').scrollTop < 0")
        write("unseen")
        for _ in range(2):  # what the first one brought has been looked at when the second comes
            with page.expect_response("**/jobs/1"):
                pass
        assert "unseen" not in log.inner_text()
        assert not is_at_its_end(page)
        log.blur()
        expect(log).to_contain_text("unseen")


def is_at_its_end(page: Page) -> bool:
    """Scrolled to the newest line, which is where a column that runs upwards begins."""
    return bool(page.evaluate("document.querySelector('.log').scrollTop === 0"))
