"""Parses notification addresses, and refuses those inside the farm's network by default.

A submitted address must not lead into the farm's own network, where services trust every caller
(server-side request forgery). So every IP address of its host is checked when the address is
submitted and again before each message, and the message is sent to the checked IP address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from farm.configuration.sweep import NOTIFY
from farm.errors import FarmError, InvalidSpec

_PORTS = {"http": 80, "https": 443}
# What Apprise sends to: services with hosts of their own, and those of which the address says it.
SERVICES = frozenset({"discord", "gchat", "pover", "slack", "tgram"})
SERVICES_WITH_HOST = frozenset(
    f"{name}{secure}"
    for name in ("gotify", "mailto", "matrix", "mmost", "ntfy", "rocket")
    for secure in ("", "s")
)
_HIDDEN = "..."
LOOK_UP_S = 10.0  # for the names of all addresses that somebody submits
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # RFC 4291; IANA has given out no other
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]


class NotReachable(FarmError):
    """No message can be sent to an address. `why`: without naming it."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"{masked(address)}: {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class AllowedNetworks:
    """Hosts and networks inside the farm's own network that may receive messages."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    def __str__(self) -> str:
        return ",".join([*sorted(self.hosts), *map(str, self.networks)])

    def allows(self, host: str, address: _IpAddress) -> bool:
        """Whether a message to this host may go to one of its addresses.

        A global address may always. An IPv6 address that stands for an IPv4 one is judged as that.
        """
        address = _without_disguise(address)
        return _is_public(address) or self.names(host, address)

    def names(self, host: str, address: _IpAddress) -> bool:
        """Whether the operator has named this host, or a network that has its address."""
        address = _without_disguise(address)
        return host in self.hosts or any(
            address.version == network.version and address in network for network in self.networks
        )


def _is_public(address: _IpAddress) -> bool:
    """Whether an address is one of the internet, and can be of no network behind the farm's own.

    `is_global` alone takes old and reserved forms of IPv6 that gateways and translators read as
    IPv4 addresses of any network, and those that were local to a site.
    """
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _without_disguise(address: _IpAddress) -> _IpAddress:
    """Return the IPv4 address that an IPv6 one stands for: mapped, 6to4 or NAT64 (RFC 6052)."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def parse_allowed(text: str) -> AllowedNetworks:
    """Read the setting: networks such as `10.0.0.0/8`, and names of hosts, with commas between.

    Raises:
        ValueError: a part is neither.
    """
    hosts, networks = set(), []
    for part in filter(None, (one.strip().lower() for one in text.split(","))):
        try:
            networks.append(ipaddress.ip_network(part))
        except ValueError:
            if "/" in part or part.replace(".", "").isdigit() or not part.isprintable():
                raise ValueError(
                    "networks such as 10.0.0.0/8 and names of hosts, with commas between them"
                ) from None
            hosts.add(part)
    return AllowedNetworks(frozenset(hosts), tuple(networks))


def scheme_of(text: str) -> str:
    """Return the scheme of an address, the part before "://", in lower case."""
    return text.partition("://")[0].lower()


def is_service(text: str) -> bool:
    """Whether an address is for Apprise, and none of the web."""
    return scheme_of(text) in SERVICES | SERVICES_WITH_HOST


def check_address(text: str, *, field: str = NOTIFY) -> SplitResult:
    """Return the parts of an address that is well formed, wherever it leads.

    Raises:
        InvalidSpec: it is not; what it names beyond the host is left out of the message.
    """
    expected = "an address such as https://HOST/PATH"
    if not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidSpec(field, masked(text), f"{expected}, of printable ASCII characters")
    if is_service(text):
        # Options name other hosts, or switch off the checks of certificates.
        if "?" in text or "\\" in text:
            raise InvalidSpec(field, masked(text), "an address of a service without '?' and '\\'")
        return urlsplit(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidSpec(field, _HIDDEN, expected) from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InvalidSpec(field, masked(text), expected)
    if "@" in parts.netloc or "\\" in text or parts.fragment:
        raise InvalidSpec(field, masked(text), f"{expected}, without a user, '\\' and '#'")
    return parts


def masked(text: str) -> str:
    """Return an address without what may be secret in it: only scheme, host and port.

    Of other addresses than those of the web only the scheme, since the host may be a token.
    """
    try:
        parts = urlsplit(text)
        scheme, host = parts.scheme, parts.hostname
        port = parts.port if scheme in _PORTS else None
    except ValueError:
        return _HIDDEN
    if scheme and scheme not in _PORTS:
        return f"{scheme}://{_HIDDEN}"
    if not scheme or not host:
        return _HIDDEN
    at = f":{port}" if port is not None else ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{at}/{_HIDDEN}"


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses of a host, without the zones of link-local ones.

    Raises:
        OSError: it has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The destination of a message: an allowed IP address, and the name of its host."""

    scheme: str
    host: str
    ip: str
    port: int
    target: str  # path and query

    @property
    def host_header(self) -> str:
        """The host as the request names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address with the IP address in the place of the host."""
        ip = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{self.scheme}://{ip}:{self.port}{self.target}"


def find_endpoint(text: str, allowed: AllowedNetworks, *, look_up: Resolve = resolve) -> Endpoint:
    """Return the destination of messages to an address.

    Raises:
        InvalidSpec: the address is not well formed.
        NotReachable: its host has no IP address, or one within the farm's own network.
    """
    parts = check_address(text)
    host = str(parts.hostname)
    port = parts.port or _PORTS[parts.scheme]
    try:
        found = look_up(host, port)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise NotReachable(text, f"the host's address is not known ({why})") from None
    for ip in found:
        if not allowed.allows(host, ipaddress.ip_address(ip)):
            raise NotReachable(
                text,
                f"{ip} is within the farm's own network, and messages go there only if its "
                "operator allows it in FARM_NOTIFY_ALLOW",
            )
    if not found:
        raise NotReachable(text, "the host has no address")
    target = parts.path or "/"
    if parts.query:
        target = f"{target}?{parts.query}"
    return Endpoint(parts.scheme, host, found[0], port, target)


def check_reachable(
    addresses: Sequence[str],
    allowed: AllowedNetworks,
    *,
    look_up: Resolve = resolve,
    within_s: float = LOOK_UP_S,
) -> None:
    """Refuse addresses that no message can be sent to. Asks the name service for all at once.

    Raises:
        InvalidSpec: names the address, without what may be secret in it.
    """
    from farm.notifications.services import find_service  # it builds upon this module

    # The name service of a host that somebody chose may take minutes, and nothing interrupts it.
    pool = ThreadPoolExecutor(max_workers=max(1, len(addresses)))
    endpoints = {
        address: pool.submit(find_endpoint, address, allowed, look_up=look_up)
        for address in addresses
        if not is_service(address)
    }
    wait(endpoints.values(), timeout=within_s)
    pool.shutdown(wait=False)
    for number, address in enumerate(addresses):
        try:
            if is_service(address):
                find_service(address, allowed)
            else:
                endpoints[address].result(timeout=0)
        except NotReachable as error:
            why = error.why
        except TimeoutError:
            why = f"no answer of the name service in {within_s:g} s"
        else:
            continue
        expected = f"an address that may be reached ({why})"
        raise InvalidSpec(f"{NOTIFY}[{number}]", masked(address), expected)
