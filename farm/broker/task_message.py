"""Writes Celery tasks into Kombu's queues in Redis, and parses them strictly.

Any Celery worker can read these messages. Celery's own `send_task` creates a dozen objects for each
message and encodes it three times. That is too slow for an agent, whose machine is measured, and
for a server that answers every message of a thousand agents.
"""

from __future__ import annotations

import base64
import json
import uuid

_TASK_PREFIXES = ("farm.", "agent.")
_LONGEST_TASK = 100
# Limits of a message in Redis, which itself accepts 512 MB. Nested brackets need 25 times their
# bytes when they are parsed, so a long message could make its reader run out of memory. A report
# contains at most one long line of a trainer (4 MiB) or a few short ones. Signing and encoding make
# it up to four times as long. A heartbeat has some thousand bytes.
LONGEST_BYTES = 32 * 2**20
_LONGEST_OF = {"farm.heartbeats": 256 * 1024}


def task_text(queue: str, task: str, envelope: object) -> str:
    """Return what to put at the head of `queue` so that `task` is called with `envelope`."""
    body = f"[[{json.dumps(envelope, separators=(',', ':'))}], {{}}, {{}}]"
    task_id = str(uuid.uuid4())
    message = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": task, "id": task_id, "argsrepr": "..."},
        "properties": {
            "body_encoding": "base64",
            "correlation_id": task_id,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_mode": 2,
            "delivery_tag": str(uuid.uuid4()),
            "priority": 0,
        },
    }
    return json.dumps(message, separators=(",", ":"))


def is_too_long(text: bytes | str, *, queue: str) -> bool:
    """Whether a message that lay in `queue` is too long to be even parsed."""
    return len(text) > _LONGEST_OF.get(queue, LONGEST_BYTES)


def read_task(text: bytes | str, *, queue: str) -> tuple[str, object] | None:
    """Return task and argument of a message from `queue`, or None if it is not one of ours.

    Ours have one argument. Keywords, and what else Celery would act upon, are passed over.
    """
    outer = _outer(text, queue=queue)
    if outer is None:
        return None
    task, body = outer
    try:
        return task, _argument(body)
    except ValueError:
        return None


def rewritten(text: bytes, *, queue: str) -> str | None:
    """Return our message with its body as one string, for `read_carried`; None: not ours.

    Celery parses each body again, deeper in the stack. A body that is nested as deeply as we can
    parse would end its worker there. It can always parse a text, and the body is parsed only once.
    """
    outer = _outer(text, queue=queue)
    return None if outer is None else task_text(queue, *outer)


def read_carried(argument: object) -> object:
    """Return the envelope that a task of Celery's was called with.

    Raises:
        ValueError: it is not one of ours.
    """
    if not isinstance(argument, str):
        return argument
    return _argument(argument)


def _outer(text: bytes | str, *, queue: str) -> tuple[str, str] | None:
    """Return the task and the JSON of the body."""
    if is_too_long(text, queue=queue):
        return None
    try:
        message = json.loads(text)
        task = message["headers"]["task"]
        body = base64.b64decode(message["body"], validate=True).decode()
    except (TypeError, KeyError, ValueError, RecursionError):
        return None
    if not isinstance(task, str) or not task.startswith(_TASK_PREFIXES):
        return None
    return (task, body) if len(task) <= _LONGEST_TASK else None


def _argument(body: str) -> object:
    """Return the one argument of a body: arguments, keywords and callbacks. Raises ValueError."""
    try:
        args, _, _ = json.loads(body)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(args, list) or len(args) != 1:
        raise ValueError("a body has one argument")
    return args[0]
