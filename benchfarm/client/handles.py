"""Handles of a farm's sweeps and jobs: follow their progress, read results, control them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import pyarrow

from benchfarm.client.answers import FarmAnswer
from benchfarm.client.connection import FarmConnection
from benchfarm.client.errors import ClientError, NotConnected, WrongServer
from benchfarm.client.figures import draw_figure
from benchfarm.client.frames import Library, as_frame, frame_of, with_extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FINISHED = "finished"  # of a sweep; a paused one may go on
ENDED = frozenset({"succeeded", "failed", "cancelled"})  # of a job
# Of a stream in Arrow's format: of each message, and of the last one, which is empty.
_ARROW_BEGIN = b"\xff\xff\xff\xff"
_ARROW_END = _ARROW_BEGIN + bytes(4)
# Between two looks where the server cannot say when something has changed.
_LOOK_S = 2.0
_BUNDLE_S = 900.0  # a large sweep takes minutes to write


class _Handle:
    """One thing of the farm, read again by `refresh()`."""

    _kind: str  # as addresses have it, in the plural
    _watched: str  # as the events have it

    def __init__(
        self, connection: FarmConnection, row_id: int, *, summary: dict[str, Any] | None = None
    ) -> None:
        self._connection = connection
        self.id = row_id
        self._found = summary

    @property
    def _path(self) -> str:
        return f"/{self._kind}/{self.id}"

    @property
    def detail(self) -> FarmAnswer:
        """The API's JSON object, as of the last read."""
        return FarmAnswer(self._found or self.refresh())

    @property
    def state(self) -> str:
        """The state when it was last read."""
        return str(self.detail["state"])

    def refresh(self) -> dict[str, Any]:
        """Read it again."""
        return self._read(until=math.inf)

    def _read(self, *, until: float) -> dict[str, Any]:
        found: dict[str, Any] = self._connection.get(self._path, until=until)
        self._found = found
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _changes(self, until: float) -> Iterator[None]:
        """Yield now and whenever it may have changed; `until`: of the monotonic clock."""
        while True:
            yield
            begun_at = time.monotonic()
            watched = {self._watched: self.id}
            for line in self._connection.stream("/events", until=until, **watched):
                # The first line says that the server is watching now.
                if line.startswith(("event:", "retry:")):
                    yield
            if time.monotonic() >= until:
                return
            # The server has ended the stream, or has no room for one more.
            resumes_at = min(until, begun_at + _LOOK_S)
            time.sleep(max(0.0, resumes_at - time.monotonic()))


