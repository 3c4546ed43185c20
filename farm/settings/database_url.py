"""Checks the URL of the store: a remote PostgreSQL needs TLS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from farm.broker import plaintext
from farm.broker.url import is_local
from farm.errors import InvalidSpec

if TYPE_CHECKING:
    import sqlalchemy as sa

_VERIFIED = "verify-full"


def check_database_url(
    url: str,
    *,
    environ: Mapping[str, str],
    may_be_plain: bool,
    name: str = "FARM_DATABASE_URL",
) -> None:
    """Refuse a remote PostgreSQL whose certificate would not be checked.

    A URL that is none of a store is for `make_engine` to refuse. `environ`: PostgreSQL's client
    takes from there what the URL leaves open.

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
    leaving = _what_leaves(parsed, environ)
    if leaving is None or parsed.query.get("sslmode") == _VERIFIED:
        return
    expected = (
        f"`?sslmode={_VERIFIED}&sslrootcert=FILE`, since {leaving} beyond this machine, or "
        f"{plaintext.FARM_PLAINTEXT}=database where the network to it is private"
    )
    raise InvalidSpec(name, redacted(url), expected)


def _what_leaves(url: sa.URL, environ: Mapping[str, str]) -> str | None:
    """Say what leads to another machine, or lets some file of libpq's decide that; None: nothing.

    libpq reads a variable where it is not told that very parameter, and goes to an address, from
    wherever, rather than to any host.
    """
    if "service" in url.query:
        return "its service may be"
    if environ.get("PGSERVICE"):
        return "PGSERVICE may lead"
    named, addresses = _split(url.host or "") + _listed(url, "host"), _listed(url, "hostaddr")
    if not all(map(_is_here, named + addresses)):
        return "it is"
    for variable, given in (("PGHOST", named + addresses), ("PGHOSTADDR", addresses)):
        if not given and not all(map(_is_here, _split(environ.get(variable, "")))):
            return f"{variable} leads"
    return None


def _listed(url: sa.URL, parameter: str) -> list[str]:
    found = url.query.get(parameter, ())
    texts = [found] if isinstance(found, str) else found
    return [host for text in texts for host in _split(text)]


def _split(hosts: str) -> list[str]:
    return [host.strip() for host in hosts.split(",") if host.strip()]


def _is_here(host: str) -> bool:
    # A folder with a socket, or a socket that has no file.
    if host.startswith(("/", "@")):
        return True
    return is_local(host) or is_local(re.sub(r"^(\[.*\]|[^:]*):\d*$", r"\1", host).strip("[]"))
