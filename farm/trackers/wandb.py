"""Weights & Biases: a run for each job, grouped by sweep, in a folder that `wandb sync` uploads.

Nothing leaves this machine unless WANDB_MODE=online is set. The folder records what was sent: a run
is moved into it once it is complete.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from farm.errors import FarmError, InvalidSpec, Unreachable
from farm.trackers.contracts import SeriesAxis, TrackedJob, TrackedSweep, library

_PROJECT = "benchfarm"  # where WANDB_PROJECT names no other
# Errors are ours to tell, and not its makers'.
_LIBRARY_SETTINGS = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true"}
_INIT_S, _UPLOAD_S = 20, 600
_MODES = ("offline", "online")  # another of the library writes nothing, without an error
_RUNS = "wandb"  # the folder in a folder where the library puts its runs
_RUN = re.compile(r"(?:offline-)?run-\d+_\d+-(.+)-attempt-(\d+)")
# Groups of names that count by something else than the rows.
_GROUPS = {"step/*": SeriesAxis.STEP, "epoch/*": SeriesAxis.EPOCH, "system/*": SeriesAxis.SECOND}


class WandbTracker:
    """Runs in one folder."""

    name: ClassVar[str] = "wandb"
    takes_folder: ClassVar[bool] = True

    def __init__(self, destination: str) -> None:
        for variable, value in _LIBRARY_SETTINGS.items():
            os.environ.setdefault(variable, value)
        self._mode = os.environ.get("WANDB_MODE") or "offline"
        if self._mode not in _MODES:
            raise InvalidSpec("WANDB_MODE", self._mode, " or ".join(_MODES))
        self._wandb = library("wandb", self.name)
        self._folder = Path(destination)

    def sent(self, sweep: TrackedSweep) -> Collection[str]:
        """Return the jobs whose runs are in the folder."""
        names = (path.name for path in (self._folder / _RUNS).glob("*run-*"))
        found = (_RUN.fullmatch(name) for name in names)
        return {f"{one[1]}/attempt/{one[2]}" for one in found if one is not None}

    def send(self, job: TrackedJob) -> None:
        """Write a job's run beside the others, and move it to them."""
        name = job.key.replace("/", "-")
        partial = self._folder / f".{name}"
        with self._working(), self._alone():
            if job.key in self.sent(job.sweep):  # by another process meanwhile
                return
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self._write(job, name, partial)
            runs = self._folder / _RUNS
            runs.mkdir(exist_ok=True)
            for path in (partial / _RUNS).glob("*run-*"):
                if _RUN.fullmatch(path.name) and not path.is_symlink():
                    path.rename(runs / path.name)
            shutil.rmtree(partial)

    def _write(self, job: TrackedJob, name: str, folder: Path) -> None:
        settings = self._wandb.Settings(
            silent=True,
            console="off",
            # Nothing of this machine, its code and its packages.
            x_disable_machine_info=True,
            x_save_requirements=False,
            init_timeout=_INIT_S,
            finish_timeout=_UPLOAD_S,
            finish_timeout_raises=True,
        )
        run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT") or _PROJECT,
            id=name,
            name=job.name,
            group=job.sweep.name,
            config={**job.parameters, **job.tags},
            dir=str(folder),
            mode=self._mode,
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        for group, axis in _GROUPS.items():
            run.define_metric(axis.value)
            run.define_metric(group, step_metric=axis.value)
        for row in _rows(job):
            run.log(row)
        run.summary.update(job.summary)
        run.finish(exit_code=0 if job.is_ok else 1)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time write: two that send a job would write into the same folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _working(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FarmError(
                f"{self._folder} cannot be written: {error.strerror or error}"
            ) from error
        except (self._wandb.Error, ValueError) as error:  # this of its variables
            line = " ".join(str(error).split())
            raise Unreachable(
                f"W&B does not do as asked ({line}): check WANDB_BASE_URL and WANDB_API_KEY, or "
                "leave out WANDB_MODE"
            ) from None


def _rows(job: TrackedJob) -> list[Mapping[str, float]]:
    """Return rows of values by name, in the order of their times, one for each place on an axis."""
    rows: dict[tuple[float, str, int], dict[str, float]] = {}
    for one in job.series:
        for place, unix_s, value in one.points:
            axis = one.axis.value
            row = rows.setdefault((unix_s, axis, place), {axis: place, "_timestamp": unix_s})
            row[one.name] = value
    return [rows[key] for key in sorted(rows)]
