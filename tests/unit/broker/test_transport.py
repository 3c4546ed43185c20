"""Which messages reach Celery, and what is left of them."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from farm.broker.transport import Message, own_message

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


def with_part(table: str, key: str, value: object) -> dict[str, Any]:
    message = copy.deepcopy(OURS)
    message[table][key] = value
    return message


def test_a_message_of_ours_keeps_its_task_its_tag_and_its_envelope() -> None:
    own: Any = own_message(OURS, queue="farm.reports")
    assert own["headers"]["task"] == "farm.reports"
    assert own["properties"]["delivery_tag"] == "a tag"
    assert json.loads(base64.b64decode(own["body"]))[0] == [ENVELOPE]


def test_what_celery_would_act_upon_is_left_out() -> None:
    wild = with_part("headers", "eta", "2099-01-01T00:00:00")
    wild["headers"] |= {"expires": [], "timelimit": "x", "stamps": 5, "compression": "zlib"}
    wild["content-type"] = "application/x-python-serialize"
    wild["properties"]["delivery_info"] = {"exchange": "x", "routing_key": "agent.other"}
    wild["body"] = body([ENVELOPE], {"x": 1}, {"callbacks": [5], "chord": 3})
    assert own_message(wild, queue="farm.reports") == own_message(OURS, queue="farm.reports")


@pytest.mark.parametrize(
    "message",
    [
        *(None, 5, "text", [], {}, {"body": "", "headers": {}, "properties": []}),
        with_part("headers", "task", ["farm.reports"]),
        with_part("headers", "task", "celery.chord_unlock"),
        with_part("headers", "id", {}),
        with_part("properties", "delivery_tag", [1]),
        *({**OURS, "body": text} for text in (None, "", "!", body(5), body([], {}, {}))),
        {**OURS, "body": base64.b64encode(b"[" * 100_000).decode()},
        {**OURS, "body": base64.b64encode(b"\xff").decode()},
    ],
)
def test_anything_else_is_not_one_of_ours(message: object) -> None:
    assert own_message(message, queue="farm.reports") is None


def test_celery_gets_the_arguments_alone_and_has_nothing_to_parse() -> None:
    wild = {**OURS, "body": body([ENVELOPE], {"x": 1}, {"callbacks": [5], "chord": 3})}
    message: Any = Message(own_message(wild, queue="farm.reports"))  # type: ignore[arg-type]
    assert message.payload == message.body == ([ENVELOPE], {}, {})
    assert message.content_type is None


def test_a_message_that_is_put_back_is_one_of_ours_again() -> None:
    own = own_message(OURS, queue="farm.reports")
    kept = json.loads(json.dumps(Message(own)._raw))  # type: ignore[arg-type] # as Kombu keeps it
    assert own_message(kept, queue="farm.reports") == own


@pytest.mark.parametrize("text", ["[[1], {}, {}] 5", "[[1], {}, {}", "[[1] {}, {}]", "[[1], {}]"])
def test_what_follows_the_arguments_must_be_json_too(text: str) -> None:
    broken = {**OURS, "body": base64.b64encode(text.encode()).decode()}
    assert own_message(broken, queue="farm.reports") is None
