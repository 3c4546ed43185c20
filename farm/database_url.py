"""The URL of the store: what goes to a PostgreSQL elsewhere is encrypted, and meant for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from farm.broker_url import is_local
from farm.core import plaintext
from farm.errors import InvalidSpec

if TYPE_CHECKING:
    import sqlalchemy as sa

_VERIFIED = "verify-full"


def check_database_url(url: str, *, may_be_plain: bool, name: str = "FARM_DATABASE_URL") -> None:
    """Refuse a PostgreSQL beyond this machine whose certificate nobody would check.

    A URL that is none of a store is for `make_engine` to refuse.

    Raises:
        InvalidSpec: it leaves this machine without `sslmode=verify-full`.
    """
    if may_be_plain or not re.match(r"postgres(ql)?(\+\w+)?://", url):
        return
    import sqlalchemy as sa

    from farm.store.engine import redacted

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return
    if not _leaves(parsed) or parsed.query.get("sslmode") == _VERIFIED:
        return
    expected = (
        f"`?sslmode={_VERIFIED}&sslrootcert=FILE`, since it is beyond this machine, or "
        f"{plaintext.NAME}=database where the network to it is private"
    )
    raise InvalidSpec(name, redacted(url), expected)


def _leaves(url: sa.URL) -> bool:
    """Whether any of its hosts is another machine, or some file of libpq's decides that."""
    if "service" in url.query:
        return True
    listed = [url.host or ""]
    for name in ("host", "hostaddr"):
        found = url.query.get(name, ())
        listed += [found] if isinstance(found, str) else found
    hosts = [host.strip() for text in listed for host in text.split(",")]
    return not all(_is_here(host) for host in hosts)


def _is_here(host: str) -> bool:
    # None, a folder with a socket, or a socket that has no file.
    if not host or host.startswith(("/", "@")):
        return True
    return is_local(host) or is_local(re.sub(r"^(\[.*\]|[^:]*):\d*$", r"\1", host).strip("[]"))
