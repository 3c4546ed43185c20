"""Sends the output of trainers to the server as it appears, up to a limit.

A trainer may write 100 MB/s. Its pipes must be read all the same, since a full pipe would stop it.
Only the newest output is kept here, and one part of it is sent at each gathering until the log has
reached its limit. Once the rank has ended, the end of the log is sent. The log says what was left
out.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from farm.messages.reports import LogPart

TAIL_BYTES = 8 * 1024
RECENT_BYTES = 64 * 1024
PART_BYTES = 32 * 1024
# At the most that goes on in a second, four minutes of it.
LONGEST_CHARACTERS = 4 * 1024 * 1024
_IS_LONG = (
    f"\n[benchfarm: the log has {LONGEST_CHARACTERS} characters; of what follows only the end "
    "will be here]\n"
)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """The next bytes of a log. `lost_count`: bytes before them that exceeded the limit."""

    lost_count: int
    data: bytes


class TrainerLog:
    """The newest that one trainer has written; the threads that read its pipes add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = bytearray()
        self._written_count = 0
        self._passed_count = 0  # of those: taken, or found to be lost

    @property
    def tail(self) -> str:
        """The end of what was written."""
        with self._lock:
            return self._recent[-TAIL_BYTES:].decode(errors="replace")

    def add(self, chunk: bytes) -> None:
        """Keep what was written now, and forget what has become too old for it."""
        with self._lock:
            self._written_count += len(chunk)
            self._recent += chunk[-RECENT_BYTES:]
            if len(self._recent) > RECENT_BYTES:
                del self._recent[:-RECENT_BYTES]

    def take(self, most_bytes: int) -> LogChunk | None:
        """Return what was not taken yet, from its beginning; None: nothing is new."""
        with self._lock:
            if self._passed_count == self._written_count:
                return None
            begin = self._written_count - len(self._recent)
            lost_count = max(0, begin - self._passed_count)
            first = self._passed_count + lost_count
            data = bytes(self._recent[first - begin : first - begin + most_bytes])
            self._passed_count = first + len(data)
        return LogChunk(lost_count, data)


class RankLog:
    """The log of a rank: what its trainers write, in parts. For one thread."""

    def __init__(self) -> None:
        self._sources: list[_Source] = []
        self._speaker: _Source | None = None  # whose text came last
        self._character_count = 0

    def follow(self, title: str, log: TrainerLog) -> None:
        """Make what a trainer writes a part of the log, under its title where there are several."""
        self._sources.append(_Source(title, log))

    def parts(self, *, is_last: bool = False) -> Iterator[LogPart]:
        """Yield what is new: at most one part of each trainer, or all that is left."""
        for source in self._sources:
            yield from self._all_of(source) if is_last else self._next_of(source)

    def _next_of(self, source: _Source) -> Iterator[LogPart]:
        if self._character_count >= LONGEST_CHARACTERS:
            return
        taken = source.log.take(PART_BYTES)
        if taken is not None:
            text = source.text(taken)
            is_long = self._character_count + len(text) >= LONGEST_CHARACTERS
            yield from self._part(source, text + _IS_LONG if is_long else text)

    def _all_of(self, source: _Source) -> Iterator[LogPart]:
        # Not until there is nothing: a process that nobody could kill may go on for ever.
        for _ in range(RECENT_BYTES // PART_BYTES):
            taken = source.log.take(PART_BYTES)
            if taken is not None:
                yield from self._part(source, source.text(taken))
        yield from self._part(source, source.end())

    def _part(self, source: _Source, text: str) -> Iterator[LogPart]:
        if not text:
            return  # less than a character
        if len(self._sources) > 1 and self._speaker is not source:
            heading = f"[{source.title}]\n"
            text = heading + text if self._speaker is None else f"\n{heading}{text}"
        self._speaker = source
        first_character = self._character_count
        self._character_count += len(text)
        yield LogPart(first_character=first_character, text=text)


class _Source:
    """One trainer of the rank. A character may be torn between two parts."""

    def __init__(self, title: str, log: TrainerLog) -> None:
        self.title = title
        self.log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def text(self, taken: LogChunk) -> str:
        """Return what was taken as a text, and before it how much was left out."""
        if not taken.lost_count:
            return self._decoded(taken.data)
        left_out = f"\n[benchfarm: {taken.lost_count} bytes were left out here]\n"
        return self.end() + left_out + self._decoded(taken.data)

    def end(self) -> str:
        """Return what is left of a character that will not be completed any more."""
        return self._decoded(b"", is_final=True)

    def _decoded(self, data: bytes, *, is_final: bool = False) -> str:
        # No database takes NUL in a text.
        return self._decoder.decode(data, is_final).replace("\0", "\N{REPLACEMENT CHARACTER}")
