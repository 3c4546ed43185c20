"""What a trainer's end means: only the kernel's own word makes a SIGKILL a want of memory."""

from __future__ import annotations

import signal

import pytest

from farm.messages.trainer_lines import Failure, FailureKind, UserCode
from worker_agent.rank.memory_evidence import MemoryEvidence
from worker_agent.rank.rank_end import (
    ended_report,
    failure_of_data_workers,
    failure_of_exit,
    lost_data_workers,
)

NOTHING = MemoryEvidence()
NAMED = MemoryEvidence(is_named=True)
COUNTED = MemoryEvidence(group_kill_count=1)
KIB = 1024
RUNNING = UserCode(name="model file:mine.py", is_running=True)
HAS_RUN = UserCode(name="model file:mine.py", is_running=False)


@pytest.mark.parametrize(
    ("return_code", "memory", "kind"),
    [
        (0, NOTHING, FailureKind.TRAINER_RAISED),
        (3, NAMED, FailureKind.TRAINER_RAISED),
        (-signal.SIGKILL, NAMED, FailureKind.OUT_OF_MEMORY),
        (-signal.SIGKILL, COUNTED, FailureKind.OUT_OF_MEMORY),
        (-signal.SIGKILL, NOTHING, FailureKind.KILLED),
        (-signal.SIGKILL, MemoryEvidence(group_kill_count=0), FailureKind.KILLED),
        (-signal.SIGSEGV, NAMED, FailureKind.KILLED),
    ],
)
def test_a_sigkill_is_out_of_memory_only_with_the_kernels_word_for_it(
    return_code: int, memory: MemoryEvidence, kind: FailureKind
) -> None:
    assert failure_of_exit(return_code, memory=memory).kind is kind


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        ("(pid 12) is killed by signal: Killed.", (12,)),
        ("(pid(s) 12, 13) exited unexpectedly", (12, 13)),
        ("(pid 12) is killed by signal: Bus error.", ()),
    ],
)
def test_a_trainer_tells_which_data_workers_it_has_lost(text: str, pids: tuple[int, ...]) -> None:
    assert lost_data_workers(of_loader(text)) == pids


@pytest.mark.parametrize(
    ("memory", "kind"),
    [(NAMED, FailureKind.OUT_OF_MEMORY), (NOTHING, FailureKind.TRAINER_RAISED)],
)
def test_a_lost_data_worker_is_out_of_memory_only_with_the_kernels_word_for_it(
    memory: MemoryEvidence, kind: FailureKind
) -> None:
    failure = of_loader("(pid 12) is killed by signal: Killed.")
    assert failure_of_data_workers(failure, memory=memory).kind is kind


def of_loader(text: str) -> Failure:
    message = f"RuntimeError: DataLoader worker {text}"
    return Failure(kind=FailureKind.TRAINER_RAISED, message=message)


def test_a_kill_of_another_process_is_not_taken_for_the_trainers() -> None:
    others = MemoryEvidence(is_named=False, group_kill_count=1, machine_kill_count=1)
    failure = failure_of_exit(-signal.SIGKILL, memory=others)
    assert failure.kind is FailureKind.KILLED
    assert failure.message.endswith("but other processes")


def test_the_machines_counter_alone_proves_nothing_and_is_told() -> None:
    somewhere = MemoryEvidence(group_kill_count=0, machine_kill_count=1)
    failure = failure_of_exit(-signal.SIGKILL, memory=somewhere)
    assert failure.kind is FailureKind.KILLED
    assert "some process" in failure.message


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (
            MemoryEvidence(is_named=True, limit_bytes=512 * KIB**2, peak_bytes=511 * KIB**2),
            "(by the kernel's log): the control group's limit is 537 MB, its peak was 536 MB;",
        ),
        (
            MemoryEvidence(group_kill_count=2, limit_bytes=512 * KIB**2),
            "(by the counter of its control group): the control group's limit is 537 MB;",
        ),
        (MemoryEvidence(is_named=True, machine_bytes=KIB**3), "the machine has 1.07 GB;"),
    ],
)
def test_the_reason_names_its_evidence_the_limit_and_what_to_do(
    memory: MemoryEvidence, words: str
) -> None:
    message = failure_of_exit(-signal.SIGKILL, memory=memory).message
    assert words in message
    assert message.endswith("try a smaller batch per replica, or more memory")
    assert "\n" not in message


