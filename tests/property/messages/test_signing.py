"""Whatever a stranger puts into the broker: nothing is taken for signed, and nothing breaks."""

from __future__ import annotations

import base64
import json

from hypothesis import assume, example, given
from hypothesis import strategies as st

from farm.broker.task_message import read_carried, read_task, rewritten
from farm.errors import InvalidSpec
from farm.messages.agent_keys import derive_key
from farm.messages.envelope import WIRE_VERSION
from farm.messages.signing import MessageDirection, claimed_agent, sign, verified

KEY = derive_key(bytes(32), "vm-1", 1)
KINDS = ("farm.reports", "farm.heartbeat", "agent.go", "agent.start_rank")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.dictionaries(st.text(max_size=8), JSON, max_size=5).map(
    lambda message: json.loads(json.dumps(message).replace("NaN", "0").replace("Infinity", "1"))
)
# Shaped as ours are, with anything in each place.
SHAPED = st.fixed_dictionaries(
    {
        "version": st.just(WIRE_VERSION) | JSON,
        "agent_id": st.just("vm-1") | JSON,
        "signed": JSON | st.text(),
    },
    optional={
        "signatures": JSON
        | st.dictionaries(st.sampled_from(["1", "2", "", "x"]), st.text(max_size=70), max_size=6),
        "message": JSON,
    },
)


UNSIGNED = {"version": WIRE_VERSION, "agent_id": "vm-1", "signed": "{}"}


def accepted(envelope: object) -> bool:
    for direction in MessageDirection:
        for kind in KINDS:
            try:
                verified(envelope, [KEY], agent_id="vm-1", direction=direction, kind=kind)
            except InvalidSpec:
                continue
            else:
                return True
    return False


@given(JSON | SHAPED)
@example(
    {"version": WIRE_VERSION, "agent_id": "vm-1", "signed": "\ud800", "signatures": {"1": "\u00e9"}}
)
@example(
    {"version": WIRE_VERSION, "agent_id": "vm-1", "signed": "{}", "signatures": {"1": "0" * 64}}
)
@example({"version": WIRE_VERSION, "agent_id": "vm-1", "signed": "{}", "signatures": {"1": None}})
def test_nothing_that_was_not_signed_is_accepted(envelope: object) -> None:
    claimed_agent(envelope)
    assert not accepted(envelope)


@given(MESSAGES, st.sampled_from(MessageDirection), st.sampled_from(KINDS))
def test_what_was_signed_comes_out_and_only_for_what_it_was_meant(
    message: dict[str, object], direction: MessageDirection, kind: str
) -> None:
    plain = {"version": WIRE_VERSION, "message": message}
    envelope = sign(plain, [KEY], agent_id="vm-1", direction=direction, kind=kind)
    for other_direction in MessageDirection:
        for other_kind in KINDS:
            try:
                found = verified(
                    envelope, [KEY], agent_id="vm-1", direction=other_direction, kind=other_kind
                )
            except InvalidSpec:
                assert (other_direction, other_kind) != (direction, kind)
            else:
                assert (other_direction, other_kind) == (direction, kind)
                assert found == plain


@given(MESSAGES, st.data())
def test_a_signed_message_with_any_place_changed_is_refused(
    message: dict[str, object], data: st.DataObject
) -> None:
    plain = {"version": WIRE_VERSION, "message": message}
    direction, kind = MessageDirection.TO_SERVER, "farm.reports"
    envelope = sign(plain, [KEY], agent_id="vm-1", direction=direction, kind=kind)
    place = data.draw(st.sampled_from(sorted(envelope)))
    value = data.draw(JSON | st.text())
    assume(value != envelope[place])
    assert not accepted({**envelope, place: value})


@given(st.binary(max_size=200) | st.text().map(str.encode))
@example(b"[" * 100_000)
@example(b'{"body": ' + b"9" * 5000 + b"}")
@example(b'{"body": "\\ud800", "headers": {}, "properties": {}}')
@example(b"\xef\xbb\xbf{}")
def test_any_bytes_in_the_queue_are_dropped_or_refused(raw: bytes) -> None:
    read = read_task(raw, queue="farm.reports")
    assert read is None or not accepted(read[1])


# What Kombu puts around a body, with anything in each place.
BODIES = st.binary(max_size=40) | st.builds(
    lambda args, rest: json.dumps([args, *rest]).encode(), JSON, st.lists(JSON, max_size=3)
)
ENCLOSED = st.fixed_dictionaries(
    {
        "body": BODIES.map(lambda raw: base64.b64encode(raw).decode()) | JSON,
        "headers": st.fixed_dictionaries({"task": st.sampled_from(KINDS) | JSON, "id": JSON})
        | JSON,
        "properties": st.fixed_dictionaries({"delivery_tag": st.text() | JSON}) | JSON,
    }
)


def enclosed(body: bytes) -> dict[str, object]:
    headers, properties = {"task": KINDS[0], "id": "x"}, {"delivery_tag": "y"}
    text = base64.b64encode(body).decode()
    return {"body": text, "headers": headers, "properties": properties}


@given(ENCLOSED)
@example(enclosed(b"[[1], {}, {}]"))
@example(enclosed(b"[[" + b"[" * 100_000))
@example(enclosed(b"[[" + b"9" * 5000 + b"], {}, {}]"))
@example(enclosed(b"[[NaN], {}, {}]"))
@example(enclosed(b"[[1], {}, {}] trailing"))
@example(enclosed(b"[[1]], {}, {}]"))
@example(enclosed(b'[["\\ud800"], {}, {}]'))
@example(enclosed(b"[[1], {}, {}, []]"))
def test_any_body_is_dropped_or_kept_as_one_argument_that_nobody_has_signed(
    message: dict[str, object],
) -> None:
    text = json.dumps(message).encode()
    read = read_task(text, queue="farm.reports")
    if read is None:
        return
    assert not accepted(read[1])
    again = rewritten(text, queue="farm.reports")
    assert again is not None
    carried = read_task(again, queue="farm.reports")
    assert carried is not None
    assert json.dumps(read_carried(carried[1])) == json.dumps(read[1])
