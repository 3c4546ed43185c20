"""One line an event, its ids at the end, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from farm.log import configure, stand_for


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    stand_for()
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


def test_what_holds_for_a_while_stands_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("INFO")
    logger = logging.getLogger("farm.test")
    stand_for(agent_id="a1", rank=0)
    logger.info("served")
    logger.info("late", extra={"rank": 3})
    stand_for(agent_id="a1")
    logger.info("over")
    served, late, over = capsys.readouterr().err.splitlines()
    assert served.endswith("served [agent_id=a1 rank=0]")
    assert late.endswith("late [agent_id=a1 rank=3]")
    assert over.endswith("over [agent_id=a1]")
