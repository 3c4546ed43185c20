"""Signatures of messages, as the documents verify them."""

from __future__ import annotations

import re
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
    secret, body = make_secret(), b"{}"
    signed = signature(secret, message_id="msg_1", timestamp_s=7, body=body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "7", "webhook-signature": signed}
    assert names["is_ours"](secret, headers, body)
    assert not names["is_ours"](secret, headers, b"{ }")
    assert not names["is_ours"](make_secret(), headers, body)
    assert not names["is_ours"](secret, {**headers, "webhook-timestamp": "8"}, body)
