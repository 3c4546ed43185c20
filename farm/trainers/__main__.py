"""`python -m farm.trainers`: the process of one role of a rank, started by its agent.

A warm trainer, forked from `farm.trainers.processes.template`, runs the same `main`.

Nothing heavy is imported here: the process first binds itself to its cores, to its parent's life
and to the pipe, and only then starts the framework's threads.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import NoReturn

from farm.errors import FarmError, InvalidSpec
from farm.messages.trainer_lines import Assignment
from farm.trainers.failures import failure_of
from farm.trainers.processes.process import (
    EXIT_FAILED,
    EXIT_USAGE,
    EventWriter,
    Orders,
    end_fork,
    end_with_parent,
    leave,
    limit,
    log_to_stderr,
    offer_memory,
    pin,
    show_gpus,
    take_stdin,
    take_stdout,
)
from farm.values.codec import from_text

logger = logging.getLogger("farm.trainers")


def main() -> NoReturn:
    """Run the assignment of the first line; leave with 0 only after a result."""
    line = EventWriter(take_stdout())
    log_to_stderr()
    end_with_parent()
    offer_memory()
    orders = Orders(take_stdin())
    try:
        assignment = from_text(Assignment, orders.read_line() or "", where="assignment")
        limit(assignment.limits)
        pin(assignment.cpus)
        if assignment.gpus is not None:
            show_gpus(assignment.gpus)
    except InvalidSpec as error:
        print(f"farm.trainers: {error}", file=sys.stderr)
        leave(EXIT_USAGE)
    orders.watch()
    own_pid = os.getpid()
    os.register_at_fork(after_in_child=line.close)  # a user's own code may fork
    try:
        from farm.trainers.rank import run_rank

        run_rank(assignment, line=line, orders=orders)
    except BaseException as error:
        if os.getpid() != own_pid:
            end_fork(error)
        # PyTorch's handler raises wherever the program is, once a process of its loader has ended:
        # not while the failure is reported.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # SystemExit and KeyboardInterrupt, too: a user's own layers may raise them in a step, and
        # let through they would end the process without a word.
        if isinstance(error, FarmError):
            logger.error("rank failed: %s", error)  # noqa: TRY400 (its message says it all)
        else:
            logger.exception("rank failed")
        line.emit(failure_of(error, world_size=assignment.job.world_size))
        leave(EXIT_FAILED)
    leave(0)


if __name__ == "__main__":
    main()
