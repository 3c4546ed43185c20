"""The web ports of farms that start at the same time on one machine."""

from __future__ import annotations

import socket

from farm.embedded.farm import claim_web_port
from farm.embedded.redis import LOOPBACK_ADDRESS, free_port


def test_two_farms_that_start_at_once_take_different_ports() -> None:
    wanted = free_port()
    one, claim = claim_web_port(LOOPBACK_ADDRESS, wanted)
    with claim:
        # No web server listens yet.
        other, other_claim = claim_web_port(LOOPBACK_ADDRESS, wanted)
        other_claim.close()
    assert one != other


def test_a_farm_that_has_gone_leaves_its_port() -> None:
    port, claim = claim_web_port(LOOPBACK_ADDRESS, free_port())
    claim.close()
    again, claim = claim_web_port(LOOPBACK_ADDRESS, port)
    claim.close()
    assert again == port


def test_a_port_on_which_a_server_listens_is_passed_over() -> None:
    with socket.create_server((LOOPBACK_ADDRESS, 0)) as server:
        taken = server.getsockname()[1]
        port, claim = claim_web_port(LOOPBACK_ADDRESS, taken)
        claim.close()
    assert port > taken
