"""The lines of shell that the documents tell a reader to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
DOCUMENTS = [
    *(ROOT / "README.md", ROOT / "deploy" / "README.md"),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "clouds").glob("*.md")),
    *sorted((DOCS / "studies").glob("*.md")),
]
# What they call sweep.toml.
SWEEP = """
name = "documented"

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [64, 256]
steps = 20
"""


def blocks(document: Path) -> list[str]:
    """A document's blocks of shell, with each line that goes on made one."""
    found = re.findall(r"^ *```(?:ba)?sh\n(.*?)^ *```", document.read_text(), re.M | re.S)
    return [block.replace("\\\n", " ") for block in found]


def block_with(document: Path, beginning: str) -> list[str]:
    """The lines of the one block of a document that has a line with this beginning."""
    [block] = [
        block
        for block in blocks(document)
        if any(line.startswith(beginning) for line in block.splitlines())
    ]
    return [line for line in block.splitlines() if line.strip()]


def typed() -> Iterator[list[str]]:
    """The words of every line, without comments."""
    for document in DOCUMENTS:
        for block in blocks(document):
            for line in block.splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


def typed_of(program: str) -> list[str]:
    """Every command of a program, once each."""
    return list(dict.fromkeys(shlex.join(words) for words in typed() if words[0] == program))
