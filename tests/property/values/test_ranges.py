"""Every number of every message from an agent has a range, and nothing beyond it is taken."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from farm.errors import InvalidSpec
from farm.messages.agents import Heartbeat
from farm.messages.reports import LONGEST_LOG_PART_CHARACTERS, REPORTS, Report, ReportBatch
from farm.messages.trainer_lines import Failure, TrainerResult
from farm.values.codec import from_json
from farm.values.ranges import Range
from tests.message_numbers import example, number_fields, replaced

KINDS: list[type] = [*REPORTS.values(), Heartbeat, ReportBatch]
FIELDS = [(kind, field) for kind in KINDS for field in number_fields(kind)]


def beyond(bound: Range) -> st.SearchStrategy[float]:
    """Finite numbers that the range does not take."""
    finite = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
    return finite.filter(lambda number: not bound.takes(number))


def test_the_messages_have_as_many_numbers_as_it_takes_to_believe_this_test() -> None:
    assert len(FIELDS) > 80


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_message_is_taken(kind: type) -> None:
    from_json(kind, json.loads(json.dumps(example(kind))))


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_declares_its_range(kind: type) -> None:
    for field in number_fields(kind):
        assert field.bound is not None, field.name
        if field.name.endswith("_ratio"):
            assert field.bound.high <= 1.3, field.name


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_is_taken_that_nothing_can_measure(kind: type) -> None:
    for field in number_fields(kind):
        name = next(step for step in reversed(field.path) if isinstance(step, str))
        for value in (1.7e308, -1.7e308, math.nan, math.inf, -math.inf, 10**400):
            with pytest.raises(InvalidSpec, match=name):
                from_json(kind, replaced(example(kind), field.path, value))


@given(st.data())
def test_a_number_is_taken_within_its_range_and_not_beyond(data: st.DataObject) -> None:
    kind, field = data.draw(st.sampled_from(FIELDS))
    assert field.bound is not None
    number = data.draw(beyond(field.bound))
    assume(field.number is float or isinstance(number, int))
    with pytest.raises(InvalidSpec):
        from_json(kind, replaced(example(kind), field.path, number))
    for end in (field.bound.low, field.bound.high):
        from_json(kind, replaced(example(kind), field.path, field.number(end)))


@pytest.mark.parametrize("time_s", [0.0, -1.0, 5e-324, 1e-10, 1.1e9])
def test_no_step_takes_a_time_that_no_clock_measures(time_s: float) -> None:
    steps = replaced(example(REPORTS["steps"]), ("times_s", 0), time_s)
    with pytest.raises(InvalidSpec, match=r"^steps.times_s\[0\]: expected a number from 1e-09"):
        Report(number=1, token=1, rank=0, kind="steps", body=steps).decoded()


@pytest.mark.parametrize(
    "details",
    [
        {"window_training_s": 1e300},
        {"window_training_s": -1.0},
        {"window_cpu_ratio": 50.0},
        {"window_training_s": "long"},
        {"timed_parts": [{"begin_s": 0.0, "end_s": 1e300}]},
        {"weights_sum": 1e300},
        {"deep": [{"er": -1e300}]},
    ],
)
def test_what_a_result_says_beside_its_fields_is_held_to_ranges_too(
    details: dict[str, object],
) -> None:
    body: dict[str, object] = {
        "result": {**example(TrainerResult), "details": details},
        "failure": None,
        "timed_begun_s": 0.0,
        "log_tail": "",
    }
    with pytest.raises(InvalidSpec):
        Report(number=1, token=1, rank=0, kind="ended", body=body).decoded()


def test_texts_lists_and_tables_are_bounded() -> None:
    shaped, samples = example(REPORTS["shaped"]), example(REPORTS["samples"])
    ended = example(REPORTS["ended"])
    many = {f"extra{number}": 1.0 for number in range(401)}
    too_long = [
        (REPORTS["shaped"], replaced(shaped, ("loaded_rtt_unknown",), "x" * 8001)),
        (REPORTS["shaped"], replaced(shaped, ("rtts",), shaped["rtts"] * 4097)),
        (REPORTS["samples"], replaced(samples, ("samples", 0, "extra"), many)),
        (REPORTS["samples"], replaced(samples, ("samples", 0, "extra"), {"x" * 101: 1.0})),
        (REPORTS["ended"], replaced(ended, ("log_tail",), "x" * (LONGEST_LOG_PART_CHARACTERS + 1))),
        (Failure, {"kind": "killed", "message": "x" * 8001}),
    ]
    for kind, message in too_long:
        with pytest.raises(InvalidSpec, match="at most"):
            from_json(kind, message)
