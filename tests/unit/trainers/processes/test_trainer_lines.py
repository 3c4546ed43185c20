import json
import typing

import pytest

from farm.errors import InvalidSpec
from farm.messages.reports import RankEnded, Report
from farm.messages.trainer_lines import (
    CONFIGURATION_FAILURES,
    DatasetSource,
    Epoch,
    Failure,
    FailureKind,
    Progress,
    Ready,
    Started,
    StepKind,
    Steps,
    TrainerEvent,
    TrainerResult,
    UserCode,
    read_event,
    write_event,
)
from farm.values.codec import MAX_DEPTH, to_json

EVENTS: list[TrainerEvent] = [
    Ready(
        import_s=2.5,
        framework="tensorflow 2.21.0",
        dataset=DatasetSource(
            name="digits",
            origin="scikit-learn",
            sha256="00",
            is_synthetic=False,
            train_examples_count=1437,
            test_examples_count=360,
        ),
    ),
    UserCode(name="model file:mine.py", is_running=True),
    Started(parameter_count=10, gradient_bytes=40, connect_s=0.1, first_step_s=0.9),
    Progress(step_count=7),
    Steps(kind=StepKind.WARMUP, first_step=0, begun_monotonic_s=5.5, times_s=(0.5, 0.25)),
    Epoch(epoch=1, train_s=1.5, step_count=3, train_loss=None, val_loss=0.1, val_accuracy_ratio=1),
    TrainerResult(
        timed_step_count=10,
        window_step_count=10,
        timed_window_s=1.0,
        timed_begun_monotonic_s=9.5,
        interface_rx_bytes=1,
        interface_tx_bytes=None,
        payload_rx_bytes=None,
        payload_tx_bytes=None,
        train_loss=0.5,
        val_accuracy_ratio=None,
        peak_resident_bytes=1,
        seed=3,
    ),
    Failure(kind=FailureKind.NOT_A_NUMBER, message="the loss of step 3 is nan\nand more"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_is_one_line_and_is_read_back_equal(event: TrainerEvent) -> None:
    line = write_event(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert read_event(line) == event


def test_every_event_has_an_example_here() -> None:
    assert {type(event) for event in EVENTS} == set(typing.get_args(TrainerEvent))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no json",
        "[]",
        "3",
        "null",
        "{}",
        '{"event": "gossip"}',
        '{"event": []}',
        '{"event": {}}',
        '{"event": "progress"}',
        '{"event": "progress", "step_count": "7"}',
        '{"event": "progress", "step_count": 7, "more": 1}',
        '{"event": "steps", "kind": "timed", "first_step": 0, "begun_monotonic_s": NaN, '
        '"times_s": []}',
        '{"event": "failure", "kind": "bad luck", "message": ""}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(InvalidSpec):
        read_event(line)


def test_half_a_character_does_not_cost_a_failures_message() -> None:
    line = '{"event": "failure", "kind": "trainer_raised", "message": "no file caf\\udce9"}'
    event = read_event(line)
    assert isinstance(event, Failure)
    assert event.message == "no file caf?"


def test_details_are_as_deep_as_a_report_takes_them_or_are_refused_at_once() -> None:
    result = json.loads(write_event(next(e for e in EVENTS if isinstance(e, TrainerResult))))
    result["details"] = {}
    for _ in range(MAX_DEPTH + 1):
        result["details"] = {"deeper": result["details"]}
    read = read_event(json.dumps(result))
    assert isinstance(read, TrainerResult)
    body = to_json(RankEnded(result=read, failure=None, timed_begun_s=0.0, log_tail=""))
    assert isinstance(body, dict)
    Report(number=1, token=1, rank=0, kind="ended", body=body).decoded()
    result["details"] = {"deeper": result["details"]}
    with pytest.raises(InvalidSpec, match="levels"):
        read_event(json.dumps(result))


def test_a_number_that_json_has_not_is_never_written() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_event(
            Epoch(
                epoch=0,
                train_s=float("nan"),
                step_count=1,
                train_loss=None,
                val_loss=None,
                val_accuracy_ratio=None,
            )
        )


def test_what_would_fail_again_anywhere_is_the_configurations_fault() -> None:
    blamed = {kind for kind in FailureKind if Failure(kind=kind, message="").is_of_configuration}
    assert blamed == CONFIGURATION_FAILURES
    machine = {FailureKind.KILLED, FailureKind.PEER_LOST, FailureKind.AGENT_LOST}
    assert not blamed & machine
    assert {FailureKind.OUT_OF_MEMORY, FailureKind.NOT_A_NUMBER} <= blamed


def test_an_event_is_json_that_anybody_can_read() -> None:
    assert json.loads(write_event(Progress(step_count=7))) == {"event": "progress", "step_count": 7}
