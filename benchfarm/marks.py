"""Reports each training step of this process to the farm, as one line on a pipe.

A mark must never break a training. If the pipe is closed or its reader is gone, the script
continues without the farm. A mark takes a few microseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Callable, SupportsFloat, SupportsInt

from benchfarm.torch_trace import StepTrace, trace_of_gang

FD_VARIABLE = "FARM_MARKS_FD"
LAST_MARK_VARIABLE = "FARM_LAST_MARK"
GO_ON_VARIABLE = "FARM_GO_ON_FD"
PROFILED_VARIABLE = "FARM_PROFILED_STEPS"
# JSON numbers beyond this are not the same in every reader.
_LARGEST_COUNT = 2**53
_MOST_PENDING = 1000
_RESOLUTION_S = 1e-9


class TrainingOver(SystemExit):
    """Ends the script with status 0: the farm has seen as many marks as it wants."""


class Marks:
    """Writes the marks of this process, and ends its script after the last one.

    Forked children never write: they close their copy of the pipe, so that the reader sees its end
    when this process ends.
    """

    def __init__(
        self,
        fd: int,
        *,
        last_mark: int = 0,
        profiled_count: int = 0,
        go_on_fd: int | None = None,
    ) -> None:
        """Take over a pipe's write end.

        `last_mark`: 0 if the script decides when it ends. `go_on_fd`: the read end of another pipe;
        after the last mark the script waits for its end. `profiled_count`: how many steps are
        profiled then, where that is possible.
        """
        os.set_inheritable(fd, False)
        if go_on_fd is not None:
            os.set_inheritable(go_on_fd, False)
        self._go_on_fd = go_on_fd
        self._fd: int | None = fd
        self._file = _identity(fd)
        self._last_mark = last_mark
        self._profiled_count = profiled_count
        self._trace: StepTrace | None = None
        self._clock: _DeviceClock | None = None
        # Lines that wait for the GPU to come to their event, and those behind them.
        self._pending: deque[tuple[Any, dict[str, Any]]] = deque()
        self._told_s = 0.0
        self._count = 0
        self._is_explicit = False
        # Since the process began, by the hook of PyTorch's DataLoader; None: it has none.
        self.data_wait_s: float | None = None
        self._begun_s: float | None = None
        # Reentrant, since a signal's handler may call `benchfarm.step`.
        self._lock = threading.RLock()
        self.before_end: Callable[[], None] = lambda: None
        os.register_at_fork(after_in_child=self._close)

    @property
    def is_begun(self) -> bool:
        """Whether a step has been marked."""
        return self._count > 0

    @contextlib.contextmanager
    def handed_on(self) -> Iterator[dict[str, str]]:
        """Yield the variables by which another program in this process finds the pipes.

        There are none if steps are marked already: it would begin with the first again. The block
        is left only if the program did not start.
        """
        fds = {FD_VARIABLE: self._fd, GO_ON_VARIABLE: self._go_on_fd}
        if self._fd is None or self.is_begun:
            fds = {}
        found = {name: fd for name, fd in fds.items() if fd is not None}
        for fd in found.values():
            os.set_inheritable(fd, True)
        try:
            variables = {name: str(fd) for name, fd in found.items()}
            counts = {LAST_MARK_VARIABLE: self._last_mark, PROFILED_VARIABLE: self._profiled_count}
            yield {**variables, **{name: str(n) for name, n in counts.items()}} if variables else {}
        finally:
            for fd in found.values():
                os.set_inheritable(fd, False)

    @property
    def next_is_last(self) -> bool:
        return self._count + 1 == self._last_mark

    def step(
        self,
        *,
        examples: SupportsInt | None = None,
        loss: SupportsFloat | None = None,
        accuracy: SupportsFloat | None = None,
    ) -> None:
        """Mark a step that the script itself reported.

        Raises:
            TrainingOver: this was the last mark, or that is past.
        """
        # The hooks have marked the step that the first call is about.
        is_marked = not self._is_explicit and self._count > 0
        self._is_explicit = True
        if self._fd is not None and not is_marked:
            self._mark(_whole(examples), number(loss), number(accuracy))

    def hooked_step(
        self,
        loss: float | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        """Mark a step that a framework's hook detected, unless the script reports its steps.

        `size`: how many numbers are trained, and how many bytes they have.

        Raises:
            TrainingOver: this was the last mark, or that is past.
        """
        if not self._is_explicit and self._fd is not None:
            self._mark(None, loss, None, size)

    def begin_step(self) -> None:
        """Have the next step begin now, and not with the mark before it."""
        if not self._is_explicit:
            self._begun_s = time.monotonic()

    def end_epoch(
        self, *, loss: float | None, val_loss: float | None, accuracy: float | None
    ) -> None:
        """Report the values of a framework's hook after an epoch, unless the script does."""
        if self._is_explicit:
            return
        metrics = {"loss": loss, "val_loss": val_loss, "accuracy": accuracy}
        with self._lock:
            self._tell({"epoch": {name: _json_number(value) for name, value in metrics.items()}})

    def _mark(
        self,
        examples: int | None,
        loss: float | None,
        accuracy: float | None,
        size: tuple[int, int] | None = None,
    ) -> None:
        with self._lock:
            is_past = 0 < self._end <= self._count
            if not is_past:
                self._look_for_device()
                self._count += 1
                further: dict[str, Any] = {
                    "size": size,
                    "begun_s": self._begun_s,
                    "data_wait_s": self.data_wait_s,
                }
                self._tell(
                    {
                        "mark": self._count,
                        "monotonic_s": time.monotonic(),
                        "examples": examples,
                        "loss": _json_number(loss),
                        "accuracy": _json_number(accuracy),
                        **{name: value for name, value in further.items() if value is not None},
                    }
                )
                self._begun_s = None
            if self._fd is None:
                return
            if self._count == self._last_mark and not is_past:
                self.before_end()
                self._flush(waits=True)
                self._wait_until_counted()
                self._trace = trace_of_gang() if self._profiled_count else None
            elif self._trace is not None:
                self._profile(self._trace)
            is_over = self._count == self._end
        if is_over:
            raise TrainingOver(0)

    @property
    def _end(self) -> int:
        """The mark at which the script ends; 0: there is none."""
        return self._last_mark + (0 if self._trace is None else self._profiled_count)

    def _profile(self, trace: StepTrace) -> None:
        """End a profiled step; after the last one tell what the profiler saw, and end."""
        is_last = self._count == self._end
        if is_last:
            self._last_mark, self._trace = self._end, None
        with contextlib.suppress(Exception):  # a profiler that does not work here
            if is_last:
                self._tell({"profile": trace.end()})
                self._flush(waits=True)
            else:
                trace.next_step()

    def _look_for_device(self) -> None:
        if self._count > 0 or self._fd is None:
            return
        self._clock = _device_clock()
        if self._clock is not None and self._last_mark == 0:
            atexit.register(self._flush, waits=True)  # the script's end is no mark

    def _tell(self, line: dict[str, Any]) -> None:
        """Write a line, that of a mark once the device has done the step."""
        event = None
        if self._clock is not None and "mark" in line:
            try:
                event = self._clock.record()
            except Exception:  # such as while a graph of the device is recorded
                self._clock = None
        self._pending.append((event, line))
        self._flush()

    def _flush(self, *, waits: bool = False) -> None:
        """Write what the device has come to, and without a device all; `waits`: for the device."""
        with self._lock:
            while self._pending:
                event, line = self._pending[0]
                if event is not None:
                    try:
                        if waits or len(self._pending) > _MOST_PENDING:
                            event.synchronize()
                        elif not event.query():
                            return
                        if self._clock is not None:
                            line["monotonic_s"] = self._clock.read(event)
                    except Exception:  # the host's own time is the next best
                        self._clock = None
                if "mark" in line:
                    # Each mark must be later than the one before, whichever clock timed it.
                    least_s = self._told_s
                    if "begun_s" in line:
                        least_s = line["begun_s"] = max(line["begun_s"], least_s)
                    self._told_s = max(line["monotonic_s"], least_s + _RESOLUTION_S)
                    line["monotonic_s"] = self._told_s
                self._pending.popleft()
                self._write(line)

    def _wait_until_counted(self) -> None:
        """Wait until the farm has read what this process has sent, which is lost with its sockets.

        The farm closes its end of the other pipe then; so does its death.
        """
        if self._go_on_fd is not None:
            with contextlib.suppress(OSError):
                os.read(self._go_on_fd, 1)

    def _write(self, mark: dict[str, Any]) -> None:
        """Write one line; if that fails, write nothing more.

        The script may have closed the pipe and opened a file of its own under the same number,
        and it may have given SIGPIPE back its default, which ends the process.
        """
        if self._fd is None:
            return
        line = (json.dumps(mark) + "\n").encode()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGPIPE,))
        try:
            if _identity(self._fd) != self._file:
                self._fd = None
            else:
                os.write(self._fd, line)
        except BrokenPipeError:
            signal.sigtimedwait((signal.SIGPIPE,), 0)
            self._close()
        except OSError:
            self._fd = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            try:
                if _identity(fd) == self._file:
                    os.close(fd)
            except OSError:
                pass  # The script has closed it.


