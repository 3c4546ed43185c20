"""One line an event, its ids at the end, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from farm.log import (
    LINES_A_MINUTE,
    LINES_AT_ONCE,
    TRACEBACKS_A_MINUTE,
    TRACEBACKS_AT_ONCE,
    LogBound,
    configure,
    set_log_ids,
)
from worker_agent.spool.journal import Journal, ServedRank
from worker_agent.spool.spool import Spool
from worker_agent.supervisor.supervisor import clean_up_after_crash


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    set_log_ids()  # an agent that another test ran in this process may have left ids
    yield
    set_log_ids()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_ids_stand_at_the_end_of_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info")
    logging.getLogger("farm.test").info("gang\nleased", extra={"job_id": 7, "token": 91})
    logging.getLogger("farm.test").debug("unseen")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO farm.test: gang leased [job_id=7 token=91]")


def test_json_carries_ids_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure("INFO", form="json")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("farm.test").exception("event failed", extra={"token": 91})
    [line] = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["message"], entry["level"], entry["token"]) == ("event failed", "ERROR", 91)
    assert "ValueError: invalid literal" in entry["traceback"]


class Loop:
    """One that logs without an end, by a clock of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        configure("INFO")
        self.now_s = 0.0
        [handler] = logging.getLogger().handlers
        handler.filters[:] = [LogBound(clock=lambda: self.now_s)]
        self._capsys = capsys

    def turns(self, count: int, *, within_s: float) -> str:
        for _ in range(count):
            self.now_s += within_s / count
            try:
                Path("/gone").stat()
            except OSError:
                logging.getLogger("farm.test").exception("work failed")
        return self._capsys.readouterr().err


def test_no_loop_logs_faster_than_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop(capsys)
    first = loop.turns(20_000, within_s=60.0)
    assert first.count("ERROR farm.test: work failed") <= LINES_AT_ONCE + LINES_A_MINUTE
    assert first.count("Traceback") <= TRACEBACKS_AT_ONCE + TRACEBACKS_A_MINUTE
    assert "work failed (FileNotFoundError: " in first
    minute = loop.turns(20_000, within_s=60.0)
    assert minute.count("ERROR farm.test: work failed") <= LINES_A_MINUTE + 1
    assert minute.count("Traceback") <= TRACEBACKS_A_MINUTE + 1
    assert "lines like it left out)" in minute
    assert len(minute) < 20_000


def test_a_bound_costs_no_other_place_and_no_change_of_state_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Loop(capsys).turns(20_000, within_s=1.0)
    for n in range(5000):
        logging.getLogger("farm.test").info("changed %d", n)
    logging.getLogger("farm.test").warning("of another place")
    output = capsys.readouterr().err
    assert output.count("INFO farm.test: changed") == 5000
    assert "WARNING farm.test: of another place\n" in output


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
    set_log_ids(agent_id="a1", rank=0)
    logger.info("served")
    logger.info("late", extra={"rank": 3})
    set_log_ids(agent_id="a1")
    logger.info("over")
    served, late, over = capsys.readouterr().err.splitlines()
    assert served.endswith("served [agent_id=a1 rank=0]")
    assert late.endswith("late [agent_id=a1 rank=3]")
    assert over.endswith("over [agent_id=a1]")


def test_who_speaks_of_another_attempt_speaks_of_no_rank_that_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("INFO")
    logger = logging.getLogger("farm.test")
    set_log_ids(agent_id="a1", job_id=3, attempt_id=7, rank=1)
    logger.info("other", extra={"attempt_id": 6})
    logger.info("own", extra={"attempt_id": 7})
    other, own = capsys.readouterr().err.splitlines()
    assert other.endswith("other [agent_id=a1 attempt_id=6]")
    assert own.endswith("own [agent_id=a1 job_id=3 attempt_id=7 rank=1]")


def test_a_rank_that_an_earlier_life_has_left_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kill_leftovers", "undo_leftovers"):
        monkeypatch.setattr(f"worker_agent.supervisor.supervisor.{name}", lambda *_: 1)
    served = ServedRank(tmp_path / "served_rank")
    served.remember(7, rank=1, job_id=3)
    settings = SimpleNamespace(state_dir=tmp_path)
    config = SimpleNamespace(settings=settings, site=None, trainer_user=None)
    spool = Spool(tmp_path / "spool", max_bytes=1_000_000)
    clean_up_after_crash(config, served, Journal(spool))  # type: ignore[arg-type] # all that it looks at
    spool.close()
    found = [vars(record) for record in caplog.records]
    assert [(r["job_id"], r["attempt_id"], r["rank"]) for r in found] == [(3, 7, 1)] * 2
