"""TensorBoard: a folder of event files, FOLDER/SWEEP/JOB, with hyperparameters beside scalars.

A file is written atomically, and has the same name whenever a job is sent.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

from farm.errors import FarmError
from farm.processes.whole_file import write_whole
from farm.trackers.contracts import TrackedJob, TrackedSweep, library

_FILE = "events.out.tfevents.0."  # then the key; TensorBoard reads any file with this in its name
_FILE_VERSION = "brain.Event:2"
_MOST_FLOAT32 = 3.4028235e38
_NAME_CHARACTERS = 60


class TensorBoardTracker:
    """Event files in one folder."""

    name: ClassVar[str] = "tensorboard"
    takes_folder: ClassVar[bool] = True

    def __init__(self, destination: str) -> None:
        self._events = library("tensorboard.compat.proto.event_pb2", self.name)
        self._summaries = library("tensorboard.compat.proto.summary_pb2", self.name)
        self._records = library("tensorboard.summary.writer.record_writer", self.name)
        # Not its summaries: those load TensorFlow where it is installed, for seconds.
        self._hparams = library("tensorboard.plugins.hparams.metadata", self.name)
        self._sessions = library("tensorboard.plugins.hparams.plugin_data_pb2", self.name)
        self._statuses = library("tensorboard.plugins.hparams.api_pb2", self.name)
        self._folder = Path(destination)

    def sent(self, sweep: TrackedSweep) -> Collection[str]:
        """Return the jobs that have their files."""
        names = (path.name for path in self._of(sweep).glob(f"*/{_FILE}*"))
        return {name.removeprefix(_FILE).replace(".", "/") for name in names}

    def send(self, job: TrackedJob) -> None:
        """Write a job's file."""
        folder = self._of(job.sweep) / job.name.replace(", ", "-").replace(" ", "-")
        content = io.BytesIO()
        records = self._records.RecordWriter(content)
        for event in self._written(job):
            records.write(event.SerializeToString())
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FarmError(f"{folder} cannot be made: {error.strerror or error}") from error
        write_whole(folder / f"{_FILE}{job.key.replace('/', '.')}", content.getvalue())

    def _of(self, sweep: TrackedSweep) -> Path:
        name = re.sub(r"[^\w.-]+", "-", sweep.name)[:_NAME_CHARACTERS].strip(".-") or "sweep"
        return self._folder / f"{name}-{sweep.farm_id[:8]}-{sweep.id}"

    def _written(self, job: TrackedJob) -> Iterator[Any]:
        begun_s, ended_s = job.begun_unix_s, job.ended_unix_s
        yield self._event(begun_s, file_version=_FILE_VERSION)
        yield self._session(begun_s, self._hparams.SESSION_START_INFO_TAG, self._start(job))
        for one in job.series:
            for place, unix_s, value in one.points:
                yield from self._scalar(unix_s, one.name, value, step=place)
        for name, value in job.summary.items():
            yield from self._scalar(ended_s, f"summary/{name}", value, step=0)
        status = self._statuses.STATUS_SUCCESS if job.is_ok else self._statuses.STATUS_FAILURE
        end = self._sessions.SessionEndInfo(status=status, end_time_secs=ended_s)
        content = self._sessions.HParamsPluginData(session_end_info=end)
        yield self._session(ended_s, self._hparams.SESSION_END_INFO_TAG, content)

    def _start(self, job: TrackedJob) -> Any:
        start = self._sessions.SessionStartInfo(
            group_name=job.key, start_time_secs=job.begun_unix_s
        )
        for name, value in {**job.parameters, **job.tags}.items():
            if isinstance(value, str):
                start.hparams[name].string_value = value
            else:
                start.hparams[name].number_value = value
        return self._sessions.HParamsPluginData(session_start_info=start)

    def _session(self, unix_s: float, tag: str, content: Any) -> Any:
        value = self._summaries.Summary.Value(
            tag=tag,
            metadata=self._hparams.create_summary_metadata(content),
            tensor=self._hparams.NULL_TENSOR,
        )
        return self._event(unix_s, summary=self._summaries.Summary(value=[value]))

    def _scalar(self, unix_s: float, tag: str, value: float, *, step: int) -> Iterator[Any]:
        if abs(value) <= _MOST_FLOAT32:  # as TensorBoard has them
            scalar = self._summaries.Summary.Value(tag=tag, simple_value=value)
            yield self._event(unix_s, step=step, summary=self._summaries.Summary(value=[scalar]))

    def _event(self, unix_s: float, **content: Any) -> Any:
        return self._events.Event(wall_time=unix_s, **content)
