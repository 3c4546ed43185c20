"""Every end of a trainer has one kind."""

from __future__ import annotations

import pytest

from farm.errors import InvalidSpec
from farm.messages.trainer_lines import FailureKind
from farm.trainers.failures import DatasetMissing, RankFailed, failure_of

# As TensorFlow 2.21 said them, shortened in the middle.
BARRIER = (
    "Barrier failed because: task is set to ERROR: UNAVAILABLE: Task /job:worker/replica:0/task:1"
    " heartbeat timeout. [type.googleapis.com/tensorflow.CoordinationServiceError=''].\n"
    "RPC: /tensorflow.CoordinationService/Barrier"
)
EXHAUSTED = """Graph execution error:

Detected at node small_cnn_1/conv2d_1/Relu defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

  File "/farm/trainers/tensorflow/engine.py", line 141, in step

OOM when allocating tensor with shape[40000,30,30,32] and type float on /device:CPU:0 by allocator \
cpu
\t [[{{node small_cnn_1/conv2d_1/Relu}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor.
 [Op:__inference_step_520]"""

# As PyTorch 2.13 said them.
CLOSED = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    " [127.0.0.1]:4530. This is typically caused by a remote worker crashing. Check the logs of"
    " the remote worker before reporting an error. GLHF!"
)
NOT_ALLOCATED = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
    " tried to allocate 400000000000000 bytes. Error code 12 (Cannot allocate memory)"
)


def error_named(name: str, message: str = "") -> Exception:
    """An exception of a framework that is not imported here."""
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (type("_ArrayMemoryError", (MemoryError,), {})(), FailureKind.OUT_OF_MEMORY),
        (error_named("ResourceExhaustedError"), FailureKind.OUT_OF_MEMORY),
        (error_named("UnavailableError"), FailureKind.PEER_LOST),
        (error_named("AbortedError"), FailureKind.PEER_LOST),
        (error_named("DeadlineExceededError"), FailureKind.PEER_LOST),
        (error_named("CancelledError"), FailureKind.PEER_LOST),
        (error_named("UnknownError", "Could not start gRPC server"), FailureKind.PORT_TAKEN),
        (error_named("UnknownError", "else"), FailureKind.TRAINER_RAISED),
        (error_named("InternalError", BARRIER), FailureKind.PEER_LOST),
        (error_named("InternalError", "else"), FailureKind.TRAINER_RAISED),
        (error_named("OutOfMemoryError", "CUDA out of memory"), FailureKind.OUT_OF_MEMORY),
        (RuntimeError(NOT_ALLOCATED), FailureKind.OUT_OF_MEMORY),
        (RuntimeError(CLOSED), FailureKind.PEER_LOST),
        (RuntimeError("Timed out waiting 4000ms for recv"), FailureKind.PEER_LOST),
        (RuntimeError("mat1 and mat2 shapes differ"), FailureKind.TRAINER_RAISED),
        (error_named("DistStoreError", "wait timeout"), FailureKind.PEER_LOST),
        (error_named("DistNetworkError", "client has timed out"), FailureKind.PEER_LOST),
        (error_named("DistNetworkError", "name: EADDRINUSE"), FailureKind.PORT_TAKEN),
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


def test_of_tensorflows_words_the_reason_is_kept_and_its_wrapping_is_not() -> None:
    exhausted = failure_of(error_named("ResourceExhaustedError", EXHAUSTED), world_size=1)
    assert exhausted.message == (
        "ResourceExhaustedError: OOM when allocating tensor with shape[40000,30,30,32] and type"
        " float on /device:CPU:0 by allocator cpu"
    )
    assert "type.googleapis" not in failure_of(error_named("E", BARRIER), world_size=2).message


def test_of_pytorchs_words_the_reason_is_kept_and_its_wrapping_is_not() -> None:
    lost = failure_of(RuntimeError(CLOSED), world_size=2)
    assert lost.message == "RuntimeError: Connection closed by peer [127.0.0.1]:4530."
    exhausted = failure_of(RuntimeError(NOT_ALLOCATED), world_size=1)
    assert exhausted.message.startswith("RuntimeError: DefaultCPUAllocator: can't allocate memory")
