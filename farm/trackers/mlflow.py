"""MLflow: a sweep is a run of the experiment, its jobs are runs nested in it.

Runs are found by their tags, so a job appears once, however often it is sent. A run that was sent
partly is sent again as a whole: MLflow's databases keep one value of a metric for a step and time.

MLflow makes two runs where two exports of a sweep look for one at once. So each export looks again
after it has written: the one that looks last sees all runs, and keeps the same one of each kind.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from farm.errors import FarmError, InvalidSpec, Unreachable
from farm.trackers.contracts import TrackedJob, TrackedSweep, library

_T = TypeVar("_T")

_EXPERIMENT = "benchfarm"  # where MLFLOW_EXPERIMENT_NAME names no other
_SWEEP, _ATTEMPT, _WHOLE = "benchfarm.sweep", "benchfarm.attempt", "benchfarm.whole_since_ns"
_OF_SWEEP = "benchfarm.run_of_sweep"  # only a sweep's own run has it
_PARENT, _RUN_NAME = "mlflow.parentRunId", "mlflow.runName"
_USER = re.compile(r"//[^/\s]*@")
# Limits of MLflow's REST API, see mlflow.utils.validation.
_METRICS_AT_ONCE, _OTHERS_AT_ONCE = 1000, 100
_PARAMETER_CHARACTERS, _TAG_CHARACTERS = 6000, 8000
_RUNS_A_PAGE = 1000
_MOST_ERROR_CHARACTERS = 200
# By default the library asks for minutes before it gives up, reports its use to its makers, and
# prints two lines for each run. What the environment says is kept.
_LIBRARY_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class MlflowTracker:
    """Runs of one MLflow tracking server or database."""

    name: ClassVar[str] = "mlflow"
    takes_folder: ClassVar[bool] = False

    def __init__(self, destination: str) -> None:
        for variable, value in _LIBRARY_SETTINGS.items():
            os.environ.setdefault(variable, value)
        mlflow = library("mlflow", self.name)
        self._entities = mlflow.entities
        self._error: type[Exception] = mlflow.exceptions.MlflowException
        self._uri = _checked(destination)
        with self._answering():
            self._client = mlflow.MlflowClient(tracking_uri=destination)
        self._experiment_id: str | None = None
        self._parents: dict[str, str] = {}

    def sent(self, sweep: TrackedSweep) -> Collection[str]:
        """Return the attempts whose runs are whole."""
        with self._answering():
            found = self._search(f"tags.`{_SWEEP}` = '{sweep.key}'")
            return {run.data.tags[_ATTEMPT] for run in found if _is_whole(run)}

    def send(self, job: TrackedJob) -> None:
        """Write a job's run, batch by batch; its last tag says that it is whole."""
        with self._answering():
            run = self._own_run(job)
            self._log(run.info.run_id, job)
            # Marked whole with its last change: whatever is lacking, the mark is.
            status = "FINISHED" if job.is_ok else "FAILED"
            self._client.set_terminated(run.info.run_id, status, _ms(job.ended_unix_s))
            self._client.set_tag(run.info.run_id, _WHOLE, str(time.time_ns()))
            self._remove_duplicates(job)

    def _search(self, filter_string: str) -> list[Any]:
        runs, token = [], None
        while True:
            page = self._client.search_runs(
                [self._experiment()],
                filter_string,
                max_results=_RUNS_A_PAGE,
                page_token=token,
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def _experiment(self) -> str:
        if self._experiment_id is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
            found = self._client.get_experiment_by_name(name)
            if found is None:
                self._experiment_id = self._client.create_experiment(name)
            elif found.lifecycle_stage != "active":
                raise FarmError(
                    f"MLflow's experiment {name!r} was deleted: restore it with `mlflow "
                    f"experiments restore -x {found.experiment_id}`, or name another in "
                    "MLFLOW_EXPERIMENT_NAME"
                )
            else:
                self._experiment_id = found.experiment_id
        assert self._experiment_id is not None
        return self._experiment_id

    def _parent(self, job: TrackedJob) -> str:
        """Return the run of the job's sweep, which is made with the first job that is sent."""
        key = job.sweep.key
        if key not in self._parents:
            found = self._parents_of(key)
            if not found:
                run = self._client.create_run(
                    self._experiment(),
                    start_time=_ms(time.time()),
                    run_name=_cut(job.sweep.name, _TAG_CHARACTERS),
                    tags={_SWEEP: key, _OF_SWEEP: key},
                )
                self._client.set_terminated(run.info.run_id, "FINISHED")
                found = [run]
            self._parents[key] = found[0].info.run_id
        return self._parents[key]

    def _parents_of(self, key: str) -> list[Any]:
        """Return the runs of a sweep itself, the first one first."""
        found = self._search(f"tags.`{_SWEEP}` = '{key}'")
        parents = [run for run in found if _ATTEMPT not in run.data.tags]
        return sorted(parents, key=_age)

    def _own_run(self, job: TrackedJob) -> Any:
        """Return the job's run, as a send that was cut short has left it or new."""
        parent = self._parent(job)
        found = self._search(f"tags.`{_ATTEMPT}` = '{job.key}'")
        if found:
            return min(found, key=_preference)
        tags = {name: _cut(value, _TAG_CHARACTERS) for name, value in job.tags.items()}
        return self._client.create_run(
            self._experiment(),
            start_time=_ms(job.begun_unix_s),
            run_name=job.name,
            tags={**tags, _PARENT: parent},
        )

    def _remove_duplicates(self, job: TrackedJob) -> None:
        """Keep one whole run of the job, and one run of its sweep, which is that run's parent."""
        found = self._search(f"tags.`{_ATTEMPT}` = '{job.key}'")
        kept, *others = sorted(filter(_is_whole, found), key=_preference)
        for run in others:
            self._client.delete_run(run.info.run_id)
        key = job.sweep.key
        parents = self._search(f"tags.`{_OF_SWEEP}` = '{key}'")
        if parents:
            parent, *superfluous = sorted(parents, key=_age)
            self._parents[key] = parent.info.run_id
            for run in superfluous:
                for child in self._search(f"tags.`{_PARENT}` = '{run.info.run_id}'"):
                    self._set_parent(child, parent)
                self._client.delete_run(run.info.run_id)
            if kept.data.tags[_PARENT] != parent.info.run_id:
                self._set_parent(kept, parent)

    def _set_parent(self, run: Any, parent: Any) -> None:
        try:
            self._client.set_tag(run.info.run_id, _PARENT, parent.info.run_id)
        except self._error:
            # Another export may have removed it since, as a duplicate.
            if self._client.get_run(run.info.run_id).info.lifecycle_stage != "deleted":
                raise

    def _log(self, run_id: str, job: TrackedJob) -> None:
        parameters = [
            self._entities.Param(name, _cut(str(value), _PARAMETER_CHARACTERS))
            for name, value in job.parameters.items()
        ]
        for part in _parts(parameters, _OTHERS_AT_ONCE):
            self._client.log_batch(run_id, params=part)
        for part in _parts(list(self._metrics(job)), _METRICS_AT_ONCE):
            self._client.log_batch(run_id, metrics=part)

    def _metrics(self, job: TrackedJob) -> Iterator[Any]:
        end_ms = _ms(job.ended_unix_s)
        for name, value in job.summary.items():
            yield self._entities.Metric(name, float(value), end_ms, 0)
        for one in job.series:
            for place, unix_s, value in one.points:
                yield self._entities.Metric(one.name, float(value), _ms(unix_s), place)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Raise Unreachable, with the address and no password, where the server does not answer."""
        try:
            yield
        except (self._error, ImportError, OSError, ValueError) as error:
            raise Unreachable(
                f"MLflow at {_shown(self._uri)} does not do as asked "
                f"({_one_line(str(error))}): start `mlflow server`, or correct --uri"
            ) from None


def _is_whole(run: Any) -> bool:
    return _WHOLE in run.data.tags


def _age(run: Any) -> tuple[int, str]:
    """Order runs of sweeps: the first one first."""
    return run.info.start_time, run.info.run_id


def _preference(run: Any) -> tuple[bool, int, str]:
    """Order runs of one job: those that are whole first, and of these the first to be."""
    return not _is_whole(run), int(run.data.tags.get(_WHOLE, 0)), run.info.run_id


def _parts(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _ms(unix_s: float) -> int:
    return round(unix_s * 1000)


def _checked(uri: str) -> str:
    """Refuse what the library would take for a folder, or fail on in its own way."""
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        scheme = ""
    if not scheme:
        raise InvalidSpec("--uri", uri, "http://HOST:PORT, or the URL of MLflow's database")
    return uri


def _shown(text: str) -> str:
    """Return an address, or a text with some, without the users and passwords in them."""
    return _USER.sub("//", text)


def _one_line(message: str) -> str:
    line = " ".join(_shown(message).split())
    return _cut(line, _MOST_ERROR_CHARACTERS)
