"""A real browser for tests: the Chromium of the distribution, driven by Playwright.

It complains of everything that a person would not see: errors of scripts, refused styles, controls
without a name, text too pale to read, a page wider than its window.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Locator, Page

playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra dev")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: apt-get install chromium"),
]
# For a page whose server, or whose browser, waits for a core.
_PATIENCE_MS = 240_000
playwright.expect.set_options(timeout=_PATIENCE_MS)
WIDTHS = {"desktop": 1280, "phone": 390}
_PICTURES = os.environ.get("BENCHFARM_PICTURES")  # a folder, for who renews those of docs/images
_MOST_TABS = 200

# Of Chromium's own accessibility tree, which is what a screen reader is told.
_TO_BE_NAMED = frozenset(
    (
        *("button", "link", "textbox", "searchbox", "spinbutton", "combobox", "listbox"),
        *("checkbox", "radio", "image", "img", "heading", "region", "navigation"),
    )
)
# The contrast of WCAG 2.2 level AA; the text of drawings lies over what no style tells.
_PALE = """() => {
  const read = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const linear = (part) => part <= 10.31475 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, alpha } = read(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.textContent.trim();
    if (!text || element.closest("svg, script, noscript, .unseen, .skip, :disabled")) continue;
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const style = getComputedStyle(element);
    if (!style.color.startsWith("rgb")) continue;
    const [a, b] = [light(read(style.color).rgb), light(behind(element))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < (isLarge ? 3 : 4.5)) found.add(`${contrast.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return [...found];
}"""
_TWICE = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  return [...new Set(ids.filter((id, at) => ids.indexOf(id) !== at))];
}"""
# The innermost ones, left out what is in a part that scrolls by itself.
_TOO_WIDE = """(width) => [...document.querySelectorAll("main *")]
  .filter((element) => element.getBoundingClientRect().right > width)
  .filter((element) => !element.closest(".scroll, pre"))
  .slice(-3).map((element) => element.outerHTML.slice(0, 160))
"""
_HEADLESS_TABLES = """() => [...document.querySelectorAll("table")]
  .filter((table) => !table.querySelector("th[scope]")).map((table) => table.outerHTML.slice(0, 80))
"""


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium for the length of a block."""
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def page_of(started: Browser, *, device: str) -> Iterator[Page]:
    """Open a page as wide as a device is; it must not complain of anything until the end."""
    complaints: list[str] = []
    is_phone = device == "phone"
    context = started.new_context(
        viewport={"width": WIDTHS[device], "height": 900},
        has_touch=is_phone,
        is_mobile=is_phone,
        accept_downloads=True,
        color_scheme="light",
    )
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: _note(complaints, message.type, message.text))
    yield page
    context.close()
    # A refused form answers 422, and a test keeps scripts away: the console calls both errors.
    assert [c for c in complaints if "status of 4" not in c and "ERR_FAILED" not in c] == []


def _note(complaints: list[str], kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        complaints.append(text)


def check(page: Page) -> None:
    """Fail where somebody could not read, reach or understand what the page shows."""
    page.wait_for_load_state()  # what is there before its styles is wider
    width = (page.viewport_size or {"width": 0})["width"]
    # Not innerWidth: a phone makes that as wide as what does not fit.
    whole = page.evaluate("document.documentElement.scrollWidth")
    found = {
        "wider than its window": [whole, *page.evaluate(_TOO_WIDE, width)] if whole > width else [],
        "not titled": [] if page.title().endswith("Benchfarm") else [page.title()],
        "headings of the page": [] if page.locator("h1").count() == 1 else ["not one"],
        "without a name": unnamed(page),
        "ids that are there twice": page.evaluate(_TWICE),
        "tables without headers": page.evaluate(_HEADLESS_TABLES),
        "too pale to read": page.evaluate(_PALE),
    }
    wrong = {what: where for what, where in found.items() if where}
    assert not wrong, f"{page.url}: {wrong}"


def check_in_the_dark(page: Page) -> None:
    """Check it as somebody sees it whose system is dark, and return to the light."""
    page.emulate_media(color_scheme="dark")
    check(page)
    page.emulate_media(color_scheme="light")


def unnamed(page: Page) -> list[str]:
    """Return what a screen reader meets on the page and cannot name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    found = [
        f"{role}: {_html(session, node)}"
        for node in nodes
        if not node["ignored"]
        and (role := node["role"]["value"]) in _TO_BE_NAMED
        and not node.get("name", {}).get("value", "").strip()
    ]
    session.detach()
    return found


def _html(session: CDPSession, node: dict[str, Any]) -> str:
    """Return the element that a node of the tree is of, for the message of a failed test."""
    found = session.send("DOM.getOuterHTML", {"backendNodeId": node["backendDOMNodeId"]})
    return str(found["outerHTML"])[:300]


def picture(page: Page, name: str, *, is_whole: bool = False) -> None:
    """Take one for the documentation, if that was asked for."""
    if _PICTURES is not None:
        width = (page.viewport_size or {"width": 0})["width"]
        suffix = "-phone" if width == WIDTHS["phone"] else ""
        page.screenshot(path=Path(_PICTURES) / f"{name}{suffix}.png", full_page=is_whole)


class Hand(Protocol):
    """How somebody uses a page."""

    def press(self, target: Locator) -> None:
        """Follow a link, press a button, tick a box, open what is folded."""

    def write(self, target: Locator, text: str) -> None:
        """Put a text in the place of what a field holds."""

    def choose_file(self, target: Locator, path: Path) -> None:
        """Choose a file in its field."""


class Mouse:
    def press(self, target: Locator) -> None:
        target.click()

    def write(self, target: Locator, text: str) -> None:
        target.fill(text)

    def choose_file(self, target: Locator, path: Path) -> None:
        target.set_input_files(path)


class Finger(Mouse):
    def press(self, target: Locator) -> None:
        target.tap()


class Keys:
    """The keyboard alone. Whatever is reached must show that it is."""

    def __init__(self, page: Page) -> None:
        self._page = page
        # Choosers are caught from the first listener on, which nobody waits for: the key that
        # opens one may come before that, and then none is told of.
        page.on("filechooser", lambda _: None)

    def press(self, target: Locator) -> None:
        self._reach(target)
        is_box = target.get_attribute("type") in ("checkbox", "radio")
        self._page.keyboard.press("Space" if is_box else "Enter")

    def write(self, target: Locator, text: str) -> None:
        self._reach(target)
        self._page.keyboard.press("Control+A")
        self._page.keyboard.type(text)

    def choose_file(self, target: Locator, path: Path) -> None:
        self._reach(target)
        with self._page.expect_file_chooser() as chooser:
            self._page.keyboard.press("Enter")
        chooser.value.set_files(path)

    def _reach(self, target: Locator) -> None:
        target.wait_for()
        for _ in range(_MOST_TABS):
            if target.evaluate("element => element === document.activeElement"):
                outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
                assert outline != "none", "nothing shows that this has the focus"
                return
            self._page.keyboard.press("Tab")
        raise AssertionError(f"not reached by the Tab key: {target}")
