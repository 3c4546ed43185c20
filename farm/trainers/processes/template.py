"""`python -m farm.trainers.processes.template`: import what trainers need, then fork them.

Its agent starts it as it would start a trainer, with the same environment and folder, and with a
socket as standard input. It runs no TensorFlow operation, creates no context and touches no
device; so a fork is in the state of a process that has just imported the same modules, whatever
other forks did before.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys

from farm.errors import FarmError
from farm.trainers.__main__ import main as run_trainer
from farm.trainers.processes.forking import serve, settle
from farm.trainers.processes.process import (
    EXIT_FAILED,
    EXIT_USAGE,
    end_with_parent,
    leave,
    log_to_stderr,
    pin,
)

_CONTROL = 0  # standard input


def main() -> None:
    """Bind to the cores given, import, serve until the agent closes the socket."""
    log_to_stderr()
    end_with_parent()
    if len(sys.argv) != 2:
        print("farm.trainers.processes.template: expected the cores, such as 0,1", file=sys.stderr)
        leave(EXIT_USAGE)
    try:
        # First, since libraries ask for the number of cores when they are loaded.
        pin([int(cpu) for cpu in sys.argv[1].split(",")])
        load()
        settle()
    except (FarmError, ImportError) as error:
        print(f"farm.trainers.processes.template: {error}", file=sys.stderr)
        leave(EXIT_FAILED)
    serve(socket.socket(fileno=_CONTROL), run_trainer)
    leave(0)


def load() -> None:
    """Import the framework, the loop and the data sets' readers, and do nothing with them."""
    for module in ("arrays", "cifar10_files", "mnist_files"):
        importlib.import_module(f"farm.trainers.datasets.{module}")
    importlib.import_module("farm.trainers.rank")
    with contextlib.suppress(ImportError):  # where it is absent, the jobs that need it say so
        importlib.import_module("sklearn.datasets")
    from farm.trainers.tensorflow.setup import load_tensorflow

    load_tensorflow()


if __name__ == "__main__":
    main()
