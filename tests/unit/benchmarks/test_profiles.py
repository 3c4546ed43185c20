"""The tables of profiles: whose time it is, and no folder of the machine in a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.profiles import main, owner, place, profile_table

ROOT = Path(__file__).parents[3]
OURS = (f"{ROOT}/farm/broker/celery_app.py", 12, "send")
THEIRS = ("/home/x/.venv/lib/python3.12/site-packages/kombu/abstract.py", 3, "__init__")
PYTHONS = ("/usr/lib/python3.12/json/encoder.py", 7, "iterencode")
WAIT = ("/home/x/.venv/lib/python3.12/site-packages/psycopg/connection.py", 9, "wait")
POLL = ("~", 0, "<method 'poll' of 'select.epoll' objects>")


def test_time_belongs_to_a_package_to_us_to_python_or_to_a_wait() -> None:
    owners = [owner(function) for function in (OURS, THEIRS, PYTHONS, WAIT, POLL)]
    assert owners == ["Benchfarm", "kombu", "Python", "waiting", "waiting"]


def test_a_place_is_the_same_on_every_machine() -> None:
    assert [place(function) for function in (OURS, THEIRS, PYTHONS, POLL)] == [
        "farm/broker/celery_app.py: send",
        "kombu/abstract.py: __init__",
        "json/encoder.py: iterencode",
        "<method 'poll' of 'select.epoll' objects>",
    ]


def test_the_most_comes_first_and_shares_are_of_all_of_it() -> None:
    entry: tuple[int, int, float, float, object] = (20, 20, 1.0, 9.0, {})
    table = profile_table("a path", {OURS: entry, WAIT: (40, 40, 3.0, 3.0, {})})
    assert table.splitlines() == [
        "`a path`: waiting 75%, Benchfarm 25%.",
        "",
        "| own time | calls a turn | function |",
        "|---|---|---|",
        "| 75.0% | 2 | `psycopg/connection.py: wait` |",
        "| 25.0% | 1 | `farm/broker/celery_app.py: send` |",
    ]


def test_an_unknown_path_is_refused_before_anything_is_profiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["profiles", "jobs"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "expected some of" in capsys.readouterr().err
