"""Turns exceptions of a trainer into kinds of failure."""

from __future__ import annotations

import re

from farm.errors import FarmError, TrainerFailed
from farm.messages.trainer_lines import Failure, FailureKind

_SHOWN_CHARACTERS = 500

# TensorFlow's and PyTorch's by class name, so that the mapping is testable and importable without
# them.
_CONNECTION = frozenset(
    {
        *("UnavailableError", "AbortedError", "DeadlineExceededError", "CancelledError"),
        *("DistNetworkError", "DistStoreError", "DistBackendError"),
    }
)
_MEMORY = frozenset({"MemoryError", "ResourceExhaustedError", "OutOfMemoryError"})
# For what gloo says of a connection, and for a failed allocation, PyTorch raises RuntimeErrors.
_GLOO = re.compile(r"\bgloo/|Connection (?:closed|reset) by peer|Timed out waiting \d+ms for ")
_NOT_ALLOCATED = "DefaultCPUAllocator: can't allocate memory"
# A barrier that a dead peer will never reach ends as an InternalError of this service.
_COORDINATION = "CoordinationService"
# What TensorFlow wraps around its reason: the traceback of the graph, names of nodes, advice for
# another interface. Three quarters of what can be shown would go for it.
_WRAPPING = re.compile(
    r"Graph execution error:"
    r"|Detected at node \S+ defined at \(most recent call last\):(?:\s*File .*(?:\n    .*)?\n?)*"
    r"|\[\[\{\{node .*?\}\}\]\]"
    r"|\[Op:\S*\]( name: \S*)?"
    r"|Hint: If you want to see a list of allocated tensors.*"
    r"|The error could be from a previous operation\. Restart your program to reset\."
    r"|\[type\.googleapis\.com/\S*\]\.?"
    r"|\[\S+/gloo/\S+:\d+\]"
    r"|\[enforce fail at \S+\] .*?\.(?= )"
    r"|This is typically caused by a remote worker .*"
)


class RankFailed(TrainerFailed):
    """This rank cannot go on, for a reason that has a name."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class DatasetMissing(RankFailed):
    """This machine lacks the data set: put its files where the message says."""

    def __init__(self, message: str) -> None:
        super().__init__(FailureKind.DATASET_MISSING, message)


def failure_of(error: BaseException, *, world_size: int) -> Failure:
    """Return the failure for an exception of the trainer.

    Only in a gang does a broken connection speak of a peer; a single rank has none, so that the
    same classes are then an exception of the training itself.
    """
    if isinstance(error, RankFailed):
        return Failure(kind=error.kind, message=str(error))
    name = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
    kind = kind_of(name, text_of(error), world_size=world_size)
    return Failure(kind=kind, message=_one_line(error, type(error).__name__))


def kind_of(name: str, text: str, *, world_size: int) -> FailureKind:
    """Return the failure kind of an exception, from its class name and message."""
    if name in _MEMORY or _NOT_ALLOCATED in text:
        return FailureKind.OUT_OF_MEMORY
    if (name == "UnknownError" and "Could not start gRPC server" in text) or (
        name == "DistNetworkError" and "EADDRINUSE" in text
    ):
        # The first: between the check of the port and TensorFlow's own bind somebody was quicker.
        return FailureKind.PORT_TAKEN
    is_of_gloo = name == "RuntimeError" and _GLOO.search(text) is not None
    if world_size > 1 and (name in _CONNECTION or _COORDINATION in text or is_of_gloo):
        return FailureKind.PEER_LOST
    return FailureKind.TRAINER_RAISED


def text_of(error: BaseException) -> str:
    """Return `str(error)`; empty if a class of the user's own raises there."""
    try:
        return str(error)
    except BaseException:
        return ""


def _one_line(error: BaseException, name: str) -> str:
    text = " ".join(_WRAPPING.sub(" ", text_of(error)).split())[:_SHOWN_CHARACTERS]
    if isinstance(error, FarmError):
        return text
    return f"{name}: {text}" if text else name
