"""Tables and JSON on standard output, and quantities as people read them."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from pathlib import Path

import pytest

from farm.cli import cells
from farm.cli.output import Column, command_hint, plain_table, print_json, print_table

_COLUMNS = (Column("name"), Column("count", is_right=True))


def test_plain_columns_are_aligned_and_nothing_is_cut() -> None:
    long = "n" * 200
    assert plain_table(_COLUMNS, [["a", "1"], [long, "1000"]]) == [
        f"{'name':200}  count",
        f"{'a':200}      1",
        f"{long}   1000",
    ]


def test_a_table_for_a_pipe_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(_COLUMNS, [["[bold]a[/bold]", "1"]], title="Jobs")
    assert capsys.readouterr().out == "Jobs\nname            count\n[bold]a[/bold]      1\n"


def _printed(columns: list[Column], row: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines of a table on a terminal of 80 columns without colours."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    print_table(columns, [row])
    return terminal.getvalue().splitlines()


@pytest.mark.parametrize("long", ["a reason of many words " * 20, "x" * 300])
def test_on_a_terminal_only_the_widest_column_is_broken_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    columns = [*(Column(f"column{i}") for i in range(4)), Column("reason")]
    row = ["succeeded", "small_cnn", "mwms_ring", "2026", long]
    lines = _printed(columns, row, monkeypatch)
    shown = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert all(word in shown for word in ["column3", *row[:4]])
    assert (shown.count("x"), shown.count("many")) == (long.count("x"), long.count("many"))


def test_a_table_that_is_wider_than_the_terminal_is_written_as_for_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = [Column(f"column{i}") for i in range(10)]
    row = [f"succeeded{i}" for i in range(10)]
    assert _printed(columns, row, monkeypatch) == plain_table(columns, [row])


def test_json_is_one_document_with_instants_in_iso_form(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "none": None})
    assert json.loads(capsys.readouterr().out) == {"at": "2026-01-02T03:04:05+00:00", "none": None}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0.9999, "1.00 s"),
        (0.99994e-3, "1.00 ms"),
        (0.0, "0 s"),
        (0.000_000_5, "0.50 us"),
        (0.000_812, "812 us"),
        (0.0123, "12.3 ms"),
        (0.999, "999 ms"),
        (4.561, "4.56 s"),
        (59.9, "59.9 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_have_three_digits(seconds: float | None, shown: str) -> None:
    assert cells.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (999.9, "1.00 kB"),
        (1_234_567, "1.23 MB"),
        (5e15, "5 000 TB"),
    ],
)
def test_bytes_are_in_powers_of_a_thousand(count: float | None, shown: str) -> None:
    assert cells.size(count) == shown


def test_missing_is_a_dash_and_zero_is_a_measurement() -> None:
    assert cells.percent(None) == cells.number(None) == cells.text(None) == "-"
    assert cells.percent(0.0) == "0 %"
    assert cells.number(0.0) == "0"
    assert cells.precise(0.01, None) == "10.0 ms"
    assert cells.between(0.01, None, None, "") == "10.0 ms"


def test_a_range_is_in_the_unit_of_its_median() -> None:
    assert cells.between(0.00781, 0.0069, 0.00806, "1 run: ") == "7.81 ms (1 run: 6.90 to 8.06)"
    assert cells.between(1.5, 0.9996, 1.5004, "") == "1.50 s (1.00 to 1.50)"


def test_an_interval_is_in_percent_of_its_median() -> None:
    assert cells.precise(0.00781, 0.0123) == "7.81 ms ± 1.2 %"


def test_an_estimate_pretends_no_precision() -> None:
    assert [cells.estimate(s) for s in (0.2, 29.6, 61.4)] == ["1 s", "30 s", "1 min 1 s"]


def test_where_the_command_is_is_said_if_the_shell_does_not_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "farm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    hint = command_hint()
    assert hint is not None
    assert f"source {program.parent}/activate" in hint
    assert str(program) in hint
    monkeypatch.setenv("PATH", str(program.parent))
    assert command_hint() is None
