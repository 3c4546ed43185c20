"""Prints to standard output and standard error safely.

Everything is printed through `_Printer`. It escapes terminal control characters, since much of the
text comes from agents and trainers, and writes measured values in plain characters. If the reader
closes the pipe (`| head`), if there is no standard output (`>&-`), or if the disk is full, the
program ends with one line.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, cast

from farm.text.display import plain
from farm.text.log_text import printable

_UNREAD = 1  # the exit status


@contextmanager
def standard_output() -> Iterator[None]:
    """Run a program that prints. It ends silently once its output is no longer read."""
    _open_closed()
    stdout = _Stream(sys.stdout)
    try:
        try:
            with _cleaned(stdout, _Stream(sys.stderr)):
                yield
        finally:
            # Output still in the buffer may meet the broken pipe only now.
            stdout.flush()
            if stdout.is_full:  # and the writer ignored the error, as argparse does
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except BrokenPipeError:
        broken = [fd for fd in (1, 2) if _is_broken(fd)]
        if not broken:
            raise  # a connection of the program's own
        _leave(broken)
    except OSError as error:
        if not stdout.is_full:
            raise  # a file of the program's own
        print(f"standard output: {error.strerror}", file=sys.stderr)
        _leave([1])


class _Stream:
    """A text stream that remembers whether the disk behind it was full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_full = False

    def write(self, text: str) -> int:
        with self._noted():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._noted():
            self._stream.flush()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What did not fit into its buffer is lost, so that the next attempt may succeed.
            self.is_full |= error.errno == errno.ENOSPC
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Printer:
    """A text stream whose text does nothing to a terminal but be read, also in a log."""

    def __init__(self, stream: _Stream) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(plain(printable(text)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write past this stream, where the locale is ASCII
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream behind the printer, for colours and bars of the program's own."""
    return cast(TextIO, stream.unfiltered) if isinstance(stream, _Printer) else stream


def print_data(text: str) -> None:
    """Print text as it is into a pipe or a file; on a terminal, only what is safe there."""
    unfiltered(sys.stdout).write(printable(text) if sys.stdout.isatty() else text)


@contextmanager
def _cleaned(stdout: _Stream, stderr: _Stream) -> Iterator[None]:
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            # Whatever the locale, no character that somebody sent ends the program.
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = (cast(TextIO, _Printer(stream)) for stream in (stdout, stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _leave(broken: Collection[int]) -> NoReturn:
    # The interpreter flushes once more at its end and would complain.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in broken:
        os.dup2(nowhere, fd)
    sys.exit(_UNREAD)


def _open_closed() -> None:
    """Let standard streams that are closed lead nowhere.

    The next file that is opened would otherwise take their numbers, and what is printed by a
    child process would be written into it.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number is taken, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_broken(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # errors are reported without being asked for
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
