"""Which messages of a queue are ours, and what is left of them."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from farm.broker.task_message import (
    LONGEST_BYTES,
    read_carried,
    read_task,
    rewritten,
    task_text,
)

QUEUE = "farm.reports"
ENVELOPE = {"version": 1, "message": {}}
NOTHING_ELSE = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def body(*parts: object) -> str:
    return base64.b64encode(json.dumps(parts).encode()).decode()


OURS: dict[str, Any] = {
    "body": body([ENVELOPE], {}, NOTHING_ELSE),
    "content-type": "application/json",
    "content-encoding": "utf-8",
    "headers": {"task": "farm.reports", "id": "an id", "retries": 0, "eta": None},
    "properties": {
        "delivery_tag": "a tag",
        "delivery_info": {"exchange": "", "routing_key": "farm.reports"},
        "body_encoding": "base64",
    },
}


def read(message: object) -> tuple[str, object] | None:
    return read_task(json.dumps(message).encode(), queue=QUEUE)


def test_a_message_has_a_task_and_an_envelope() -> None:
    assert read(OURS) == ("farm.reports", ENVELOPE)
    assert read_task(task_text(QUEUE, "agent.go", 5).encode(), queue=QUEUE) == ("agent.go", 5)


def test_what_celery_would_act_upon_is_left_out() -> None:
    wild = copy.deepcopy(OURS)
    wild["headers"] |= {"eta": "2099-01-01T00:00:00", "expires": [], "timelimit": "x", "stamps": 5}
    wild["headers"]["compression"] = "zlib"
    wild["content-type"] = "application/x-python-serialize"
    wild["properties"] = {"delivery_info": {"exchange": "x", "routing_key": "agent.other"}}
    wild["body"] = body([ENVELOPE], {"x": 1}, {"callbacks": [5], "chord": 3})
    text = rewritten(json.dumps(wild).encode(), queue=QUEUE)
    assert text is not None
    wrote = json.loads(text)
    [[carried], keywords, callbacks] = json.loads(base64.b64decode(wrote["body"]))
    assert (keywords, callbacks) == ({}, {})
    assert read_carried(carried) == ENVELOPE
    ours = json.loads(task_text(QUEUE, "farm.reports", carried))
    for message in (ours, wrote):  # made anew for each
        del message["headers"]["id"], message["properties"]["correlation_id"]
        del message["properties"]["delivery_tag"]
    assert wrote == ours


@pytest.mark.parametrize(
    "message",
    [
        *(None, 5, "text", [], {}, {"body": "", "headers": {}, "properties": []}),
        {**OURS, "headers": []},
        *({**OURS, "headers": {"task": task}} for task in (["farm.reports"], "celery.chord", None)),
        {**OURS, "headers": {"task": "farm." + "x" * 100}},
        *({**OURS, "body": text} for text in (None, 5, "", "!", body(5), body([], {}, {}))),
        *({**OURS, "body": body(args, {}, {})} for args in ({"x": 1}, "x", [1, 2])),
        {**OURS, "body": base64.b64encode(b"[" * 100_000).decode()},
        {**OURS, "body": base64.b64encode(b"\xff").decode()},
    ],
)
def test_anything_else_is_not_one_of_ours(message: object) -> None:
    assert read(message) is None


@pytest.mark.parametrize("text", ["[[1], {}, {}] 5", "[[1], {}, {}", "[[1] {}, {}]", "[[1], {}]"])
def test_what_follows_the_arguments_must_be_json_too(text: str) -> None:
    assert read({**OURS, "body": base64.b64encode(text.encode()).decode()}) is None


def test_what_is_too_long_is_none_of_ours() -> None:
    text = task_text(QUEUE, "farm.reports", ENVELOPE).encode()
    assert read_task(text + b" " * LONGEST_BYTES, queue=QUEUE) is None
