"""Types of a study: its sweep, the farm that it runs on, and its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from farm.measuring.study_run import StudyRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class LabHosts:
    """So many hosts of a lab, an agent on each: real links and delays between them. Needs root."""

    count: int


@dataclass(frozen=True, slots=True)
class LoopbackAgents:
    """So many agents of this machine, each with cores of its own, on its loopback interface."""

    count: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of a page; `name` is that of its files. `draw` imports matplotlib."""

    name: str
    draw: Callable[[], Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page in Markdown, whose links are relative to the folder that the page is in."""

    text: str
    drawings: tuple[Drawing, ...]


def write_page(study: str, texts: Mapping[str, str], *drawings: Drawing) -> Page:
    """Put texts into the study's `page.md`, which may leave some of them out."""
    template = Template(files(f"farm.studies.{study}").joinpath("page.md").read_text())
    return Page(text=template.substitute(texts), drawings=drawings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """`page` is pure: the same runs make the same page, which goes into `page_file`.

    The package `farm.studies.NAME` holds it: `sweep.toml` is what it measures, and `page.md` the
    words around the figures. `modules`: what has to be installed beside TensorFlow.
    """

    name: str
    summary: str
    place: LabHosts | LoopbackAgents
    page_file: str
    page: Callable[[Sequence[StudyRun]], Page]
    modules: tuple[str, ...] = ()
