"""Which addresses messages may go to."""

from __future__ import annotations

import ipaddress
import threading

import pytest

from farm.errors import InvalidSpec
from farm.notifications.addresses import (
    AllowedNetworks,
    NotReachable,
    check_address,
    check_reachable,
    find_endpoint,
    masked,
    parse_allowed,
)

PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1"),
        # IPv4 within IPv6: mapped, 6to4, NAT64.
        *("::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::10.0.0.1"),
        # The same by forms of old and of translators, and what was local to a site.
        *("::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::127.0.0.1", "2001:0:a00:1::1"),
        *("fec0::1", "5f00::1", "240.0.0.1"),
    ],
)
def test_addresses_of_the_own_network_are_allowed_by_the_operator_alone(address: str) -> None:
    ip = ipaddress.ip_address(address)
    assert not AllowedNetworks().allows("host", ip)
    assert parse_allowed("HOST").allows("host", ip)
    assert not parse_allowed("other,198.51.100.0/24").allows("host", ip)


def test_a_network_that_is_allowed_lets_its_addresses_through() -> None:
    allowed = parse_allowed("10.0.0.0/8, fd00::/8")
    assert allowed.allows("any", ipaddress.ip_address("10.9.9.9"))
    assert allowed.allows("any", ipaddress.ip_address("::ffff:10.9.9.9"))
    assert not allowed.allows("any", ipaddress.ip_address("192.168.0.1"))
    assert parse_allowed(str(allowed)) == allowed
    for wrong in ("10.0.0.1/8", "10.0.0", "a/b"):
        with pytest.raises(ValueError, match="networks such as"):
            parse_allowed(wrong)


def test_one_address_within_the_own_network_is_enough_to_refuse_a_host() -> None:
    with pytest.raises(NotReachable, match=r"https://a\.example/\.\.\.: 10\.0\.0\.1 is within"):
        find_endpoint(
            "https://a.example/secret", AllowedNetworks(), look_up=lambda *_: [PUBLIC, "10.0.0.1"]
        )


def test_the_message_goes_to_the_address_that_was_checked() -> None:
    found = find_endpoint(
        "https://a.example/path?token=1", AllowedNetworks(), look_up=lambda *_: [PUBLIC]
    )
    assert found.url == f"https://{PUBLIC}:443/path?token=1"
    assert (found.host, found.host_header) == ("a.example", "a.example")
    six = find_endpoint(
        "http://[2606:4700::1]:8080", AllowedNetworks(), look_up=lambda *_: ["2606:4700::1"]
    )
    assert six.url == "http://[2606:4700::1]:8080/"
    assert six.host_header == "[2606:4700::1]:8080"


@pytest.mark.parametrize(
    "text",
    [
        *("", "a.example", "ftp://a.example/", "file:///etc/passwd", "http://", "http:///path"),
        *("http://user@a.example/", "http://a.example@10.0.0.1/", "http://a.example:0/"),
        *("http://a.example:99999/", "http://[::1", "http://a.example/#part", "http://a\\b/"),
        *("http://a.example/ b", "http://a.example/\n", "http://ä.example/"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        check_address(text)
    assert raised.value.field == "notify"


@pytest.mark.parametrize(
    "text", ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/"]
)
def test_odd_forms_of_an_address_are_judged_by_what_they_stand_for(text: str) -> None:
    with pytest.raises(NotReachable):
        find_endpoint(text, AllowedNetworks())


def test_only_scheme_host_and_port_of_an_address_are_shown() -> None:
    assert masked("https://hooks.example/services/T0/B0/key?a=b") == "https://hooks.example/..."
    assert masked("https://me:secret@a.example:8443/x") == "https://a.example:8443/..."
    assert masked("http://[::1") == masked("secret") == "..."


def test_slow_name_services_are_asked_at_once_and_not_waited_for() -> None:
    addresses = [f"https://{name}.example/hook" for name in ("a", "b", "c")]
    together = threading.Barrier(len(addresses))

    def all_at_once(host: str, port: int) -> list[str]:
        together.wait(60)
        return [PUBLIC]

    check_reachable(addresses, AllowedNetworks(), look_up=all_at_once)
    is_over = threading.Event()

    def silent(host: str, port: int) -> list[str]:
        if host == "b.example":
            is_over.wait(60)
        return [PUBLIC]

    with pytest.raises(
        InvalidSpec, match=r"notify\[1\].*no answer of the name service.*b\.example"
    ):
        check_reachable(addresses, AllowedNetworks(), look_up=silent, within_s=0.5)
    is_over.set()
