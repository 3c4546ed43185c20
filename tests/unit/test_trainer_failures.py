"""Every end of a trainer has one kind."""

from __future__ import annotations

import pytest

from farm.core.trainer_lines import FailureKind
from farm.errors import InvalidSpec
from farm.trainers.failures import DatasetMissing, RankFailed, failure_of


def error_named(name: str, message: str = "") -> Exception:
    """An exception of a framework that is not imported here."""
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (error_named("ResourceExhaustedError"), FailureKind.OUT_OF_MEMORY),
        (error_named("UnavailableError"), FailureKind.PEER_LOST),
        (error_named("AbortedError"), FailureKind.PEER_LOST),
        (error_named("DeadlineExceededError"), FailureKind.PEER_LOST),
        (error_named("CancelledError"), FailureKind.PEER_LOST),
        (error_named("UnknownError", "Could not start gRPC server"), FailureKind.PORT_TAKEN),
        (error_named("UnknownError", "else"), FailureKind.TRAINER_RAISED),
        (ValueError("shapes"), FailureKind.TRAINER_RAISED),
        (InvalidSpec("model", "x", "one of y"), FailureKind.TRAINER_RAISED),
        (DatasetMissing("no mnist"), FailureKind.DATASET_MISSING),
        (RankFailed(FailureKind.NOT_A_NUMBER, "nan"), FailureKind.NOT_A_NUMBER),
    ],
    ids=lambda value: value.value if isinstance(value, FailureKind) else type(value).__name__,
)
def test_an_exception_is_one_kind_of_failure(error: Exception, kind: FailureKind) -> None:
    assert failure_of(error, world_size=2).kind is kind


def test_a_rank_without_peers_cannot_lose_one() -> None:
    failure = failure_of(error_named("UnavailableError"), world_size=1)
    assert failure.kind is FailureKind.TRAINER_RAISED


def test_a_message_is_one_line_and_no_longer_than_can_be_shown() -> None:
    message = failure_of(ValueError("a\n  b" + "c" * 9999), world_size=1).message
    assert message.startswith("ValueError: a bc")
    assert len(message) < 600
