"""The documents of the notebooks show the notebooks as they are, whatever their outputs."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import pytest

from tests.notebooks import DOCUMENTS, FOLDER, WRITTEN_BY, notebook_files

NAMES = [file.stem for file in notebook_files()]


def test_every_notebook_has_a_document_and_every_document_a_notebook() -> None:
    assert len(NAMES) == 3
    assert sorted(file.stem for file in DOCUMENTS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_document_has_the_text_and_the_code_of_its_notebook(name: str) -> None:
    text = (DOCUMENTS / f"{name}.md").read_text()
    cells = jupytext.read(FOLDER / f"{name}.py").cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert WRITTEN_BY in text
    assert re.findall(r"^```python\n(.*?)\n```$", text, re.M | re.S) == code, (
        "run `python -m tests.notebooks`"
    )
    for cell in cells:
        assert cell.cell_type == "code" or f"\n\n{cell.source}\n\n" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_of_a_document_are_there(name: str) -> None:
    document: Path = DOCUMENTS / f"{name}.md"
    figures = re.findall(r"!\[[^]]*\]\((.+?)\)", document.read_text())
    assert figures
    for figure in figures:
        assert (document.parent / figure).read_bytes().startswith(b"\x89PNG")
