"""What the kernel is asked for, byte for byte: units show here where it has no netem to show them.

By `struct tc_netem_qopt` of linux/pkt_sched.h, in which iproute2 (tc/q_netem.c, tc/tc_core.c) has
times in ticks of the packet scheduler's clock and the loss as a share of 2**32 - 1.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyroute2 import IPBatch

from farm.core.spec import NetworkProfile
from worker_agent.emulators.tc_link import carry_out
from worker_agent.emulators.tc_plan import NetemQueue, Plan, make_plan

PEER = ipaddress.ip_address("10.99.0.3")
INDEX = 7
TICK_NS = 64
RTM_NEWQDISC = 36
REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
TCA_KIND, TCA_OPTIONS = 1, 2
# sendmsg() of iproute2 6.1.0, as strace shows it, for
# tc qdisc add dev lo root handle bf11: netem delay 20ms 500us loss 0.1% limit 5167
SAID_BY_TC = bytes.fromhex("b4c40400 2f140000 37894100 00000000 00000000 841e0000")


def asked(plan: Plan) -> tuple[tuple[int, ...], bytes]:
    """The header of the one message about netem, and its options."""
    with closing(IPBatch()) as batch:
        carry_out(batch, INDEX, plan, owner=0x8001)
        messages = bytes(batch.batch)
    found = [
        (header, attributes[TCA_OPTIONS])
        for header, attributes in map(parsed, split(messages))
        if attributes[TCA_KIND] == b"netem\0"
    ]
    assert len(found) == 1
    return found[0]


def split(messages: bytes) -> Iterator[bytes]:
    while messages:
        (length,) = struct.unpack_from("=I", messages)
        yield messages[:length]
        messages = messages[(length + 3) & ~3 :]


def parsed(message: bytes) -> tuple[tuple[int, ...], dict[int, bytes]]:
    """Type, flags, index, handle and parent; and the attributes, behind nlmsghdr and tcmsg."""
    _, kind, flags, _, _, _, index, handle, parent, _ = struct.unpack_from("=IHHIIB3xiIII", message)
    attributes, rest = {}, message[36:]
    while rest:
        length, name = struct.unpack_from("=HH", rest)
        attributes[name] = rest[4:length]
        rest = rest[(length + 3) & ~3 :]
    return (kind, flags, index, handle, parent), attributes


def test_the_kernels_clock_ticks_as_the_figures_here_suppose() -> None:
    # Nanoseconds of a microsecond and of a tick, and ticks of a second before there were others.
    words = Path("/proc/net/psched").read_text().split()
    assert [int(word, 16) for word in words[:3]] == [1000, TICK_NS, 1_000_000]


@pytest.mark.parametrize(
    ("profile", "latency", "limit", "loss", "jitter"),
    [
        # 20 000 000 / 64 and 500 000 / 64, rounded down; 4 294 967 295 / 1000;
        # 1000 packets, and twice the 18 that are under way in 20.5 ms.
        (
            NetworkProfile(
                one_way_delay_s=0.02,
                jitter_s=0.0005,
                packet_loss_ratio=0.001,
                bandwidth_bytes_per_s=1.25e6,
            ),
            *(312_500, 1_036, 4_294_967, 7_812),
        ),
        # 40 000 000 / 64; at 10 Gbit/s 33 334 packets are under way.
        (NetworkProfile(one_way_delay_s=0.04), 625_000, 67_668, 0, 0),
        # 10 s, the longest that a sweep may ask for, is far from 2**32 ticks.
        (
            NetworkProfile(one_way_delay_s=10.0, bandwidth_bytes_per_s=1500),
            *(156_250_000, 1_020, 0, 0),
        ),
        (
            NetworkProfile(packet_loss_ratio=0.5, bandwidth_bytes_per_s=1.25e6),
            *(0, 1_000, 2_147_483_647, 0),
        ),
    ],
    ids=["all", "delay", "longest delay", "loss"],
)
def test_times_are_in_ticks_and_loss_in_shares_of_32_bits(
    profile: NetworkProfile, latency: int, limit: int, loss: int, jitter: int
) -> None:
    header, options = asked(make_plan(profile, peers=[PEER], spared_ports=[]))

    gap = duplicate = 0
    assert struct.unpack("=6I", options) == (latency, limit, loss, gap, duplicate, jitter)
    assert latency * TICK_NS == pytest.approx(profile.one_way_delay_s * 1e9)
    # Below the class of the gang's packets, and in the place of nobody else's queue.
    assert header == (RTM_NEWQDISC, REQUEST_ACK_EXCL_CREATE, INDEX, 0xBF110000, 0xBF100001)


def test_tc_itself_says_the_same() -> None:
    queue = NetemQueue(delay_us=20_000, jitter_us=500, loss_percent=0.1, limit=5167)
    _, options = asked(Plan(rate_bytes_per_s=1000, burst_bytes=1600, queue=queue, filters=()))

    assert options == SAID_BY_TC
