"""Keeps reports on the agent's disk until the server has confirmed them.

The spool is a folder of segment files and a file with the spool's generation. A segment is named by
the number of its first report and has one report a line. Within a generation, numbers run from 1
without gaps. A crash may leave an incomplete last line. Its report was never handed out, since
`pending` syncs before it hands out a report, so its number is used again.

Confirmed reports are removed a whole segment at a time. After a restart a few confirmed reports may
therefore be sent again; the collector recognises them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from farm.errors import InvalidSpec
from farm.messages.reports import Report
from farm.values.codec import from_text
from worker_agent.supervisor.fencing import sync_folder

logger = logging.getLogger(__name__)

_SEGMENT_BYTES = 1024 * 1024
_SEGMENT_NAME = re.compile(r"[0-9]{12}\.jsonl", re.ASCII)
_GENERATION = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    lengths: array[int]  # bytes of each line, newline included
    bytes: int = 0  # their sum

    @property
    def next_number(self) -> int:
        return self.first + len(self.lengths)

    def add_line(self, length: int) -> None:
        self.lengths.append(length)
        self.bytes += length


class Spool:
    """The one owner of its folder; not for use by two threads.

    `generation` changes only when the folder's content was lost or damaged: numbers of another
    generation mean nothing here.
    """

    def __init__(
        self, folder: Path, *, max_bytes: int, segment_bytes: int = _SEGMENT_BYTES
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._open()

    def _open(self) -> None:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.generation, self._segments = _read_folder(folder)
        except InvalidSpec as error:
            aside = folder.with_name(f"{folder.name}.damaged-{uuid.uuid4().hex[:8]}")
            logger.error("spool was damaged; moved to %s: %s", aside, error)  # noqa: TRY400
            folder.rename(aside)
            folder.mkdir()
            self.generation, self._segments = _read_folder(folder)
        self._confirmed = self._segments[0].first - 1
        self._unconfirmed_bytes = sum(segment.bytes for segment in self._segments)
        self._file = self._segments[-1].path.open("ab")
        self._is_synced = False
        self._urgent_number = self.last_number

    def trouble(self) -> str | None:
        """Say why the folder cannot be used, as when it was removed; None: it can.

        What is written into a file that was removed is lost in silence.
        """
        own = os.fstat(self._file.fileno())
        try:
            self._segments[0].path.stat()
            there = self._segments[-1].path.stat()
        except OSError as error:
            return f"the spool in {self._folder} is gone ({error.strerror}): put it back"
        if (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            return f"the spool in {self._folder} was replaced: put it back"
        return None

    def start_over(self) -> int:
        """Begin another generation in a folder that is empty; return how many reports are lost.

        Raises:
            OSError: the folder cannot be written.
        """
        lost_count = self.last_number - self._confirmed
        before = self._file
        self._open()
        before.close()
        return lost_count

    @property
    def has_urgent(self) -> bool:
        """Whether an unconfirmed report is urgent: the server waits for it."""
        return self._urgent_number > self._confirmed

    @property
    def confirmed(self) -> int:
        """The highest number known to be confirmed."""
        return self._confirmed

    @property
    def last_number(self) -> int:
        """The number of the newest report; 0 when there was none yet."""
        return self._segments[-1].next_number - 1

    @property
    def unconfirmed_bytes(self) -> int:
        """What is not confirmed, with the ends of its lines."""
        return self._unconfirmed_bytes

    @property
    def is_full(self) -> bool:
        """Whether no new rank should add to what waits. Reports are taken all the same."""
        return self._unconfirmed_bytes >= self._max_bytes

    def append(
        self, token: int, *, rank: int, kind: str, body: object, is_urgent: bool = True
    ) -> int:
        """Write one report and return its number. `body` is its JSON value.

        Raises:
            OSError: the disk is full or broken; nothing was added.
        """
        if (trouble := self.trouble()) is not None:
            raise OSError(trouble)
        number = self.last_number + 1
        fields = {"number": number, "token": token, "rank": rank, "kind": kind, "body": body}
        line = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if (
            self._segments[-1].bytes + len(line) > self._segment_bytes
            and self._segments[-1].lengths
        ):
            self._open_segment(number)
        segment = self._segments[-1]
        end = segment.bytes
        try:
            self._file.write(line)
            self._file.flush()
        except OSError:
            self._discard_after(end)
            raise
        self._is_synced = False
        segment.add_line(len(line))
        self._unconfirmed_bytes += len(line)
        if is_urgent:
            self._urgent_number = number
        return number

    def pending(self, *, limit: int, max_bytes: int) -> tuple[Report, ...]:
        """Return the next unconfirmed reports in order: at least one if there is any.

        They are on disk for good before this returns, so that no number that the collector has
        seen can ever be given to another report.
        """
        if self._confirmed == self.last_number:
            return ()
        self.sync()
        reports: list[Report] = []
        size = 0
        for line in self._lines_after(self._confirmed):
            size += len(line)
            if reports and (size > max_bytes or len(reports) == limit):
                break
            reports.append(from_text(Report, line))
        return tuple(reports)

    def confirm(self, generation: str, number: int) -> None:
        """Forget the reports up to `number`; another generation's number is ignored."""
        if generation != self.generation or number <= self._confirmed:
            return
        if number > self.last_number:
            logger.error(
                "the server has more reports of this spool than the spool itself, as after "
                "restoring an old copy: delete the spool, or new reports are taken for known ones",
                extra={"number": number, "last_number": self.last_number},
            )
            return
        self._unconfirmed_bytes -= self._bytes_between(self._confirmed, number)
        self._confirmed = number
        while len(self._segments) > 1 and self._segments[0].next_number - 1 <= number:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Put everything on disk for good."""
        if not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        """Sync and release the file; twice is harmless. The spool cannot be used afterwards."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def _open_segment(self, first: int) -> None:
        self.sync()
        segment = _create_segment(self._folder, first)
        file = segment.path.open("ab")
        self._file.close()
        self._file = file
        self._segments.append(segment)

    def _discard_after(self, end: int) -> None:
        """Cut off half a line, or the next report would be glued to it."""
        path = self._segments[-1].path
        # Closing flushes the rest of the buffer, which fails as the write did.
        descriptor = os.dup(self._file.fileno())
        try:
            self._file.close()
        except OSError:
            logger.warning("report could not be written and is cut off again")
        finally:
            os.ftruncate(descriptor, end)
            os.close(descriptor)
        self._file = path.open("ab")

    def _lines_after(self, number: int) -> Iterator[bytes]:
        for segment in self._segments:
            skipped = max(0, number + 1 - segment.first)
            if skipped >= len(segment.lengths):
                continue
            with segment.path.open("rb") as file:
                file.seek(sum(segment.lengths[:skipped]))
                for length in segment.lengths[skipped:]:
                    yield file.read(length)

    def _bytes_between(self, confirmed: int, number: int) -> int:
        total = 0
        for segment in self._segments:
            low = max(0, confirmed + 1 - segment.first)
            total += sum(segment.lengths[low : max(0, number + 1 - segment.first)])
        return total


