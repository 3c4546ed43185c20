"""Rate-limited log lines for refused messages."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

_LOG_EVERY_S = 60.0
_MOST_SENDERS = 1000
_OTHERS = "others"


class RefusalCounts:
    """Counts refused messages by sender, and logs each sender at once, then once a minute."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._logged_at: dict[str, float] = {}

    def add(self, sender: str, reason: str) -> bool:
        """Count a refused message; True if it was logged. `sender` is unproven."""
        if sender not in self._counts and len(self._counts) >= _MOST_SENDERS:
            sender = _OTHERS
        self._counts[sender] = self._counts.get(sender, 0) + 1
        now = time.monotonic()
        if now - self._logged_at.get(sender, float("-inf")) < _LOG_EVERY_S:
            return False
        self._logged_at[sender] = now
        extra = {"agent_id": sender, "refused_count": self._counts[sender]}
        logger.warning("messages refused: %s", reason, extra=extra)
        return True

    def count(self, sender: str) -> int:
        """Return how many of that sender's were refused."""
        return self._counts.get(sender, 0)
