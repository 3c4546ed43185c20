"""The trainer's descriptors and orders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.messages.trainer_lines import FailureKind, GoLine
from farm.trainers.failures import RankFailed
from farm.trainers.processes.process import Orders
from farm.trainers.tensorflow.gang import tf_config


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


def test_lines_are_read_whole_however_they_arrive(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    orders = Orders(reading)
    os.write(writing, b"fir")
    os.write(writing, b"st\nsecond\nthi")
    os.close(writing)
    assert [orders.read_line() for _ in range(3)] == ["first", "second", None]


def test_a_line_without_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (4 << 20))
    with path.open("rb", buffering=0) as file:
        assert Orders(file.fileno()).read_line() is None
        assert file.tell() < 2 << 20


def test_nothing_that_is_printed_gets_between_the_events() -> None:
    script = (
        "import os, subprocess; from farm.trainers.processes.process import take_stdout;"
        "fd = take_stdout();"
        "print('printed', flush=True); subprocess.run(['echo', 'a child']); os.write(fd, b'event')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "event"
    assert done.stderr.split() == ["printed", "a", "child"]


def test_orders_are_read_by_nobody_else() -> None:
    script = (
        "import os, subprocess; from farm.trainers.processes.process import Orders, take_stdin;"
        "orders = Orders(take_stdin());"
        "print(repr(os.read(0, 9)), repr(subprocess.check_output('cat')), orders.read_line());"
        "input('name? ')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input="an order\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.startswith("b'' b'' an order\n")
    assert "EOFError: EOF when reading a line" in done.stderr


def test_a_go_that_never_comes_misses_the_rendezvous() -> None:
    with pytest.raises(RankFailed) as caught:
        Orders(0).next_line(timeout_s=0.0)
    assert caught.value.kind is FailureKind.RENDEZVOUS


def test_tensorflow_is_told_the_cluster_and_its_own_place() -> None:
    go = GoLine(cluster={"worker": ("a:1", "b:2")}, task_index=1)
    assert tf_config(go, "worker") == (
        '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}'
    )
