"""Reads and replaces the generated part of a Markdown page, between two markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MarkedPart:
    """Between `<!-- NAME: begin -->` and `<!-- NAME: end -->`, which readers do not see."""

    name: str

    @property
    def begin(self) -> str:
        return f"<!-- {self.name}: begin -->"

    @property
    def end(self) -> str:
        return f"<!-- {self.name}: end -->"

    def is_in(self, page: Path) -> bool:
        """Whether the page is a file that has both markers, in their order."""
        if not page.is_file():
            return False
        _, begin, rest = page.read_text().partition(self.begin)
        return bool(begin) and self.end in rest

    def read(self, page: Path) -> str:
        """Return what stands between the markers.

        Raises:
            ValueError: the page lacks one of them.
        """
        return self._split(page)[1]

    def write(self, page: Path, lines: Sequence[str]) -> None:
        """Replace it by these lines.

        Raises:
            ValueError: the page lacks a marker.
        """
        head, _, tail = self._split(page)
        text = "\n".join(lines)
        page.write_text(f"{head}{self.begin}\n\n{text}\n\n{self.end}{tail}")

    def _split(self, page: Path) -> tuple[str, str, str]:
        head, begin, rest = page.read_text().partition(self.begin)
        part, end, tail = rest.partition(self.end)
        if not (begin and end):
            raise ValueError(f"{page}: expected the lines {self.begin} and {self.end}")
        return head, part, tail
