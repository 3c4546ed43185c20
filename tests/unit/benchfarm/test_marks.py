"""What a mark says of a step."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import benchfarm
from benchfarm import marks
from benchfarm.marks import Marks, TrainingOver


class Pipe:
    """A pipe and the marks on it."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in os.read(self.read_end, 65536).splitlines()]


class Tensor:
    """One value on a device, or more of them."""

    def __init__(self, *values: float) -> None:
        self._values = values

    def item(self) -> float:
        if len(self._values) != 1:
            raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
        return self._values[0]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.read_end)
    os.close(made.write_end)


def test_marks_are_numbered_from_one_and_say_when(pipe: Pipe) -> None:
    written = Marks(pipe.write_end)
    before_s = time.monotonic()
    written.step(examples=64, loss=0.5, accuracy=0.25)
    written.step()
    first, second = pipe.lines()

    assert before_s <= first.pop("monotonic_s") <= second.pop("monotonic_s") <= time.monotonic()
    assert first == {"mark": 1, "examples": 64, "loss": 0.5, "accuracy": 0.25}
    assert second == {"mark": 2, "examples": None, "loss": None, "accuracy": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (1, 1.0),
        (Tensor(0.5), 0.5),
        (Tensor(math.nan), "nan"),
        (Tensor(1.0, 2.0), None),
        ("abc", None),
        (10**400, None),
        ([1.0], None),
    ],
)
def test_a_loss_is_a_number_or_left_out(pipe: Pipe, value: Any, expected: object) -> None:
    Marks(pipe.write_end).step(loss=value)

    assert pipe.lines()[0]["loss"] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(32.0, 32), (math.nan, None), (math.inf, None), (2**60, None), ("x", None)],
)
def test_examples_are_a_whole_number_or_left_out(pipe: Pipe, value: Any, expected: object) -> None:
    Marks(pipe.write_end).step(examples=value)

    assert pipe.lines()[0]["examples"] == expected


def test_the_script_is_believed_from_its_first_mark_on(pipe: Pipe) -> None:
    written = Marks(pipe.write_end)
    written.hooked_step(loss=1.0)
    written.step(loss=2.0)  # of the same step, which is marked already
    written.hooked_step(loss=3.0)
    written.step(loss=4.0)

    assert [(mark["mark"], mark["loss"]) for mark in pipe.lines()] == [(1, 1.0), (2, 4.0)]


def test_the_last_mark_ends_the_script_and_so_does_every_later_one(pipe: Pipe) -> None:
    written = Marks(pipe.write_end, last_mark=2)
    finished: list[bool] = []
    written.before_end = lambda: finished.append(True)
    written.step()
    for _ in range(3):
        with pytest.raises(TrainingOver) as ended:
            written.step()
        assert ended.value.code == 0

    assert [mark["mark"] for mark in pipe.lines()] == [1, 2]
    assert finished == [True]


def test_a_program_that_is_started_does_not_inherit_the_pipe(pipe: Pipe) -> None:
    os.set_inheritable(pipe.write_end, True)
    Marks(pipe.write_end)

    assert not os.get_inheritable(pipe.write_end)


def test_the_variables_are_taken_out_of_the_environment(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(marks.FD_VARIABLE, str(pipe.write_end))
    monkeypatch.setenv(marks.LAST_MARK_VARIABLE, "1")
    taken = marks.take_from_environment()

    assert taken is not None
    assert not {marks.FD_VARIABLE, marks.LAST_MARK_VARIABLE} & set(os.environ)
    with pytest.raises(TrainingOver):
        taken.step()


@pytest.mark.parametrize("fd", ["", "x", "-1", "999999", str(2**40)])
def test_without_a_descriptor_there_is_no_farm(fd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(marks.FD_VARIABLE, fd)

    assert marks.take_from_environment() is None


def test_a_file_is_no_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "own").open("w") as file:
        monkeypatch.setenv(marks.FD_VARIABLE, str(file.fileno()))

        assert marks.take_from_environment() is None


def test_outside_the_farm_a_step_is_nothing() -> None:
    benchfarm.step(examples=1, loss=2.0)