class JobHandle(_Handle):
    """One job: a configuration, measured once."""

    _kind, _watched = "jobs", "job"

    def wait(self, *, timeout_s: float | None = None) -> Self:
        """Wait until it has ended. Raises ClientError: it has not after `timeout_s`."""
        until = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        for _ in self._changes(until):
            self._read(until=until)
            if self.state in ENDED:
                return self
        raise ClientError(f"job {self.id} is still {self.state} after {timeout_s:g} s")

    def cancel(self) -> FarmAnswer:
        """Cancel it; a running job ends once its agents receive the command."""
        return FarmAnswer(self._connection.post(f"{self._path}/cancel"))

    def retry(self) -> FarmAnswer:
        """Run it again, if it failed or was cancelled."""
        return FarmAnswer(self._connection.post(f"{self._path}/retry"))

    def series(
        self,
        *,
        full: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        library: Library = "pandas",
    ) -> Any:
        """Return a frame of the samples of every rank: `tick` is in seconds since go.

        Thinned to 2,000 rows, or `full`: every second that is stored.
        """
        if full:
            batches = list(self.sample_batches(attempt=attempt, rank=rank))
            return as_frame(with_extras(batches), library)
        found = self._connection.get(f"{self._path}/series", attempt=attempt, rank=rank)
        rows = []
        for part in found["samples"]:
            for sample in part["samples"]:
                row = {"rank": part["rank"], **sample}
                # Agents name these: none may take the place of a column.
                further = row.pop("extra", None) or {}
                rows.append(row | {k: v for k, v in further.items() if k not in row})
        return frame_of(rows, library)

    def sample_batches(
        self,
        *,
        attempt: int | None = None,
        rank: int | None = None,
        limit: int | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Yield every stored sample, `limit` rows at a time, so that any number fits into memory.

        By default 100,000, the most that the server sends at once.

        `extra` is the text of a JSON object with the metrics that have no column.
        """
        path = f"{self._path}/samples"
        for content in self._connection.linked(path, attempt=attempt, rank=rank, limit=limit):
            if content.startswith(_ARROW_BEGIN) and not content.endswith(_ARROW_END):
                # Of an answer without a length neither HTTP nor Arrow says that its end is lacking.
                raise NotConnected(
                    f"the answer of {self._connection.url} to {path} was cut: something between "
                    "you and the farm has closed the connection; read it again, with a smaller "
                    "`limit`"
                )
            try:
                with pyarrow.ipc.open_stream(content) as stream:
                    yield from stream
            except (pyarrow.ArrowException, OSError) as error:
                raise WrongServer(
                    f"{self._connection.url} answers {path} without an Arrow stream "
                    f"({error}): is it a farm?"
                ) from None

    def steps(
        self, *, attempt: int | None = None, rank: int | None = None, library: Library = "pandas"
    ) -> Any:
        """Return a frame of the step times of one rank, rank 0 by default, thinned to 2,000."""
        found = self._connection.get(f"{self._path}/series", attempt=attempt, rank=rank)
        return frame_of(found["steps"], library)

    def history(self, *, library: Library = "pandas") -> Any:
        """Return a frame of what each sweep measured of its cell, the newest first.

        `verdict` says whether it was slower than before on the same machines, as far as the
        evidence goes, and `changes` which versions had changed.
        """
        found = self._connection.items(f"{self._path}/history", limit=100)
        rows = [
            {**point["quantities"], **{k: v for k, v in point.items() if k != "quantities"}}
            for point in found
        ]
        return frame_of(rows, library)

    def log(self, *, attempt: int | None = None, rank: int | None = None) -> str:
        """Return the output of a rank's trainer, by default of rank 0."""
        texts: list[str] = []
        position = 0
        while True:
            part = self._connection.get(
                f"{self._path}/log", attempt=attempt, rank=rank, **{"from": position}
            )
            texts.append(part["text"])
            if not part["text"] or part["next"] == position:
                return "".join(texts)
            # The same attempt's: another may begin meanwhile.
            position, attempt = part["next"], part["attempt"]


class SweepHandle(_Handle):
    """One sweep. `skipped`: the impossible cells that were left out, each with its reason."""

    _kind, _watched = "sweeps", "sweep"

    def __init__(
        self,
        connection: FarmConnection,
        row_id: int,
        *,
        summary: dict[str, Any] | None = None,
        skipped: list[str] | None = None,
        notify: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(connection, row_id, summary=summary)
        self._skipped = skipped
        # Of a sweep just submitted: each `address`, and the `secret` that signs what it gets.
        self.notify = tuple(notify)

    @property
    def skipped(self) -> list[str]:
        """The impossible cells that were left out, each with its reason."""
        if self._skipped is None:
            self._skipped = list(self.refresh()["skipped"])
        return self._skipped

    @property
    def jobs(self) -> list[JobHandle]:
        """Its jobs, in the order in which they were submitted."""
        found = self._connection.items("/jobs", sweep=self.id)
        jobs = [JobHandle(self._connection, job["id"], summary=job) for job in found]
        return sorted(jobs, key=lambda job: job.id)

    def wait(self, *, progress: bool = False, timeout_s: float | None = None) -> Self:
        """Wait until every job has ended; `progress` writes a line to stderr meanwhile.

        Raises:
            ClientError: it is not over after `timeout_s`, or is paused, or its budget is used up
                and what ran is over.
        """
        until = time.monotonic() + (math.inf if timeout_s is None else timeout_s)
        shown = _Progress(sys.stderr) if progress else None
        try:
            for _ in self._changes(until):
                found = self._read(until=until)
                if shown is not None:
                    shown.show(found)
                if found["state"] == FINISHED:
                    return self
                if found["is_paused"]:
                    raise ClientError(f"sweep {self.id} is paused: resume() it, and wait again")
                by_state = found["jobs_by_state"]
                # A server before 0.2.0 knows no budgets.
                if found.get("is_budget_used_up") and not by_state["leased"] + by_state["running"]:
                    raise ClientError(
                        f"the budget of sweep {self.id} is used up, and {by_state['waiting']} jobs "
                        "wait: resume(budget_machine_hours=...) it, and wait again"
                    )
        finally:
            if shown is not None:
                shown.end()
        raise ClientError(f"sweep {self.id} is still {self.state} after {timeout_s:g} s")

    def measurements(self, *, library: Library = "pandas") -> Any:
        """Return a frame with a row for each job that has ended: see `Farm.measurements`."""
        return frame_of(list(self._connection.items("/measurements", sweep=self.id)), library)

    def cells(self, *, library: Library = "pandas") -> Any:
        """Return a frame with a row for each configuration, over its repetitions.

        The first 1,000 jobs' alone: of a larger sweep take `measurements()`.
        """
        rows = []
        for cell in self.refresh()["cells"]:
            taken_apart = ("configuration", "values", "quantities")
            results = {k: v for k, v in cell.items() if k not in taken_apart}
            rows.append({**cell["values"], **cell["quantities"], **results})
        return frame_of(rows, library)

    def bundle(self, path: str | Path) -> Path:
        """Write the whole sweep as a new ZIP file: tables, figures and report; return its path.

        `farm import bundle` and the page "Data" of another farm take it.

        Raises:
            ClientError: the file is there already, or cannot be written; or the server has refused.
        """
        target = Path(path)
        try:
            file = target.open("xb")
        except (OSError, ValueError) as error:
            raise ClientError(f"{target} cannot be written: {error}") from None
        try:
            with file:
                self._connection.save(f"{self._path}/bundle", file, answer_s=_BUNDLE_S)
        except OSError as error:
            target.unlink()
            raise ClientError(f"{target} cannot be written: {error}") from None
        except BaseException:
            target.unlink()
            raise
        return target

    def plot(
        self, axes: Axes | None = None, *, metric: str | None = None, along: str | None = None
    ) -> Axes:
        """Draw a metric along an axis, with 95 % intervals, as the sweep's page does.

        `metric`: the step time by default; `along`: the first axis of numbers that the sweep
        varies. Values are in base units: seconds, however its axis writes them.

        Raises:
            ClientError: there is nothing to draw, or matplotlib is not installed.
        """
        found = self._connection.get(f"{self._path}/figure", metric=metric, along=along)
        if found["figure"] is None:
            raise ClientError(f"sweep {self.id}: {found['reason']}")
        return draw_figure(found["figure"], axes)

    def cancel(self) -> FarmAnswer:
        """Cancel its unfinished jobs."""
        return FarmAnswer(self._connection.post(f"{self._path}/cancel"))

    def retry(self) -> FarmAnswer:
        """Run its failed and cancelled jobs again."""
        return FarmAnswer(self._connection.post(f"{self._path}/retry"))

    def pause(self) -> FarmAnswer:
        """Start no further jobs of it."""
        return FarmAnswer(self._connection.post(f"{self._path}/pause"))

    def resume(self, *, budget_machine_hours: float | None = None) -> FarmAnswer:
        """Start its jobs again if it is paused, or within a new budget if the former is used up."""
        new = {} if budget_machine_hours is None else {"budget_machine_hours": budget_machine_hours}
        return FarmAnswer(self._connection.post(f"{self._path}/resume", new))


class _Progress:
    """A line that says how far a sweep is.

    Written over on a terminal and in a notebook, once a change elsewhere.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Streams of notebooks deny to be terminals, and yet follow a carriage return.
        is_notebook = type(stream).__module__ == "ipykernel.iostream"
        self._is_written_over = is_notebook or stream.isatty()
        self._last = ""

    def show(self, found: dict[str, Any]) -> None:
        """Print the sweep's progress, if it has changed since the last line."""
        failed = found["jobs_by_state"].get("failed", 0)
        left_s = found["remaining_s"]
        parts = [f"sweep {found['id']}: {found['finished_count']} of {found['job_count']} jobs"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"about {left_s:.0f} s left"] if left_s else []
        line = ", ".join(parts)
        if line != self._last:
            # Blanks hide the rest of a longer line before; notebooks know no code that does.
            over = f"\r{line:{len(self._last)}}"
            self._stream.write(over if self._is_written_over else f"{line}\n")
            self._stream.flush()
        self._last = line

    def end(self) -> None:
        if self._is_written_over:
            self._stream.write("\n")
