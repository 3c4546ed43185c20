"""The signals that tell an agent to leave, as events."""

from __future__ import annotations

import signal

from worker_agent.supervisor.events import Post, StopAsked


def post_stop_signals(post: Post) -> None:
    """Let SIGTERM and SIGINT be posted from now on, instead of ending the process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: post(StopAsked(signal_name=signal.Signals(n).name)))
