"""The end of a rank: its trainers' result, or why one failed, and the report that says so."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import signal
from collections.abc import Sequence

from farm.errors import InvalidSpec
from farm.messages.reports import PeerRtt, RankEnded
from farm.messages.trainer_lines import (
    SCRIPT_TIMES,
    Exchange,
    Failure,
    FailureKind,
    StepProfile,
    TrainerResult,
    UserCode,
)
from farm.statistics import mean
from farm.text.display import byte_count
from farm.values.codec import to_json
from worker_agent.rank.memory_evidence import MemoryEvidence

# What libraries say on standard error when an allocation fails. C++ then aborts; TensorFlow 2.21
# is to raise, but after some operations (oneDNN's Relu among them) uses what it did not get.
_NOT_ALLOCATED = re.compile(r"std::bad_alloc|OOM when allocating tensor[^\n]*")
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# What an operator, a shell or a service manager sends to end a process.
_SENT_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
# What PyTorch's loader raises in a trainer that has lost worker processes; not always how.
_LOST_WORKERS = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (\d+(?:, \d+)*)\) "
    r"(?:is killed by signal: Killed|exited unexpectedly)"
)
_ADVICE = "try a smaller batch per replica, or more memory"
# Of a failure's message, which is shown with its job in every list. The log has the rest.
_SHOWN_CHARACTERS = 2000


def ended_report(
    end: TrainerResult | Failure,
    *,
    go_s: float,
    log_tail: str,
    rtts: tuple[PeerRtt, ...] = (),
) -> RankEnded:
    """Return a rank's last report. The log is of interest only where something went wrong."""
    if isinstance(end, Failure):
        text = end.message
        if len(text) > _SHOWN_CHARACTERS:
            text = f"{text[: _SHOWN_CHARACTERS - 3]}..."
        failure = dataclasses.replace(end, message=text)
        return RankEnded(result=None, failure=failure, timed_begun_s=None, log_tail=log_tail)
    return RankEnded(
        result=end,
        failure=None,
        timed_begun_s=end.timed_begun_monotonic_s - go_s,
        log_tail="",
        rtts=rtts,
    )


def failure_of_exit(
    return_code: int,
    *,
    memory: MemoryEvidence,
    log_tail: str = "",
    is_connecting: bool = False,
    user_code: UserCode | None = None,
) -> Failure:
    """Say why a trainer failed that ended without a result or a reason of its own.

    `return_code` is negative for a signal. A SIGKILL without evidence that memory ran out stays
    unexplained: another process may have sent it, so the machine is to blame. A trainer that leaves
    while it connects (`is_connecting`) has waited in vain for a peer: a watchdog ends it then,
    since the framework's own constructor cannot be interrupted and says nothing.

    `user_code` is the last that was heard of the user's own code, such as a model's file. If that
    code runs, an exit, a crash or a signal is its own failure, which every machine would repeat. If
    it has run, it may have left a timer or a thread behind: an exit is its own failure, too, since
    the connection stands by then, and so is a signal that nobody else sends, such as SIGALRM.
    """
    if return_code >= 0 and user_code is not None:
        return _own_failure(
            user_code, f"ended the process with status {return_code}, as os._exit does"
        )
    if return_code >= 0 and is_connecting:
        return Failure(
            kind=FailureKind.PEER_LOST,
            message=f"trainer could not connect to its peers and left with status {return_code}",
        )
    if return_code >= 0:
        return Failure(
            kind=FailureKind.TRAINER_RAISED,
            message=f"trainer ended with exit status {return_code} and without a result",
        )
    if -return_code == signal.SIGKILL:
        return _failure_of_kill(memory)
    name = _signal_name(-return_code)
    match = _NOT_ALLOCATED.search(log_tail) if -return_code in _CRASHES else None
    if match is not None:
        return Failure(
            kind=FailureKind.OUT_OF_MEMORY,
            message=f"trainer could not allocate memory and was ended by {name}: {match[0]};"
            f" {_ADVICE}",
        )
    is_crash = -return_code in _CRASHES
    is_left_behind = not is_crash and -return_code not in _SENT_BY_OTHERS
    if user_code is not None and (user_code.is_running or is_left_behind):
        how = f"crashed with {name}" if is_crash else f"ended its process with {name}"
        return _own_failure(user_code, how)
    return Failure(kind=FailureKind.KILLED, message=f"trainer was ended by {name}")


def lost_data_workers(failure: Failure) -> tuple[int, ...]:
    """Return the processes that a trainer's failure says have died while they loaded batches."""
    found = _LOST_WORKERS.search(failure.message)
    if found is None or failure.kind is not FailureKind.TRAINER_RAISED:
        return ()
    return tuple(map(int, found[1].split(", ")))


def failure_of_data_workers(failure: Failure, *, memory: MemoryEvidence) -> Failure:
    """Say why a trainer that has lost data workers failed; what `failure` says may not be why."""
    source = _source_of_kill(memory)
    return failure if source is None else _out_of_memory(memory, source=source)


def _own_failure(user_code: UserCode, how: str) -> Failure:
    return Failure(
        kind=FailureKind.TRAINER_RAISED,
        message=f"{user_code.name}: expected its code to return, but it {how}",
    )


