"""A Celery task as it lies in one of Kombu's queues in Redis, written without either of them.

Celery's own `send_task` makes a dozen objects for every message and encodes it three times, which
costs ten times what writing it down does: for an agent, whose machine is measured, and for a server
that answers every message of a thousand of them. What is written here any Celery worker reads.
"""

from __future__ import annotations

import base64
import json
import uuid


def task_message(
    queue: str, task: str, body: str, *, task_id: str, delivery_tag: str
) -> dict[str, object]:
    """Return the table that Kombu keeps; `body`: the JSON of arguments, keywords and callbacks."""
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": task, "id": task_id, "argsrepr": "..."},
        "properties": {
            "body_encoding": "base64",
            "correlation_id": task_id,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_mode": 2,
            "delivery_tag": delivery_tag,
            "priority": 0,
        },
    }


def task_text(queue: str, task: str, envelope: dict[str, object]) -> str:
    """Return what to put at the head of `queue` so that `task` is called with `envelope`."""
    body = f"[[{json.dumps(envelope, separators=(',', ':'))}], {{}}, {{}}]"
    message = task_message(
        queue, task, body, task_id=str(uuid.uuid4()), delivery_tag=str(uuid.uuid4())
    )
    return json.dumps(message, separators=(",", ":"))
