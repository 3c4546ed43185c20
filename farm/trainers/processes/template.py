"""`python -m farm.trainers.processes.template`: import what trainers need, then fork them.

The agent starts it like a trainer, with the same environment and folder, and with a socket as
standard input. It runs no TensorFlow operation, creates no context and uses no device. So a fork is
in the state of a process that has just imported the same modules, whatever other forks have done.

A request over the socket is a byte and four descriptors: the trainer's standard input, output and
error, and a pipe into which the trainer writes its pid. The trainer becomes a child of the agent,
not of the template: a process forked from the template forks again and ends, and the kernel gives
its child to the agent, which is the subreaper of its descendants. So the agent waits for a warm
trainer as for any other, and no trainer ends with a template that dies.

While a process holds the pipe open, it may still become a trainer. Once the pipe is closed without
a pid, there will be no trainer, however the template died, and the agent may start one by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from farm.errors import FarmError
from farm.trainers.__main__ import main as run_trainer
from farm.trainers.processes.process import (
    EXIT_ABANDONED,
    EXIT_FAILED,
    EXIT_USAGE,
    end_with_parent,
    leave,
    log_to_stderr,
    pin,
)

READY = b"ready"
_CONTROL = 0  # standard input
_REQUEST = b"fork"
_STANDARD = 3  # input, output, error
_ADOPTION_LIMIT_S = 5.0
_POLL_S = 0.0005
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of linux/mman.h; kernels before 5.14 do not know it
# Of an entry of /proc/PID/pagemap, see the kernel's Documentation/admin-guide/mm/pagemap.rst.
_ENTRY_BYTES = 8
_IS_PRESENT = 1 << 63
_IS_OF_A_FILE = 1 << 61
# Address space that was only reserved, as some libraries do by the terabyte, is not searched.
_LARGEST_MAPPING_BYTES = 8 << 30


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
    with _without_pandas():
        _load()


def _load() -> None:
    for module in ("arrays", "cifar10_files", "mnist_files"):
        importlib.import_module(f"farm.trainers.datasets.{module}")
    importlib.import_module("farm.trainers.rank")
    with contextlib.suppress(ImportError):  # where it is absent, the jobs that need it say so
        importlib.import_module("sklearn.datasets")
    from farm.trainers.tensorflow.setup import load_tensorflow

    load_tensorflow()


@contextlib.contextmanager
def _without_pandas() -> Iterator[None]:
    """Keep Keras and scikit-learn from loading pandas, which they do wherever they find it.

    With it comes PyArrow, whose threads a fork would lose. A user's model may import it in the
    trainer.
    """
    sys.modules["pandas"] = None  # type: ignore[assignment] # what an import finds absent
    try:
        yield
    finally:
        del sys.modules["pandas"]


def settle() -> None:
    """Prepare for forks: no other thread, and no collector that writes to pages that are shared.

    Raises:
        FarmError: a library has started threads, which a fork would lose.
    """
    # OpenBLAS starts its pool when it is loaded. It gives it up at a fork, and starts it again
    # where it is needed, in the trainer.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    gc.collect()
    gc.freeze()
    count = thread_count()
    if count != 1:
        raise FarmError(f"template: expected 1 thread, got {count}; trainers start cold")


def thread_count(pid: int | str = "self") -> int:
    """Return how many threads a process has."""
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def serve(control: socket.socket, run: Callable[[], NoReturn]) -> None:
    """Say that it is ready, and let every request's fork `run`, until the agent closes `control`.

    In a fork `run` finds descriptors, parent and session as if the agent had started it.
    """
    agent = os.getppid()
    control.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, len(_REQUEST), _STANDARD + 1)
        if not message:
            return
        child = os.fork()
        if child == 0:
            if os.fork():
                os._exit(0)
            control.detach()  # its descriptor is closed or replaced with the trainer's own
            _become_trainer(descriptors, agent)
            run()
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(child, 0)


def _become_trainer(descriptors: Sequence[int], agent: int) -> None:
    *standard, reply = descriptors
    os.setsid()
    for target, descriptor in enumerate(standard):
        os.dup2(descriptor, target)
        os.close(descriptor)
    _await_adoption(agent)
    try:
        os.write(reply, b"%d" % os.getpid())
    except BrokenPipeError:
        leave(EXIT_ABANDONED)
    os.close(reply)
    # After the answer, which the agent waits for, and long before anything is measured.
    own_inherited_pages()


def _await_adoption(agent: int) -> None:
    """Wait until the agent is the parent: only then can it wait for this process."""
    deadline = time.monotonic() + _ADOPTION_LIMIT_S
    while os.getppid() != agent:
        if time.monotonic() > deadline:
            leave(EXIT_ABANDONED)
        time.sleep(_POLL_S)


def own_inherited_pages() -> int:
    """Copy what is shared with the parent by copy-on-write; return how many bytes that was.

    A fork shares its parent's memory until either writes to it, and then the kernel copies page by
    page: in the middle of measured steps, each copy wherever memory happens to be free. Done at
    once and before anything is measured, the steps of a forked trainer are as long as those of one
    that was started without a fork.

    A kernel that cannot do it, or says nothing of its pages, leaves them shared: 0, or what was
    copied until then. Nothing else is different then but the moment of the copies.
    """
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    copied_bytes = 0
    try:
        for begin, end in list(_inherited_ranges()):
            if madvise(begin, end - begin, _POPULATE_WRITE) != 0:
                break
            copied_bytes += end - begin
    except OSError:  # no /proc, or one that is closed to us
        pass
    return copied_bytes


def _inherited_ranges() -> Iterator[tuple[int, int]]:
    """Yield begin and end of every run of pages that may be written and hold data already."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        for begin, end in _writable_mappings():
            entries = array("Q")
            count = (end - begin) // page_bytes
            offset = begin // page_bytes * _ENTRY_BYTES
            entries.frombytes(os.pread(pagemap, count * _ENTRY_BYTES, offset))
            run = begin
            for index, entry in enumerate(entries):
                at = begin + index * page_bytes
                if entry & (_IS_PRESENT | _IS_OF_A_FILE) != _IS_PRESENT:
                    if at > run:
                        yield run, at
                    run = at + page_bytes
            last = begin + len(entries) * page_bytes
            if last > run:
                yield run, last
    finally:
        os.close(pagemap)


def _writable_mappings() -> Iterator[tuple[int, int]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split(maxsplit=2)
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if permissions == "rw-p" and end - begin <= _LARGEST_MAPPING_BYTES:
            yield begin, end


if __name__ == "__main__":
    main()
