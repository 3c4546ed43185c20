"""What a program prints, where its reader goes away early (`| head`) or there is none (`>&-`).

Or where what it prints goes into a file, and the disk is full.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn

_UNREAD = 1  # the exit status


@contextmanager
def standard_output() -> Iterator[None]:
    """Run a program that prints. It ends without a word once nobody reads its output any more."""
    _open_closed()
    try:
        try:
            yield
        finally:
            # Output still in the buffer may meet the broken pipe only now.
            sys.stdout.flush()
    except BrokenPipeError:
        broken = [fd for fd in (1, 2) if _is_broken(fd)]
        if not broken:
            raise  # a connection of the program's own
        _leave(broken)
    except OSError as error:
        if error.errno != errno.ENOSPC or not _is_full():
            raise  # a file of the program's own
        print(f"standard output: {error.strerror}", file=sys.stderr)
        _leave([1])


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
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_broken(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # errors are reported without being asked for
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _is_full() -> bool:
    """Whether standard output still cannot be written; what was not stays in its buffer."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False
