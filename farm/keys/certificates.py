"""Expiry dates of TLS certificates, read from files or from a server.

Only the dates are read; no certificate is trusted here. Python's `ssl` shows the contents of a
certificate only after verifying it, and so never those of an expired one.
"""

from __future__ import annotations

import datetime as dt
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)
# Tags of DER: ITU-T X.690, and X.509's field that only version 1 leaves out.
_EXPLICIT_VERSION = 0xA0
_TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


def file_expiries(file: Path) -> list[dt.datetime]:
    """Return when each certificate of a PEM file expires.

    Raises:
        OSError: it cannot be read.
        ValueError: one of them is damaged.
    """
    found = _PEM.findall(file.read_text(errors="replace"))
    return [expiry(ssl.PEM_cert_to_DER_cert(pem)) for pem in found]


def server_expiry(host: str, port: int, *, timeout_s: float) -> dt.datetime:
    """Return the expiry date of a server's certificate, after a TLS handshake only.

    Raises:
        OSError: it does not answer, or speaks no TLS.
        ValueError: its certificate is damaged.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout=timeout_s) as link,
        context.wrap_socket(link) as secured,
    ):
        presented = secured.getpeercert(binary_form=True)
    if presented is None:
        raise ValueError("it presents none")
    return expiry(presented)


def expiry(der: bytes) -> dt.datetime:
    """Return `notAfter` of a certificate (RFC 5280, section 4.1). Raises ValueError: damaged."""
    _, certificate = next(_elements(der), (0, b""))
    _, signed = next(_elements(certificate), (0, b""))
    fields = list(_elements(signed))
    # Version, which may be left out, serial number, algorithm and issuer stand before it.
    validity = fields[4 if fields[0][0] == _EXPLICIT_VERSION else 3][1] if len(fields) > 4 else b""
    times = list(_elements(validity))
    if len(times) != 2 or times[1][0] not in _TIMES:
        raise ValueError("it has no expiry date")
    tag, text = times[1]
    return dt.datetime.strptime(text.decode("ascii"), _TIMES[tag]).replace(tzinfo=dt.UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and content of each element, one after the other. Raises ValueError."""
    place = 0
    while place < len(der):
        tag, length = der[place], der[place + 1] if place + 1 < len(der) else 0
        place += 2
        if length & 0x80:
            byte_count = length & 0x7F
            length = int.from_bytes(der[place : place + byte_count], "big")
            place += byte_count
        if place + length > len(der):
            raise ValueError("it is cut off")
        yield tag, der[place : place + length]
        place += length