# None outside the farm.
of_this_process: Marks | None = None


def take_from_environment() -> Marks | None:
    """Take the farm's pipe, and its variables out of the environment. None: there is no farm."""
    fd = _whole(os.environ.pop(FD_VARIABLE, None))
    last_mark = _whole(os.environ.pop(LAST_MARK_VARIABLE, None))
    go_on_fd = _whole(os.environ.pop(GO_ON_VARIABLE, None))
    profiled_count = _whole(os.environ.pop(PROFILED_VARIABLE, None))
    if fd is None:
        return None
    try:
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return None
        return Marks(
            fd, last_mark=last_mark or 0, profiled_count=profiled_count or 0, go_on_fd=go_on_fd
        )
    except (OSError, OverflowError):
        return None


def number(value: Any) -> float | None:
    """Return a number, or the one value of a tensor. None: it is neither."""
    if value is None:
        return None
    # PyTorch warns if a tensor that has a gradient is converted without `item`.
    item = getattr(value, "item", None)
    try:
        return float(item() if callable(item) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
    return whole if abs(whole) <= _LARGEST_COUNT else None


def _json_number(value: float | None) -> float | str | None:
    """JSON has no infinities, and nothing that is not a number."""
    if value is None or math.isfinite(value):
        return value
    return repr(value)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class _DeviceClock:
    """Times marks on the GPU by events on its stream, in seconds of CLOCK_MONOTONIC.

    A host that has issued a step goes on to the next; only the device knows when the step was
    done. To wait for it at each mark would slow the training down. The device has to be idle when
    its clock is made. Raises whatever PyTorch raises.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        cuda.synchronize()
        # The time between two events has the precision of a float of 32 bits: so the times between
        # neighbours are added up.
        self._last = self.record()
        self._last.synchronize()
        self._last_s = time.monotonic()

    def record(self) -> Any:
        """Return an event, behind all that was given to the current stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self, event: Any) -> float:
        """Return when the device came to the event, which has to be over. To be asked in order."""
        self._last_s += self._last.elapsed_time(event) / 1000
        self._last = event
        return min(self._last_s, time.monotonic())


def _device_clock() -> _DeviceClock | None:
    """Return the clock of the GPU that PyTorch uses here; None: it uses none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return _DeviceClock(cuda) if cuda is not None and cuda.is_initialized() else None
    except Exception:  # a device that has no such events
        return None
