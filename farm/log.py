"""Set up logging for a process: one line an event on standard error, its ids at the end.

Secrets are kept out where messages are made; a URL is logged only through `farm.broker_url.redact`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

# What every LogRecord carries; everything else came through `extra` and is shown.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OF_A_RANK = ("job_id", "attempt_id", "rank")
_standing: dict[str, object] = {}
# These report every reconnection, message or refusal at INFO.
_CHATTY = ("alembic", "celery", "kombu", "amqp", "redis", "werkzeug", "flask-limiter")


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


def configure(level: str = "INFO", *, json: bool = False) -> None:
    """Send this process's log to standard error, replacing earlier handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if json else _LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def stand_for(**ids: object) -> None:
    """Let every line of this process carry these ids from now on, and those before no longer.

    Such as the rank that an agent serves. What a line's own `extra` says comes first; one that
    speaks of another attempt is not of the rank that stands.
    """
    _standing.clear()
    _standing.update(ids)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _OWN}
    attempt_id = own.get("attempt_id", _standing.get("attempt_id"))
    if attempt_id == _standing.get("attempt_id"):
        return {**_standing, **own}
    return {**{k: v for k, v in _standing.items() if k not in _OF_A_RANK}, **own}
