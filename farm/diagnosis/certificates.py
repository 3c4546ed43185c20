"""Checks when TLS certificates expire."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from farm.diagnosis.finding import Finding, doubt, well, wrong

# deploy/install.sh renews them within their last year: with a run now and then, none is found.
SOON = dt.timedelta(days=45)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateState:
    """`whose`, such as "the broker's". `is_authority`: what it certified has to follow it."""

    whose: str
    expires_at: dt.datetime
    is_authority: bool = False


def judge_certificates(
    certificates: Sequence[CertificateState], *, now: dt.datetime
) -> list[Finding]:
    """Name each that has expired, or soon will."""
    if not certificates:
        return [well("no TLS of the farm's own: nothing here needs a certificate")]
    found = [_expiry_finding(one, now=now) for one in certificates if one.expires_at - now < SOON]
    first = min(certificates, key=lambda one: one.expires_at)
    return found or [well(f"the first to expire is {first.whose}, on {first.expires_at:%Y-%m-%d}")]


def _expiry_finding(one: CertificateState, *, now: dt.datetime) -> Finding:
    remedy = (
        "replace it on the server, and then at every agent (docs/security.md)"
        if one.is_authority
        else "renew it; run `deploy/install.sh server` again if that made it"
    )
    day = f"{one.expires_at:%Y-%m-%d}"
    if one.expires_at <= now:
        return wrong(
            f"{one.whose} certificate expired on {day}: peers that verify it refuse to connect",
            remedy,
        )
    return doubt(f"{one.whose} certificate expires on {day}", remedy)
