"""Tables, lines and JSON on standard output."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
from pathlib import Path

import click
import pytest

from farm.cli.output import command_hint, plain_table, print_json, print_table
from farm.processes.standard_output import print_data, standard_output
from farm.text.columns import Column
from farm.text.display import byte_count, count, duration, plus_minus

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


_VALUES = (duration(0.000_812), count(1234), byte_count(5e15), duration(None), plus_minus(0.0123))
_PRINTED = ["812 us", "1 234", "5 000 TB", "-", "± 1.2 %"]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_values_in_a_table_have_no_character_that_a_pipe_may_not_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    columns = [Column(f"column{i}") for i in range(len(_VALUES))]
    if is_terminal:
        lines = _printed(columns, list(_VALUES), monkeypatch)
    else:
        print_table(columns, [_VALUES])
        lines = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", lines[-1 if not is_terminal else 3].strip()) == _PRINTED


def test_values_in_a_line_and_in_an_error_are_plain_and_names_stay_as_they_were_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "µ-Netz – Größe 5\u202fk"  # noqa: RUF001 # as a user may call a sweep
    with standard_output():
        click.echo(f"{name}: {duration(0.000_812)}, {count(1234)}")
        click.echo(f"{name} took {duration(0.000_812)} (90 %: {duration(None)})", err=True)
    printed = capsys.readouterr()
    assert printed.out == f"{name}: 812 us, 1 234\n"
    assert printed.err == f"{name} took 812 us (90 %: -)\n"


def test_text_of_a_program_is_printed_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    written = "812 µs, 1\u202f234\n"
    with standard_output():
        print_data(written)
    assert capsys.readouterr().out == written


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
