"""URLs of the broker: which are taken, how they are shown, and whether they leave this machine."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from farm.errors import InvalidSpec

_SHOWABLE = re.compile(
    r"(?P<scheme>([\w+.-]+://)?)((?P<user>[^:/?#@]*)(?P<password>:[^/?#@]*)?@)?"
    r"(?P<rest>(([\w.-]+|\[[\w:.%]+\])(:\d{1,5})?)?(/[^?#@]*)?)([?#][^@]*)?"
)


def require_redis(broker_url: str) -> None:
    """Refuse what is no Redis URL; the scheduler's bell is a Redis list. Raises InvalidSpec."""
    try:
        parts = urlsplit(broker_url)
        is_usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        _ = parts.port  # raises where it is no number
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidSpec(
            "FARM_BROKER_URL", redact(broker_url), "a URL such as redis://127.0.0.1:6379/0"
        )


def is_local(host: str | None) -> bool:
    """Whether a host's name or address is this machine's loopback, whatever a resolver says."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def stays_here(broker_url: str) -> bool:
    """Whether nothing that goes to the broker leaves this machine."""
    return is_local(urlsplit(broker_url).hostname)


def redact(url: str) -> str:
    """Return the URL as it may be shown: without its password and its query.

    A password that is not percent-encoded confuses every parser: what looks odd is not shown.
    """
    found = _SHOWABLE.fullmatch(url)
    if found is None:
        return "***"
    user, password = found["user"], ":***" if found["password"] else ""
    return f"{found['scheme']}{'' if user is None else f'{user}{password}@'}{found['rest']}"