def test_a_trainer_that_leaves_while_it_connects_blames_its_peers_and_not_the_job() -> None:
    failure = failure_of_exit(1, memory=NOTHING, is_connecting=True)
    assert failure.kind is FailureKind.PEER_LOST
    killed = failure_of_exit(-signal.SIGKILL, memory=NAMED, is_connecting=True)
    assert killed.kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV])
@pytest.mark.parametrize(
    "line",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "W0000 00:00:17 117 op_kernel.cc:18] OP_REQUIRES failed at mkl_util.h:848 :"
        " RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[60000,26,26,32]\nmore",
    ],
)
def test_a_crash_after_an_allocation_that_failed_is_out_of_memory(number: int, line: str) -> None:
    failure = failure_of_exit(-number, memory=NOTHING, log_tail=f"before\n{line}\nafter")
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert "\n" not in failure.message
    assert failure_of_exit(-number, memory=NOTHING, log_tail="before").kind is FailureKind.KILLED
    killed = failure_of_exit(-signal.SIGTERM, memory=NOTHING, log_tail=line)
    assert killed.kind is FailureKind.KILLED


@pytest.mark.parametrize("is_connecting", [False, True])
@pytest.mark.parametrize(
    ("return_code", "words"),
    [
        (0, "with status 0"),
        (3, "with status 3"),
        (-signal.SIGSEGV, "crashed with SIGSEGV"),
        (-signal.SIGTERM, "ended its process with SIGTERM"),
        (-signal.SIGINT, "ended its process with SIGINT"),
        (-signal.SIGALRM, "ended its process with SIGALRM"),
        (-signal.SIGRTMIN, "ended its process with SIGRTMIN"),
    ],
)
def test_an_end_within_the_users_own_code_is_a_failure_of_that_code(
    return_code: int, words: str, is_connecting: bool
) -> None:
    failure = failure_of_exit(
        return_code, memory=NOTHING, is_connecting=is_connecting, user_code=RUNNING
    )
    assert failure.kind is FailureKind.TRAINER_RAISED
    assert failure.message.startswith("model file:mine.py: expected its code to return")
    assert words in failure.message


def test_a_kill_within_the_users_own_code_is_still_the_machines_or_memorys() -> None:
    for memory, kind in [(NOTHING, FailureKind.KILLED), (NAMED, FailureKind.OUT_OF_MEMORY)]:
        failure = failure_of_exit(-signal.SIGKILL, memory=memory, user_code=RUNNING)
        assert failure.kind is kind


@pytest.mark.parametrize("is_connecting", [False, True])
@pytest.mark.parametrize(
    ("return_code", "kind"),
    [
        (7, FailureKind.TRAINER_RAISED),
        (-signal.SIGALRM, FailureKind.TRAINER_RAISED),
        (-signal.SIGVTALRM, FailureKind.TRAINER_RAISED),
        (-signal.SIGUSR1, FailureKind.TRAINER_RAISED),
        (-signal.SIGSEGV, FailureKind.KILLED),
        (-signal.SIGTERM, FailureKind.KILLED),
        (-signal.SIGKILL, FailureKind.KILLED),
    ],
)
def test_what_the_users_code_left_behind_is_its_failure_unless_others_may_have_sent_it(
    return_code: int, kind: FailureKind, is_connecting: bool
) -> None:
    failure = failure_of_exit(
        return_code, memory=NOTHING, is_connecting=is_connecting, user_code=HAS_RUN
    )
    assert failure.kind is kind
    assert ("model file:mine.py" in failure.message) == (kind is FailureKind.TRAINER_RAISED)


def test_a_failure_of_megabytes_is_reported_by_its_beginning() -> None:
    failure = Failure(kind=FailureKind.TRAINER_RAISED, message="why: " + "x" * 4_000_000)
    ended = ended_report(failure, go_s=0.0, log_tail="its log")
    assert ended.failure is not None
    assert ended.failure.message.startswith("why: x")
    assert len(ended.failure.message) == 2000
    assert ended.log_tail == "its log"
