"""One line an event, its ids at the end, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from farm.log import configure


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_ids_stand_at_the_end_of_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("farm.test").info("gang\nleased", extra={"job_id": 7, "token": 91})
    logging.getLogger("farm.test").debug("unseen")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO farm.test: gang leased [job_id=7 token=91]")


def test_json_carries_ids_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure("INFO", json=True)
    try:
        int("broken")
    except ValueError:
        logging.getLogger("farm.test").exception("event failed", extra={"token": 91})
    [line] = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["message"], entry["level"], entry["token"]) == ("event failed", "ERROR", 91)
    assert "ValueError: invalid literal" in entry["traceback"]


def test_libraries_that_chatter_are_heard_only_from_warnings_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("INFO")
    logging.getLogger("celery.worker").info("connected")
    logging.getLogger("celery.worker").warning("lost")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("celery.worker: lost")