def _read_folder(folder: Path) -> tuple[str, list[_Segment]]:
    generation_file = folder / "generation"
    paths = sorted(folder.glob("*.jsonl"))
    for path in paths:
        if not (_SEGMENT_NAME.fullmatch(path.name) and path.is_file()):
            raise InvalidSpec("spool", path.name, "a segment's file")
    if not generation_file.exists():
        if any(path.stat().st_size for path in paths):
            raise InvalidSpec("spool", str(folder), "a generation beside its segments")
        segment = _create_segment(folder, 1)
        generation = uuid.uuid4().hex
        beside = folder / "generation.new"
        beside.write_text(generation)
        beside.rename(generation_file)
        sync_folder(folder)
        return generation, [segment]
    if not paths:
        raise InvalidSpec("spool", str(folder), "at least one segment")
    segments: list[_Segment] = []
    generation = generation_file.read_bytes().strip().decode("ascii", errors="replace")
    if not _GENERATION.fullmatch(generation):
        raise InvalidSpec("spool", generation, "a generation of 32 hexadecimal digits")
    for path in paths:
        if segments and int(path.stem) != segments[-1].next_number:
            raise InvalidSpec("spool", path.name, f"a segment from {segments[-1].next_number} on")
        # A torn report is cut off the last one: what is kept aside instead stays as it was found.
        segments.append(_read_segment(path, is_last=path == paths[-1]))
    return generation, segments


def _read_segment(path: Path, *, is_last: bool) -> _Segment:
    segment = _Segment(path, int(path.stem), array("I"))
    with path.open("rb") as file:
        for line in file:
            if not _is_report(line, segment.next_number):
                break
            segment.add_line(len(line))
        else:
            return segment
        has_more = bool(file.read(1))
    if not is_last or has_more:
        raise InvalidSpec("spool", path.name, f"report {segment.next_number} in one line")
    os.truncate(path, segment.bytes)
    logger.warning("torn report was dropped", extra={"number": segment.next_number})
    return segment


def _is_report(line: bytes, number: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return from_text(Report, line).number == number
    except InvalidSpec:
        return False


def _create_segment(folder: Path, first: int) -> _Segment:
    path = folder / f"{first:012d}.jsonl"
    with path.open("ab") as file:
        os.fsync(file.fileno())
    sync_folder(folder)
    return _Segment(path, first, array("I"))