def _source_of_kill(memory: MemoryEvidence) -> str | None:
    """Return who says that the kernel killed it for lack of memory; None: nobody."""
    if memory.is_named:
        return "the kernel's log"
    if memory.group_kill_count and memory.is_named is None:
        return "the counter of its control group"
    return None


def _failure_of_kill(memory: MemoryEvidence) -> Failure:
    source = _source_of_kill(memory)
    if source is not None:
        return _out_of_memory(memory, source=source)
    message = "trainer was ended by SIGKILL, sent by a user or a process of its machine"
    if memory.is_named is False:
        message += "; the kernel killed for lack of memory meanwhile, but other processes"
    elif memory.machine_kill_count:
        # On a machine without control groups, and with a log that only root may read.
        message += (
            "; the kernel killed some process for lack of memory meanwhile, and nothing that"
            " the agent may read says whether it was this one"
        )
    return Failure(kind=FailureKind.KILLED, message=message)


def _out_of_memory(memory: MemoryEvidence, *, source: str) -> Failure:
    if memory.limit_bytes is not None:
        ceiling = f"the control group's limit is {byte_count(memory.limit_bytes)}"
        if memory.peak_bytes is not None:
            ceiling += f", its peak was {byte_count(memory.peak_bytes)}"
    elif memory.machine_bytes is not None:
        ceiling = f"the machine has {byte_count(memory.machine_bytes)}"
    else:
        ceiling = "its limit is not known"
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        message=f"killed by the kernel for lack of memory (by {source}): {ceiling}; {_ADVICE}",
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def result_of_ranks(
    results: Sequence[TrainerResult], *, is_synchronous: bool = True
) -> TrainerResult:
    """Return one result for all ranks of an agent: the first rank's, with these values of all.

    Payload bytes, waits and pauses are means; memory and a script's examples are sums. Payload,
    waits and examples are None where one of the ranks does not know its own. Of GPU memory the
    largest that is known counts. Updates are added up unless `is_synchronous`: then each is one of
    all ranks.
    """
    first, *others = results
    if not others:
        return first
    return dataclasses.replace(
        first,
        payload_rx_bytes=_mean_bytes([one.payload_rx_bytes for one in results]),
        payload_tx_bytes=_mean_bytes([one.payload_tx_bytes for one in results]),
        peak_resident_bytes=sum(one.peak_resident_bytes for one in results),
        peak_device_memory_bytes=max(
            (b for one in results if (b := one.peak_device_memory_bytes) is not None), default=None
        ),
        data_wait_s=_mean_of_known([one.data_wait_s for one in results]),
        profile=_profile_of_all(results),
        exchange=_exchange_of_all(results, is_synchronous=is_synchronous),
        details={**first.details, **_script_times(results)},
    )


def _script_times(results: Sequence[TrainerResult]) -> dict[str, object]:
    """Return what the scripts told, as a result's details have it; empty: they are none."""
    try:
        times = [one.script_times for one in results]
    except InvalidSpec:
        return {}  # the server says so of the first
    first = times[0]
    if first is None:
        return {}
    counts = [None if one is None else one.examples_count for one in times]
    waits_s = [None if one is None else one.data_wait_s for one in times]
    pauses_s = [one.pause_s for one in times if one is not None]
    combined = dataclasses.replace(
        first,
        pause_s=math.fsum(pauses_s) / len(pauses_s),
        data_wait_s=_mean_of_known(waits_s),
        examples_count=None if None in counts else sum(filter(None, counts)),
    )
    return {SCRIPT_TIMES: to_json(combined)}


def _exchange_of_all(results: Sequence[TrainerResult], *, is_synchronous: bool) -> Exchange | None:
    """Return what the ranks counted, with the mean times of those that told.

    Updates and their staleness are those of all ranks where each makes its own; None where one has
    not counted them.
    """
    found = [one.exchange for one in results if one.exchange is not None]
    if not found or (len(found) < len(results) and not is_synchronous):
        return None
    updates = [one.update_count for one in found]
    stale = [one.staleness_counts for one in found if one.staleness_counts is not None]
    return Exchange(
        update_count=max(updates) if is_synchronous else sum(updates),
        push_s=_mean_of_known([one.push_s for one in found]),
        pull_s=_mean_of_known([one.pull_s for one in found]),
        staleness_counts=(
            tuple(map(sum, itertools.zip_longest(*stale, fillvalue=0))) if stale else None
        ),
    )


def _profile_of_all(results: Sequence[TrainerResult]) -> StepProfile | None:
    """Return the first rank's with the mean times of all; None where one has none."""
    profiles = [one.profile for one in results if one.profile is not None]
    if len(profiles) < len(results):
        return None
    return dataclasses.replace(
        profiles[0],
        step_time_s=math.fsum(one.step_time_s for one in profiles) / len(profiles),
        compute_s=math.fsum(one.compute_s for one in profiles) / len(profiles),
        communication_s=math.fsum(one.communication_s for one in profiles) / len(profiles),
    )


def _mean_bytes(counts: Sequence[int | None]) -> int | None:
    value = _mean_of_known(counts)
    return None if value is None else round(value)


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a rank does not know its value."""
    return None if None in values else mean(values)
