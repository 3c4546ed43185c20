"""Set up logging for a process: one line an event on standard error, its ids at the end.

Secrets are kept out where messages are made; a URL is logged only through `farm.broker.url.redact`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from farm.processes.token_bucket import TokenBucket

# What every LogRecord carries; everything else came through `extra` and is shown.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OF_A_RANK = ("job_id", "attempt_id", "rank")
_log_ids: dict[str, object] = {}
# Of one place in the code, from WARNING on. A farm of a thousand agents may lose them all at once,
# and says so of each.
LINES_AT_ONCE, LINES_A_MINUTE = 1000, 60.0
TRACEBACKS_AT_ONCE, TRACEBACKS_A_MINUTE = 10, 6.0
# These report every reconnection, message or refusal at INFO.
_CHATTY = (
    *("alembic", "celery", "kombu", "amqp", "redis", "werkzeug", "flask-limiter"),
    # And each request with its whole URL, which may hold a token.
    *("httpx", "httpcore"),
)


class LogBound(logging.Filter):
    """Rate-limits warnings and errors from each place in the code, so that no loop fills a disk.

    The first `LINES_AT_ONCE` lines of a place are written, and then `LINES_A_MINUTE`; a line after
    a gap says how many were left out. Beyond `TRACEBACKS_AT_ONCE` and `TRACEBACKS_A_MINUTE` a line
    comes without its traceback.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Take a line, or count it where its place in the source logged too many of late."""
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            place = self._places.setdefault((record.pathname, record.lineno), _Place())
            now_s = self._clock()
            if not _takes(place.lines, now_s):
                place.left_out += 1
                return False
            if record.exc_info and not _takes(place.tracebacks, now_s):
                record.msg = f"{record.getMessage()} ({_last_words(record)})"
                record.args, record.exc_info, record.exc_text = (), None, None
            if place.left_out:
                record.msg = f"{record.getMessage()} ({place.left_out} lines like it left out)"
                record.args = ()
                place.left_out = 0
        return True


class _Place:
    """A place in the code that logs."""

    def __init__(self) -> None:
        self.lines = TokenBucket(LINES_AT_ONCE, LINES_A_MINUTE)
        self.tracebacks = TokenBucket(TRACEBACKS_AT_ONCE, TRACEBACKS_A_MINUTE)
        self.left_out = 0


def _takes(bucket: TokenBucket, now_s: float) -> bool:
    if bucket.left(now_s) < 1.0:
        return False
    bucket.take(1.0, now_s)
    return True


def _last_words(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    try:
        message = str(error)
    except Exception:  # an exception of a user's own may not be able to say what it is
        message = "the error cannot be formatted"
    return f"{type(error).__name__}: {message}"[:300]


class _LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record).replace("\n", " ")
        # Some of it was said by others: nobody writes lines of this log but this process.
        ids = " ".join(f"{key}={_on_a_line(value)}" for key, value in _extra(record).items())
        return f"{line} [{ids}]" if ids else line


def _on_a_line(value: object) -> str:
    return "".join(c if c.isprintable() else " " for c in str(value))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(level: str = "INFO", *, form: str = "text") -> None:
    """Send this process's log to standard error, replacing earlier handlers.

    `form`: `text` or `json`, in any case.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LogBound())
    handler.setFormatter(_JsonFormatter() if form.upper() == "JSON" else _LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def set_log_ids(**ids: object) -> None:
    """Add these ids to every later log line of this process, replacing those set before.

    Such as the rank that an agent serves. What a line's own `extra` says comes first; one that
    speaks of another attempt is not of the rank that stands.
    """
    _log_ids.clear()
    _log_ids.update(ids)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _OWN}
    attempt_id = own.get("attempt_id", _log_ids.get("attempt_id"))
    if attempt_id == _log_ids.get("attempt_id"):
        return {**_log_ids, **own}
    return {**{k: v for k, v in _log_ids.items() if k not in _OF_A_RANK}, **own}
