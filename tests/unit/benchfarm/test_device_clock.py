"""Marks of a script that trains on a GPU, whose events a clock stands in for.

The device does what it was given one after the other; the host gives it all at once.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from benchfarm.marks import Marks, TrainingOver

STEP_S = 0.03


class Device:
    """What `torch.cuda` is of PyTorch. `free_s`: when it has done all that it was given."""

    def __init__(self) -> None:
        self.free_s = 0.0
        self.wait_count = 0
        self.refused: set[str] = set()

    def is_initialized(self) -> bool:
        return True

    def give(self, length_s: float) -> None:
        self.free_s = max(self.free_s, time.monotonic()) + length_s

    def wait(self, until_s: float) -> None:
        self.wait_count += 1
        while time.monotonic() < until_s:
            pass

    def synchronize(self) -> None:
        self.wait(self.free_s)

    def check(self, what: str) -> None:
        if what in self.refused:
            raise RuntimeError(f"CUDA error: {what}")

    def Event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        device, event = self, SimpleNamespace(at_s=0.0)

        def record() -> None:
            device.check("record")
            event.at_s = max(device.free_s, time.monotonic())

        def elapsed_time(later: Any) -> float:
            device.check("elapsed_time")
            return float(later.at_s - event.at_s) * 1000

        event.record, event.elapsed_time = record, elapsed_time
        event.query = lambda: time.monotonic() >= event.at_s
        event.synchronize = lambda: device.wait(event.at_s)
        return event


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))
    return made


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


def lines(read_end: int) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in os.read(read_end, 65536).splitlines()]
    except BlockingIOError:
        return []


def lengths_s(marks: list[dict[str, Any]]) -> list[float]:
    ends_s = [mark["monotonic_s"] for mark in marks]
    return [later - earlier for earlier, later in itertools.pairwise(ends_s)]


def test_a_step_is_as_long_as_the_device_takes_and_no_mark_waits(
    device: Device, ends: tuple[int, int]
) -> None:
    read_end, write_end = ends
    written = Marks(write_end, last_mark=5)
    written.hooked_step()  # once, the clock waits for the device
    device.wait_count = 0
    device.give(1.0)  # so that the host is ahead, however slow it is
    for _ in range(3):
        device.give(STEP_S)
        written.hooked_step()
    assert device.wait_count == 0
    device.give(STEP_S)
    with pytest.raises(TrainingOver):
        written.hooked_step()
    marks = lines(read_end)
    assert [mark["mark"] for mark in marks] == [1, 2, 3, 4, 5]
    assert lengths_s(marks) == pytest.approx([1.0 + STEP_S, *[STEP_S] * 3], rel=0.1)


def test_what_an_epoch_came_to_stays_behind_its_steps(
    device: Device, ends: tuple[int, int]
) -> None:
    read_end, write_end = ends
    written = Marks(write_end)
    device.give(STEP_S)
    written.hooked_step()
    written.end_epoch(loss=0.5, val_loss=None, accuracy=0.9)
    written.begin_step()
    device.give(STEP_S)
    written.hooked_step()
    device.synchronize()
    written.hooked_step()
    device.synchronize()
    found = lines(read_end)
    assert [next(iter(line)) for line in found][:3] == ["mark", "epoch", "mark"]
    # The host began the next step before the device had done the one before.
    assert found[0]["monotonic_s"] <= found[2]["begun_s"] < found[2]["monotonic_s"]


@pytest.mark.parametrize("refused", ["record", "elapsed_time"])
def test_a_device_that_gives_no_times_leaves_the_hosts(
    refused: str, device: Device, ends: tuple[int, int]
) -> None:
    read_end, write_end = ends
    written = Marks(write_end, last_mark=4)
    written.hooked_step()
    written.hooked_step()
    device.refused.add(refused)
    written.hooked_step()
    with pytest.raises(TrainingOver):
        written.hooked_step()
    marks = lines(read_end)
    assert [mark["mark"] for mark in marks] == [1, 2, 3, 4]
    assert all(length_s > 0 for length_s in lengths_s(marks))
