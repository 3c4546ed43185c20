import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farm.configuration.spec import JobSpec
from farm.errors import InvalidSpec
from farm.messages.agents import Heartbeat
from farm.messages.commands import COMMANDS
from farm.messages.envelope import unseal
from farm.messages.reports import REPORTS, ReportBatch, Sample, Samples
from farm.messages.trainer_lines import TrainerResult, read_event
from farm.values.codec import canonical_json, from_json

KINDS: list[type] = [*COMMANDS.values(), *REPORTS.values(), Heartbeat, ReportBatch, JobSpec]
ANY_TEXT = st.text(st.characters(), max_size=5)  # NUL and halves of surrogate pairs, too
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=64)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
RATES = st.none() | st.floats(0.0, 1e15)
SAMPLES = st.builds(
    Sample,
    tick=st.integers(0, 10**6),
    cpu_ratio=st.none() | st.floats(0.0, 1.3),
    memory_used_bytes=st.none() | st.integers(0, 2**60),
    net_rx_bytes_per_s=RATES,
    extra=st.dictionaries(TEXT, st.floats(1e-9, 1.3), max_size=3),
)


def is_refused(kind: type, data: object) -> bool:
    """Whether `data` is refused; any other error passes through and fails the test."""
    try:
        from_json(kind, data)
    except InvalidSpec:
        return True
    return False


def known_fields(kind: type) -> st.SearchStrategy[dict[str, object]]:
    names = list(kind.__dataclass_fields__)  # type: ignore[attr-defined] # all are dataclasses
    return st.dictionaries(st.sampled_from(names), JSON)


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), JSON)))
def test_any_json_is_a_value_or_is_refused(case: tuple[type, object]) -> None:
    is_refused(*case)


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), known_fields(kind))))
def test_any_json_in_fields_that_exist_is_a_value_or_is_refused(case: tuple[type, object]) -> None:
    kind, data = case
    if not is_refused(kind, data):
        value: object = from_json(kind, data)
        assert from_json(kind, json.loads(canonical_json(value))) == value


@given(JSON)
@example({"version": 1, "message": {"token": 10**400, "reason": ""}})
def test_any_json_as_an_envelope_is_a_message_or_is_refused(data: object) -> None:
    for kind in KINDS:
        try:
            unseal(kind, data)
        except InvalidSpec:
            continue


@given(st.text() | JSON.map(json.dumps))
def test_any_text_is_a_trainers_line_or_is_refused(line: str) -> None:
    try:
        read_event(line)
    except InvalidSpec:
        return
    assert json.loads(line)["event"]


@given(st.builds(Samples, samples=st.lists(SAMPLES, max_size=5).map(tuple)))
def test_samples_survive_json_to_the_last_bit(samples: Samples) -> None:
    assert from_json(Samples, json.loads(canonical_json(samples))) == samples


@given(st.dictionaries(ANY_TEXT, JSON, max_size=3))
@example({"a\0": {"caf\udce9": ["\0", "\udce9"]}})
def test_whatever_free_json_is_taken_can_be_stored_and_read_again(body: dict[str, object]) -> None:
    if not is_refused(dict[str, object], body):
        stored = from_json(dict[str, object], body)
        text = json.dumps(stored, ensure_ascii=False)
        assert "\\u0000" not in text
        assert text.encode()
        assert from_json(dict[str, object], json.loads(text)) == stored


@given(st.dictionaries(TEXT, st.none() | TEXT | st.lists(st.floats(-1e9, 1e9)), max_size=3))
def test_free_json_that_a_database_takes_is_read_as_it_is(body: dict[str, object]) -> None:
    assert from_json(dict[str, object], body) == body


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30])
def test_no_value_that_a_database_refuses_hides_in_free_json(value: object) -> None:
    fields = {
        "timed_step_count": 1,
        "window_step_count": 1,
        "timed_window_s": 1.0,
        "timed_begun_monotonic_s": 1.0,
        "interface_rx_bytes": None,
        "interface_tx_bytes": None,
        "payload_rx_bytes": None,
        "payload_tx_bytes": None,
        "train_loss": None,
        "val_accuracy_ratio": None,
        "peak_resident_bytes": 1,
        "seed": 0,
    }
    assert not is_refused(TrainerResult, {**fields, "details": {"a": [1.5]}})
    assert is_refused(TrainerResult, {**fields, "details": {"a": [value]}})
