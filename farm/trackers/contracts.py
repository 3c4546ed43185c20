"""The interface of experiment trackers, and the data of a job that they receive."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar, NamedTuple, Protocol

from farm.errors import FarmError


class SeriesAxis(enum.Enum):
    """What the points of a series are counted by."""

    STEP = "step"  # from 0, warm-up included
    SECOND = "second"  # after the gang was told to start
    EPOCH = "epoch"  # from 0


class Point(NamedTuple):
    """One value of a series, `unix_s` by the server's clock."""

    place: int  # along the axis of the series
    unix_s: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedSeries:
    """A metric over a job's time; every value is finite.

    `name` has a group before its slash, which trackers show as a section, and consists of letters,
    digits and `_.-/`.
    """

    name: str
    axis: SeriesAxis
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedSweep:
    """A sweep; `farm_id` is of the farm's store."""

    farm_id: str
    id: int
    name: str

    @property
    def key(self) -> str:
        """The same whenever it is sent, and of no other sweep of any farm."""
        return f"{self.farm_id}/sweep/{self.id}"

    def job_key(self, token: int) -> str:
        """Return the key, likewise, of what an attempt of it has measured."""
        return f"{self.farm_id}/attempt/{token}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedJob:
    """A job with its measurement.

    - `key`: of the attempt that measured it, see `TrackedSweep.job_key`
    - `parameters`: what was asked for; `summary`: what was measured, every value finite; both
      under the names of the measurement table and in its units, and without what is not known. A
      script's own parameters are called `parameters.NAME`
    - `begun_unix_s`, `ended_unix_s`: of the attempt; `is_ok`: it has a step time
    """

    key: str
    sweep: TrackedSweep
    name: str
    begun_unix_s: float
    ended_unix_s: float
    is_ok: bool
    parameters: Mapping[str, str | int | float]
    summary: Mapping[str, float]
    series: Sequence[TrackedSeries]
    tags: Mapping[str, str]


class Tracker(Protocol):
    """Writes jobs to one place. Made anew for each sweep that is exported."""

    name: ClassVar[str]  # of `farm export --to` and of the extra that brings its library
    # Whether a job goes into a folder, else to the address of a server.
    takes_folder: ClassVar[bool]

    def __init__(self, destination: str) -> None:
        """Raises FarmError: its library is not installed, or the destination does not fit."""

    def sent(self, sweep: TrackedSweep) -> Collection[str]:
        """Return the keys of the jobs that are there whole.

        Raises:
            Unreachable: the tracker does not answer as one.
        """

    def send(self, job: TrackedJob) -> None:
        """Write a job that is not there whole; what a send that was cut short has left is used.

        Raises:
            FarmError: the tracker does not take it, or does not answer.
        """


def library(module: str, tracker: str) -> ModuleType:
    """Import a tracker's library.

    Raises:
        FarmError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FarmError(
            f"{tracker} needs a library: pip install 'benchfarm[{tracker}]' "
            f"({error.name or module} is absent)"
        ) from error
