"""What a study consists of: a sweep in the lab, and a page made from what it measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.core.study_run import StudyRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of a page; `name` is that of its files. `draw` imports matplotlib."""

    name: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page in Markdown, whose links are relative to the folder of the documents."""

    text: str
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """`page` is pure: the same runs make the same page, which goes into `page_file`.

    `host_count`: hosts of its lab. `modules`: what has to be installed beside TensorFlow.
    """

    name: str
    summary: str
    host_count: int
    page_file: str
    page: Callable[[Sequence[StudyRun]], Page]
    modules: tuple[str, ...] = ()
