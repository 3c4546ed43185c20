"""The counts of `benchmarks.structure`, on sources whose counts are known."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.structure import Module, signs_of, words

ONE = """
class Job:
    global_batch_size: int

def _once() -> None: ...

def _twice() -> None: ...

def public() -> None:
    _once(), _twice(), _twice()
"""
OTHER = """
import json
from farm import one
from farm.one import Job as Known, public

class Job: ...
"""


def test_signs_are_counted() -> None:
    found = [
        Module("farm.one", 10, ast.parse(ONE)),
        Module("farm.other", 10, ast.parse(OTHER)),
    ]
    assert {sign.name: sign.value for sign in signs_of(found)} == {
        "lines": 20,
        "modules": 2,
        "modules in the largest folder": 2,
        "own names imported per 100 lines": 15.0,
        "modules that one other imports": 1,
        "classes that declare global_batch_size": 1,
        "private functions used once, %": pytest.approx(100 / 3, abs=0.1),
        "class names defined more than once": 1,
    }


def test_words_that_a_command_writes_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "README.md").write_text("one two")
    (tmp_path / "deploy" / "README.md").write_text("three")
    (tmp_path / "docs" / "made.md").write_text("<!-- Written by `farm evaluate` --> four five")
    part = "<!-- table: begin -->\nsix seven\n<!-- table: end -->"
    (tmp_path / "docs" / "page.md").write_text(f"eight {part} nine")
    (tmp_path / "docs" / "shown.md").write_text(
        "<!-- Written by `python -m tests.notebooks` --> ten eleven"
    )
    assert words(tmp_path) == 5


def test_a_study_s_page_is_counted_where_it_is_written(tmp_path: Path) -> None:
    for folder in ("deploy", "docs/studies", "farm/studies/delay"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("README.md", "deploy/README.md"):
        (tmp_path / name).write_text("")
    page = "<!-- Written by `farm reproduce delay` --> one two"
    (tmp_path / "farm" / "studies" / "delay" / "page.md").write_text(page)
    (tmp_path / "docs" / "studies" / "delay.md").write_text(f"{page} three four")
    assert words(tmp_path) == 9


def test_the_text_of_notebooks_is_counted_and_their_code_is_not(tmp_path: Path) -> None:
    for folder in ("deploy", "examples/notebooks"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("README.md", "deploy/README.md"):
        (tmp_path / name).write_text("")
    (tmp_path / "examples" / "notebooks" / "delay.py").write_text(
        "# %% [markdown]\n# one two\n#\n# three\n\n# %%\n# a comment\nstep()\n"
        "# %% [markdown]\n# four\n"
    )
    assert words(tmp_path) == 4
