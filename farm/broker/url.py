"""Checks and displays broker URLs, and finds out whether one points to another machine.

A broker on another machine is reached by TLS, and its certificate and host name are checked.
redis-py does so by default for a `rediss://` URL. Kombu does not, so this module sets it for both.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from farm.broker import plaintext
from farm.errors import InvalidSpec

# What a URL's query may prove an identity with, beside the part before its host.
CREDENTIALS = ("username", "password", "ssl_certfile", "ssl_keyfile", "ssl_password")
DEFAULT_PORT = 6379  # of a URL that names none
DEFAULT_BROKER_URL = f"redis://127.0.0.1:{DEFAULT_PORT}/0"
_AUTHORITIES = "ssl_ca_certs"
_ALWAYS = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}
_TLS_OPTIONS = {*_ALWAYS, _AUTHORITIES, "ssl_certfile", "ssl_keyfile", "ssl_password"}

_SHOWABLE = re.compile(
    r"(?P<scheme>([\w+.-]+://)?)((?P<user>[^:/?#@]*)(?P<password>:[^/?#@]*)?@)?"
    r"(?P<rest>(([\w.-]+|\[[\w:.%]+\])(:\d{1,5})?)?(/[^?#@]*)?)([?#][^@]*)?"
)


def require_redis(broker_url: str, *, name: str = "FARM_BROKER_URL") -> None:
    """Refuse URLs of other brokers than Redis, and those that check no certificate.

    Raises:
        InvalidSpec: `name` says which setting it was.
    """
    try:
        parts = urlsplit(broker_url)
        # Kombu would take what is behind a semicolon for another broker.
        is_usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname)
        is_usable = is_usable and ";" not in broker_url
        _ = parts.port  # raises where it is no number
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidSpec(name, redact(broker_url), f"a URL such as {DEFAULT_BROKER_URL}")
    _require_verified(broker_url, name)


def _require_verified(broker_url: str, name: str) -> None:
    parts = urlsplit(broker_url)
    given = [(key, value) for key, value in parse_qsl(parts.query) if key.startswith("ssl_")]
    options = dict(given)
    if parts.scheme == "redis":
        if given:
            raise InvalidSpec(name, redact(broker_url), f"rediss:// for {given[0][0]}")
        return
    if not options.get(_AUTHORITIES):
        expected = f"`?{_AUTHORITIES}=FILE`, without which nobody checks whose certificate it is"
        raise InvalidSpec(name, redact(broker_url), expected)
    for key, value in given:
        if key not in _TLS_OPTIONS:
            raise InvalidSpec(name, key, f"none but {', '.join(sorted(_TLS_OPTIONS))}")
        if value.lower() != _ALWAYS.get(key, value.lower()):
            raise InvalidSpec(f"{name} {key}", value, f"{_ALWAYS[key]}, which is also the default")


def verified(broker_url: str) -> str:
    """Return the URL with the options that make clients check certificate and host name.

    Raises:
        InvalidSpec: as `require_redis`.
    """
    require_redis(broker_url)
    parts = urlsplit(broker_url)
    if parts.scheme == "redis":
        return broker_url
    query = {**dict(parse_qsl(parts.query)), **_ALWAYS}
    return urlunsplit(parts._replace(query=urlencode(query)))


def check_broker_url(broker_url: str, *, may_be_plain: bool, name: str = "FARM_BROKER_URL") -> None:
    """Refuse a URL with which a broker's messages could be read or changed on their way.

    Raises:
        InvalidSpec: no Redis URL; or it leaves this machine without TLS and is not said to be in a
            private network; or a file of certificates cannot be used.
    """
    require_redis(broker_url, name=name)
    options = dict(parse_qsl(urlsplit(broker_url).query))
    if urlsplit(broker_url).scheme == "rediss":
        _try_files(options, name)
    elif not (may_be_plain or is_local_broker(broker_url)):
        expected = (
            f"`rediss://HOST?{_AUTHORITIES}=FILE`, since it is beyond this machine, or "
            f"{plaintext.FARM_PLAINTEXT}=broker where the network to it is private"
        )
        raise InvalidSpec(name, redact(broker_url), expected)


def _try_files(options: dict[str, str], name: str) -> None:
    """Read the files of certificates as a connection would, which could only say so much later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authorities, own = options[_AUTHORITIES], options.get("ssl_certfile")
    try:
        context.load_verify_locations(cafile=authorities)
    except OSError as error:
        expected = f"a file with certificates of authorities ({error.strerror or error})"
        raise InvalidSpec(f"{name} {_AUTHORITIES}", authorities, expected) from None
    if own is None:
        return
    try:
        # Without any password OpenSSL would ask the terminal for one.
        password = options.get("ssl_password", "")
        context.load_cert_chain(own, options.get("ssl_keyfile"), password=password)
    except OSError as error:
        expected = f"a certificate of this machine's, with its key ({error.strerror or error})"
        raise InvalidSpec(f"{name} ssl_certfile", own, expected) from None


def authorities_file(broker_url: str) -> Path | None:
    """Return the file of the certificates by which the broker is known; None without TLS."""
    named = dict(parse_qsl(urlsplit(broker_url).query)).get(_AUTHORITIES)
    return Path(named) if named else None


def without_credentials(broker_url: str) -> str:
    """Return the URL without account, password and other credentials."""
    parts = urlsplit(broker_url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    kept = urlencode([(key, value) for key, value in query if key not in CREDENTIALS], safe="/:")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=kept))


def is_local(host: str | None) -> bool:
    """Whether a host's name or address is this machine's loopback, without a resolver."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def is_local_broker(broker_url: str) -> bool:
    """Whether the broker is reached over this machine's loopback interface."""
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
