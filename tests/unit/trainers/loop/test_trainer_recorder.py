"""How step times are kept and sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.messages.trainer_lines import Epoch, Progress, StepKind, Steps, TrainerEvent, read_event
from farm.trainers.loop import recorder as recorder_module
from farm.trainers.loop.recorder import StepRecorder
from farm.trainers.processes.process import EventWriter


class Sent:
    """The agent's end: a file that the events are written to."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor

    def events(self) -> list[TrainerEvent]:
        return [read_event(line) for line in self._path.read_text().splitlines()]


@pytest.fixture
def sent(tmp_path: Path) -> Iterator[Sent]:
    path = tmp_path / "events"
    with path.open("wb") as file:
        yield Sent(path, file.fileno())


@pytest.fixture
def recorder(sent: Sent) -> StepRecorder:
    return StepRecorder(EventWriter(sent.descriptor))


def test_consecutive_steps_of_one_kind_are_one_chunk(recorder: StepRecorder, sent: Sent) -> None:
    for begun_s, kind in enumerate([StepKind.WARMUP] + [StepKind.TIMED] * 2 + [StepKind.PARTIAL]):
        recorder.add(kind, begun_s=float(begun_s), time_s=(begun_s + 1) / 8)
    recorder.flush()
    assert sent.events() == [
        Steps(kind=StepKind.WARMUP, first_step=0, begun_monotonic_s=0.0, times_s=(0.125,)),
        Steps(kind=StepKind.TIMED, first_step=1, begun_monotonic_s=1.0, times_s=(0.25, 0.375)),
        Steps(kind=StepKind.PARTIAL, first_step=3, begun_monotonic_s=3.0, times_s=(0.5,)),
    ]


def test_a_flush_ends_the_chunk_and_sends_nothing_twice(recorder: StepRecorder, sent: Sent) -> None:
    recorder.add(StepKind.TIMED, begun_s=1.0, time_s=0.5)
    recorder.flush()
    recorder.add(StepKind.TIMED, begun_s=9.0, time_s=0.25)
    recorder.flush()
    recorder.flush()
    assert sent.events() == [
        Steps(kind=StepKind.TIMED, first_step=0, begun_monotonic_s=1.0, times_s=(0.5,)),
        Steps(kind=StepKind.TIMED, first_step=1, begun_monotonic_s=9.0, times_s=(0.25,)),
    ]


def test_nothing_is_sent_within_a_second(recorder: StepRecorder, sent: Sent) -> None:
    for _ in range(1000):
        recorder.add(StepKind.TIMED, begun_s=0.0, time_s=0.0)
    assert sent.events() == []
    assert recorder.step_count == 1000


def test_after_a_second_the_steps_and_the_progress_are_sent(
    recorder: StepRecorder, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "SEND_INTERVAL_S", 0.0)
    recorder.add(StepKind.TIMED, begun_s=1.0, time_s=0.5)
    assert sent.events() == [
        Steps(kind=StepKind.TIMED, first_step=0, begun_monotonic_s=1.0, times_s=(0.5,)),
        Progress(step_count=1),
    ]


def test_epochs_shorter_than_a_second_are_not_sent_one_by_one(
    recorder: StepRecorder, sent: Sent
) -> None:
    for number in range(25):
        recorder.add(StepKind.TIMED, begun_s=float(number), time_s=0.01)
        recorder.add_epoch(epoch(number))
    assert sent.events() == []
    recorder.flush()
    kinds = [type(event) for event in sent.events()]
    assert kinds == [Steps, Epoch] * 25


def epoch(number: int) -> Epoch:
    return Epoch(
        epoch=number,
        train_s=0.01,
        step_count=1,
        train_loss=None,
        val_loss=None,
        val_accuracy_ratio=None,
    )
