"""What people read of a page of the web application."""

from __future__ import annotations

import html
import re

from flask.testing import FlaskClient


def page_of(client: FlaskClient, path: str) -> str:
    """Return a page that is there, as it is sent."""
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.get_data(as_text=True)


def read(page: str) -> str:
    """Return what is read of a page: without tags, spaces folded."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def part_of(page: str, part_id: str) -> str:
    """Return what is read of the section of that id."""
    return read(page.split(f' id="{part_id}"', 1)[1].split(">", 1)[1].split("</section>", 1)[0])


def figure_of(page: str, name: str) -> str:
    """Return one of the numbers at the top of a page."""
    return re.split(f"<dt>{name}</dt><dd[^>]*>", page, maxsplit=1)[1].split("<", 1)[0].strip()


def rows_of(part: str) -> list[list[str]]:
    """Return what is read of the cells of a table, row by row, those of its head included."""
    return [
        [read(cell) for cell in re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL)]
        for row in re.findall(r"<tr\b.*?</tr>", part, re.DOTALL)
    ]
