"""Sends messages to chat, mail and push services with the library Apprise.

Apprise looks up hosts by itself, and limits neither the length nor the time of an answer. So it
sends only to hosts that the operator names in FARM_NOTIFY_ALLOW, and to services with fixed hosts.
Only the services of the two lists are used: other services of Apprise run programs, write files or
open windows on this machine.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Any

from farm.errors import FarmError
from farm.notifications.addresses import (
    SERVICES_WITH_HOST,
    AllowedNetworks,
    NotReachable,
    scheme_of,
)
from farm.notifications.events import SendOutcome

# Names in a text are the submitters': in chats these signs begin a mention of everybody, or a link
# that shows another text. Apprise passes them on.
_LITERAL = str.maketrans({"@": "\uff20", "<": "\u2039", ">": "\u203a"})

# It tells where it sends, tokens and all, with each failure.
logging.getLogger("apprise").setLevel(logging.CRITICAL)


def find_service(address: str, allowed: AllowedNetworks) -> Any:
    """Return what sends to an address that `check_address` took: a plugin of Apprise.

    Raises:
        NotReachable: Apprise is not installed or cannot read the address, or its host is not
            allowed.
    """
    try:
        import apprise
    except ImportError:
        raise NotReachable(
            address, "Apprise is not installed: pip install 'benchfarm[notify]'"
        ) from None
    asset = apprise.AppriseAsset(http_redirects=False)
    try:
        service = apprise.Apprise.instantiate(address, asset=asset, suppress_exceptions=False)
    except (TypeError, ValueError, AttributeError, apprise.exception.AppriseException):
        service = None
    if service is None:
        raise NotReachable(address, f"not an address of {scheme_of(address)} as Apprise has it")
    if scheme_of(address) in SERVICES_WITH_HOST:
        # As Apprise reads the address: of odd ones another reader may take another part for it.
        host = str(service.host or "").strip("[]").lower()
        if not _is_named(host, allowed):
            raise NotReachable(address, "its host is not named in FARM_NOTIFY_ALLOW")
    return service


def send_by_service(
    address: str, allowed: AllowedNetworks, *, title: str, text: str
) -> SendOutcome:
    """Send one message as a title and a text. Apprise limits the time of each of its requests."""
    try:
        service = find_service(address, allowed)
        is_delivered = bool(service.notify(body=text.translate(_LITERAL), title=title))
    except FarmError as error:
        return SendOutcome(is_delivered=False, is_available=False, description=str(error))
    except Exception as error:  # a plugin's own; what it says may hold the address
        reason = f"{scheme_of(address)} failed: {type(error).__name__}"
        return SendOutcome(is_delivered=False, is_available=False, description=reason)
    reason = "sent" if is_delivered else "the service did not take it, or was not reached"
    return SendOutcome(is_delivered=is_delivered, is_available=is_delivered, description=reason)


def _is_named(host: str, allowed: AllowedNetworks) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host in allowed.hosts
    return allowed.names(host, ip)
