"""Checks the certificates of broker, authority and dashboard for `farm doctor`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from urllib.parse import urlsplit

from farm.broker.url import authorities_file
from farm.diagnosis.certificates import CertificateState, judge_certificates
from farm.diagnosis.finding import Finding, unknown, wrong
from farm.keys.certificates import end_of_server, ends_of_file
from farm.settings.server import Settings

_TIMEOUT_S = 3.0
_PORT = 6379  # of a broker's URL that names none


def look_at_certificates(settings: Settings) -> list[Finding]:
    """Judge those that the settings name, and that which the broker presents."""
    certificates: list[CertificateState] = []
    found: list[Finding] = []
    broker = urlsplit(settings.broker_url)
    authorities = authorities_file(settings.broker_url)
    if authorities is not None:
        certificates += _of_file("its authority's", authorities, found, is_authority=True)
        try:
            ends_at = end_of_server(
                broker.hostname or "", broker.port or _PORT, timeout_s=_TIMEOUT_S
            )
            certificates.append(CertificateState(whose="the broker's", ends_at=ends_at))
        except (OSError, ValueError):
            found.append(unknown("the broker's cannot be told: see broker"))
    if settings.web_certificate_file is not None:
        certificates += _of_file("the dashboard's", settings.web_certificate_file, found)
    if found and not certificates:
        return found
    return found + judge_certificates(certificates, now=dt.datetime.now(dt.UTC))


def _of_file(
    whose: str, file: Path, found: list[Finding], *, is_authority: bool = False
) -> list[CertificateState]:
    """Return a file's certificate that ends first; what cannot be read is added to `found`."""
    try:
        ends = ends_of_file(file)
    except (OSError, ValueError) as error:
        found.append(wrong(f"{file} cannot be read: {error}", "name a file with certificates"))
        return []
    if not ends:
        return []
    return [CertificateState(whose=whose, ends_at=min(ends), is_authority=is_authority)]
