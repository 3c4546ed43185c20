"""The pages in a real browser: Chromium, without a window, against the real server process.

CI installs Chromium; Playwright drives it.
"""

from __future__ import annotations

import http.server
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from farm.store.engine import make_engine
from farm.store.schema import upgrade
from tests.e2e.browser.browser import browser, check, page_of
from tests.e2e.web_process import web_process
from tests.web.web_client import SWEEP, seed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web server on a store with one sweep, and with what tests add."""
    home = tmp_path_factory.mktemp("home")
    url = f"sqlite:///{home}/farm.db"
    engine = make_engine(url)
    upgrade(engine)
    seed(engine, name="<b>seen</b> in a browser", log_tail="<script>document.title='run'</script>")
    engine.dispose()
    with web_process(url, home=home) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


def _dom(chromium: Browser, address: str, *, awaited: str) -> str:
    """Return the document once a text is in it, and fail on a violated content policy."""
    with page_of(chromium, device="desktop") as page:
        page.goto(address)
        page.get_by_text(awaited).first.wait_for(state="attached")
        return page.content()


def _post(address: str, sweep: dict[str, object]) -> None:
    request = urllib.request.Request(
        f"{address}/api/v1/sweeps",
        data=json.dumps(sweep).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def test_a_submitted_sweep_is_seen(chromium: Browser, dashboard: str) -> None:
    _post(dashboard, {**SWEEP, "name": "submitted just now"})
    dom = _dom(chromium, f"{dashboard}/", awaited="submitted just now")
    assert "0 of 2 done" in dom
    assert "&lt;b&gt;seen&lt;/b&gt; in a browser" in dom
    detail = _dom(chromium, f"{dashboard}/sweeps/1", awaited="2 machines")
    assert "200 ms" in detail


def test_a_page_follows_what_happens_without_being_loaded_again(
    chromium: Browser, dashboard: str
) -> None:
    with _proxy(dashboard, before_second=lambda: _post(dashboard, SWEEP)) as address:
        dom = _dom(chromium, f"{address}/", awaited="two cells")
    assert 'id="offline"' in dom
    assert "hidden" in dom.split('id="offline"', 1)[1].split(">", 1)[0]


@contextmanager
def _proxy(upstream: str, *, before_second: Callable[[], None]) -> Iterator[str]:
    """Pass requests on; do something before the page itself is asked for a second time."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            if self.path == "/" and seen.count("/") == 2:
                before_second()
            with urllib.request.urlopen(f"{upstream}{self.path}", timeout=60) as answer:
                body = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(timeout=60)


def test_a_page_of_a_job_runs_nothing_that_its_log_contains(
    chromium: Browser, dashboard: str
) -> None:
    dom = _dom(chromium, f"{dashboard}/jobs/1", awaited="Job 1")
    assert "<title>Job 1 · Benchfarm</title>" in dom
    assert dom.count("data-plot") >= 4


@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("path", ["/", "/sweeps/1", "/jobs/1"])
def test_a_page_is_painted_at_the_width_of_a_desk_and_of_a_phone(
    chromium: Browser, dashboard: str, path: str, device: str
) -> None:
    with page_of(chromium, device=device) as page:
        page.goto(f"{dashboard}{path}")
        check(page)
        # An empty page of that size takes a few kilobytes.
        assert len(page.screenshot()) > 15_000


def test_the_page_of_the_api_shows_its_document_under_the_strict_policy(
    chromium: Browser, dashboard: str
) -> None:
    dom = _dom(chromium, f"{dashboard}/api/v1/docs", awaited="Enqueue a sweep")
    assert "/api/v1/jobs/{job_id}/series" in dom.replace("\u200b", "").replace("<wbr>", "")
