"""Checks how the web server is reached: HTTP on this machine, else TLS."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from farm.broker import plaintext
from farm.broker.url import is_local
from farm.errors import InvalidSpec
from farm.settings.server import Settings

_CERTIFICATE, _KEY = "FARM_WEB_CERTIFICATE_FILE", "FARM_WEB_KEY_FILE"


def web_url(settings: Settings, *, host: str | None = None) -> str:
    """Return the URL of the dashboard; `host`: in the place of the address that it listens on."""
    shown = host or (f"[{settings.web_host}]" if ":" in settings.web_host else settings.web_host)
    scheme = "http" if settings.web_certificate_file is None else "https"
    return f"{scheme}://{shown}:{settings.web_port}/"


def check_web_listening(settings: Settings) -> None:
    """Refuse to send tokens and pages through a network as they are.

    Raises:
        InvalidSpec: it would listen beyond this machine without a certificate, a proxy or the word
            of somebody that the network is private; or the certificate cannot be used.
    """
    if settings.web_certificate_file is not None or settings.web_key_file is not None:
        _try_certificate(settings.web_certificate_file, settings.web_key_file)
        return
    if settings.proxy_count or settings.plaintext.web or is_local(settings.web_host):
        return
    expected = (
        f"a loopback address such as 127.0.0.1, or TLS: {_CERTIFICATE} and {_KEY}, or a proxy and "
        f"FARM_PROXY_COUNT, or {plaintext.FARM_PLAINTEXT}=web where the network is private"
    )
    raise InvalidSpec("FARM_WEB_HOST", settings.web_host, expected)


def _try_certificate(certificate: Path | None, key: Path | None) -> None:
    if certificate is None:
        raise InvalidSpec(_CERTIFICATE, None, f"the certificate that {_KEY} is the key of")
    if key is None:
        raise InvalidSpec(_KEY, None, f"the key of {_CERTIFICATE}")
    try:
        if key.stat().st_mode & stat.S_IRWXO:
            raise InvalidSpec(_KEY, str(key), "a file that only its owner and group can open")
        # Without any password OpenSSL would ask the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:
        expected = f"a certificate with the key of {_KEY} ({error.strerror or error})"
        raise InvalidSpec(_CERTIFICATE, str(certificate), expected) from None
