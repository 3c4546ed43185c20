"""What the kernel is asked for, byte for byte: units show here where it has no netem to show them.

By `struct tc_netem_qopt` of linux/pkt_sched.h, in which iproute2 (tc/q_netem.c, tc/tc_core.c) has
times in ticks of the packet scheduler's clock and the loss as a share of 2**32 - 1.
"""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import pytest

from farm.configuration.spec import NetworkProfile
from worker_agent.network.emulators.tc_link import (
    TICK_NS,
    error_of,
    netem_options,
    new_queue,
    segmenter_options,
)
from worker_agent.network.emulators.tc_plan import NetemQueue, make_plan

PEER = ipaddress.ip_address("10.99.0.3")
RTM_NEWQDISC = 36
REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_NETEM_RATE, TCA_NETEM_RATE64 = 6, 8
# sendmsg() of iproute2 6.1.0, as strace shows it, for
# tc qdisc add dev lo root handle bf11: netem delay 20ms 500us loss 0.1% limit 5167
SAID_BY_TC = bytes.fromhex("b4c40400 2f140000 37894100 00000000 00000000 841e0000")
# The same command with `rate 10mbit` adds
RATE_BY_TC = bytes.fromhex("14000600 d0121300 00000000 00000000 00000000")


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while data:
        length, name = struct.unpack_from("=HH", data)
        found[name] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def test_the_kernels_clock_ticks_as_the_figures_here_suppose() -> None:
    # Nanoseconds of a microsecond and of a tick, and ticks of a second before there were others.
    words = Path("/proc/net/psched").read_text().split()
    assert [int(word, 16) for word in words[:3]] == [1000, TICK_NS, 1_000_000]


@pytest.mark.parametrize(
    ("profile", "latency", "limit", "loss", "jitter", "rate"),
    [
        # 20 000 000 / 64 and 500 000 / 64, rounded down; 4 294 967 295 / 1000;
        # 17 packets under way in 20.5 ms, and the 42 of 50 ms.
        (
            NetworkProfile(
                one_way_delay_s=0.02,
                jitter_s=0.0005,
                packet_loss_ratio=0.001,
                bandwidth_bytes_per_s=1.25e6,
            ),
            *(312_500, 59, 4_294_967, 7_812, 1_250_000),
        ),
        # 40 000 000 / 64; at 10 Gbit/s 33 026 packets are under way.
        (NetworkProfile(one_way_delay_s=0.04), 625_000, 67_052, 0, 0, None),
        # 10 s, the longest that a sweep may ask for, is far from 2**32 ticks.
        (
            NetworkProfile(one_way_delay_s=10.0, bandwidth_bytes_per_s=1500),
            *(156_250_000, 42, 0, 0, 1500),
        ),
        (
            NetworkProfile(packet_loss_ratio=0.5, bandwidth_bytes_per_s=1.25e6),
            *(0, 42, 2_147_483_648, 0, 1_250_000),
        ),
    ],
    ids=["all", "delay", "longest delay", "loss"],
)
def test_times_are_in_ticks_and_loss_in_shares_of_32_bits(
    profile: NetworkProfile, latency: int, limit: int, loss: int, jitter: int, rate: int | None
) -> None:
    queue = make_plan(profile, peers=[PEER], spared_ports=[]).queue
    assert queue is not None
    options = netem_options(queue)

    gap = duplicate = 0
    assert struct.unpack("=6I", options[:24]) == (latency, limit, loss, gap, duplicate, jitter)
    assert latency * TICK_NS == pytest.approx(profile.one_way_delay_s * 1e9)
    found = attributes(options[24:])
    if rate is None:
        assert found == {}
    else:
        assert struct.unpack("=IiIi", found[TCA_NETEM_RATE]) == (rate, 0, 0, 0)


def test_a_rate_beyond_32_bits_is_told_whole() -> None:
    queue = NetemQueue(
        delay_us=0, jitter_us=0, loss_ratio=0.0, limit=1, rate_bytes_per_s=12_500_000_000
    )
    found = attributes(netem_options(queue)[24:])

    assert struct.unpack("=I", found[TCA_NETEM_RATE][:4]) == (2**32 - 1,)
    assert struct.unpack("=Q", found[TCA_NETEM_RATE64]) == (12_500_000_000,)


@pytest.mark.parametrize(
    ("rate", "options"), [(None, SAID_BY_TC), (1_250_000, SAID_BY_TC + RATE_BY_TC)]
)
def test_tc_itself_says_the_same(rate: int | None, options: bytes) -> None:
    queue = NetemQueue(
        delay_us=20_000, jitter_us=500, loss_ratio=0.001, limit=5167, rate_bytes_per_s=rate
    )
    assert netem_options(queue) == options


def test_a_queue_goes_to_its_place_and_replaces_nobody_elses() -> None:
    message = new_queue("netem", 7, 0xBF110000, parent=0xBF100001, options=b"four")

    length, kind, flags = struct.unpack_from("=IHH", message)
    assert (length, kind, flags) == (len(message), RTM_NEWQDISC, REQUEST_ACK_EXCL_CREATE)
    index, handle, parent = struct.unpack_from("=iII", message, 20)
    assert (index, handle, parent) == (7, 0xBF110000, 0xBF100001)
    found = attributes(message[36:])
    assert found == {TCA_KIND: b"netem\0", TCA_OPTIONS: b"four"}


def test_the_kernels_answer_is_an_error_number() -> None:
    def answer(code: int) -> bytes:
        return struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", code) + bytes(16)

    assert (error_of(answer(-2)), error_of(answer(0))) == (2, 0)


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_the_segmenter_lets_one_packet_pass_and_never_two(mtu: int) -> None:
    tca_tbf_burst = 6
    (burst,) = struct.unpack("=I", attributes(segmenter_options(mtu))[tca_tbf_burst])

    assert mtu + 14 + 8 <= burst < 2 * mtu  # with an Ethernet header and two VLAN tags
