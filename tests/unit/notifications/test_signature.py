"""Signatures of messages, as the documents verify them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from farm.notifications.events import make_secret
from farm.notifications.webhook import signature

PAGE = Path(__file__).parents[3] / "docs" / "notifications.md"


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of its specification."""
    found = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp_s=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_documented_code_tells_ours_from_others() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102
    is_ours = names["is_ours"]
    secret, body, now_s = make_secret(), b"{}", int(time.time())

    def headers(timestamp_s: int) -> dict[str, str]:
        signed = signature(secret, message_id="msg_1", timestamp_s=timestamp_s, body=body)
        return {
            "webhook-id": "msg_1",
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": signed,
        }

    good = headers(now_s)
    assert is_ours(secret, good, body)
    assert not is_ours(secret, good, b"{ }")
    assert not is_ours(make_secret(), good, body)
    assert not is_ours(secret, {**good, "webhook-timestamp": str(now_s + 1)}, body)
    assert not is_ours(secret, headers(now_s - 3600), body)
