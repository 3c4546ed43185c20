"""Settings that the server and agents both have. Each says in its own words what they are for."""

from __future__ import annotations

from typing import Any

from farm.broker.plaintext import FARM_PLAINTEXT, Plaintext, parse_plaintext
from farm.broker.url import DEFAULT_BROKER_URL
from farm.settings.declaration import one_of, seconds, setting


def broker_url_setting(meaning: str) -> Any:
    """Declare the URL of the broker."""
    return setting(
        "FARM_BROKER_URL",
        default=DEFAULT_BROKER_URL,
        meaning=meaning,
        parse=str,
        secret=True,
    )


def plaintext_setting(meaning: str) -> Any:
    """Declare what may go without TLS."""
    return setting(FARM_PLAINTEXT, absent=Plaintext, meaning=meaning, parse=parse_plaintext)


def data_dir_setting(meaning: str) -> Any:
    """Declare the folder of data sets."""
    return setting("FARM_DATA_DIR", meaning=meaning, parse=str)


def lease_setting(meaning: str) -> Any:
    """Declare the length of a lease."""
    return setting("FARM_LEASE_S", default="20", meaning=meaning, parse=seconds(2, 3600))


def log_level_setting() -> Any:
    """Declare from which level on log lines are written."""
    return setting(
        "FARM_LOG_LEVEL",
        default="INFO",
        meaning="`DEBUG`, `INFO`, `WARNING` or `ERROR`.",
        parse=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )


def log_format_setting() -> Any:
    """Declare the form of log lines."""
    return setting(
        "FARM_LOG_FORMAT",
        default="text",
        meaning="`text`, or `json`: [an object a line](operations.md#logs).",
        parse=one_of("TEXT", "JSON"),
    )
