"""A template that has nothing to import: the product's own forking, with the fake trainer.

What it does wrong is said by its arguments:

    never_ready   never say that it is ready
    deaf          say so, and then read no request
    dies          die of the first request
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import NoReturn

from farm.trainers.processes.process import end_with_parent
from farm.trainers.processes.template import READY, serve
from tests.fakes import trainer


def main() -> None:
    end_with_parent()
    control = socket.socket(fileno=0)
    words, sys.argv[1:] = sys.argv[1:], []  # the trainer has no use for them
    if "never_ready" in words:
        signal.pause()
    if "deaf" in words:
        control.send(READY)
        signal.pause()
    if "dies" in words:
        control.send(READY)
        control.recv(4, socket.MSG_PEEK)
        os.kill(os.getpid(), signal.SIGKILL)
    serve(control, run_trainer)


def run_trainer() -> NoReturn:
    trainer.main()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
