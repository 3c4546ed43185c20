"""Whom the kernel's log names, and what it cannot tell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker_agent.rank.memory_evidence import KernelLog

OF_GROUP = "3,901,5000,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:323kB\n"
OF_MACHINE = "3,902,5001,-;Out of memory: Killed process 4712 (python) total-vm:323kB\n"
DUMP = "6,900,4999,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4713,uid=0\n"
# Facility 1: a program wrote it.
FORGED = "12,903,5002,-;Out of memory: Killed process 4714 (python) total-vm:323kB\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text("3,1,2,-;Out of memory: Killed process 4710 (python) total-vm:323kB\n")
    return path


@pytest.fixture
def log(path: Path) -> Iterator[KernelLog]:
    log = KernelLog(path)
    yield log
    log.close()


def say(path: Path, *records: str) -> None:
    with path.open("a") as file:
        file.writelines(records)


@pytest.mark.parametrize(("record", "pid"), [(OF_GROUP, 4711), (OF_MACHINE, 4712)])
def test_who_is_named_was_killed(log: KernelLog, path: Path, record: str, pid: int) -> None:
    say(path, DUMP, record)
    assert log.has_killed(pid) is True


def test_a_log_that_names_only_others_speaks_against_it(log: KernelLog, path: Path) -> None:
    say(path, OF_GROUP)
    assert log.has_killed(4712) is False


def test_a_log_without_a_name_is_no_evidence_either_way(log: KernelLog, path: Path) -> None:
    say(path, DUMP)
    assert log.has_killed(4711) is None


def test_what_was_said_before_does_not_count(log: KernelLog) -> None:
    assert log.has_killed(4710) is None


def test_what_a_program_wrote_into_the_log_does_not_count(log: KernelLog, path: Path) -> None:
    say(path, FORGED)
    assert log.has_killed(4714) is None


@pytest.mark.parametrize("path", [Path("/nowhere/kmsg"), None])
def test_a_log_that_may_not_be_read_tells_nothing(path: Path | None) -> None:
    log = KernelLog(path)
    assert log.has_killed(1) is None
    log.close()


def test_a_log_that_cannot_be_read_after_all_tells_nothing(tmp_path: Path) -> None:
    log = KernelLog(tmp_path)  # a folder can be opened, and not read
    assert log.has_killed(4711) is None
    assert log.has_killed(4711) is None


def test_a_log_whose_end_cannot_be_found_tells_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    log = KernelLog(tmp_path / "kmsg")
    with pytest.raises(OSError, match="No such device"):  # nobody reads it
        os.open(tmp_path / "kmsg", os.O_WRONLY | os.O_NONBLOCK)
    assert log.has_killed(4711) is None
