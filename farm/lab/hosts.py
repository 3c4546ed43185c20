"""The hosts of a lab: each a network namespace with an interface to its gang and one to the broker.

The gang's interface is the TAP end of a wire. The broker's interface is a veth into a bridge of our
own namespace, so the path of commands and reports is never shaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.lab.slots import Slot
from farm.lab.system import ip_batch, prefix_into, run
from farm.lab.wirefilter import MAX_BANDWIDTH_BYTES_PER_S, WIRE_QUEUE_S

MAX_HOSTS = 64
_BROKER = 254  # the number of our own namespace in the broker's network
_BURST_BYTES = 20_000
# The system's default may be one that fills any queue and lives on losses (bbr), by which a wire
# in user space would be measured instead of the link.
_CONGESTION_CONTROL = "cubic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host; `number` counts from 1."""

    number: int
    namespace: str
    interface: str  # of the gang's network; also the name of its wire
    address: str  # in the gang's network
    broker_interface: str
    broker_address: str

    @property
    def name(self) -> str:
        return f"host-{self.number}"

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return what to execute to run `argv` on this host."""
        return (*prefix_into(self.namespace), *argv)


def plan_hosts(slot: Slot, count: int) -> tuple[Host, ...]:
    """Name the hosts of a lab, and give them their addresses."""
    return tuple(
        Host(
            number=number,
            namespace=f"{slot.prefix}h{number}",
            interface=f"{slot.prefix}t{number}",
            address=slot.address(number),
            broker_interface=f"{slot.prefix}b{number}",
            broker_address=slot.broker_address(number),
        )
        for number in range(1, count + 1)
    )


def server_address(slot: Slot) -> str:
    """Return the address of our own namespace, as seen from the hosts."""
    return slot.broker_address(_BROKER)


def make_hosts(slot: Slot, hosts: Sequence[Host]) -> None:
    """Make the namespaces and connect them to the broker's network.

    Raises:
        FarmError: the system refuses.
    """
    bridge = f"{slot.prefix}br"
    lines = [
        f"link add {bridge} type bridge",
        f"link set dev {bridge} addrgenmode none",
        f"address add {server_address(slot)}/24 dev {bridge}",
        f"link set dev {bridge} up",
    ]
    for host in hosts:
        ours = f"{slot.prefix}v{host.number}"
        lines += [
            f"netns add {host.namespace}",
            f"link add {ours} type veth peer name {host.broker_interface} netns {host.namespace}",
            f"link set dev {ours} addrgenmode none",
            f"link set dev {ours} master {bridge} up",
        ]
    ip_batch(lines)
    for host in hosts:
        inner = host.broker_interface
        ip_batch(
            [
                "link set dev lo up",
                f"link set dev {inner} addrgenmode none",
                f"address add {host.broker_address}/24 dev {inner}",
                f"link set dev {inner} up",
            ],
            namespace=host.namespace,
        )


def plug_in(host: Host, *, wires_namespace: str) -> None:
    """Move the host's end of its wire into the host, and set it up there.

    Raises:
        FarmError: the system refuses.
    """
    tap = host.interface
    run("ip", "-n", wires_namespace, "link", "set", "dev", tap, "netns", host.namespace)
    network = host.address.rpartition(".")[0]
    ip_batch(
        [
            # Without an address of its own IPv6 stays silent on the link.
            f"link set dev {tap} addrgenmode none",
            f"address add {host.address}/24 dev {tap}",
            f"link set dev {tap} up",
            f"route replace {network}.0/24 dev {tap} src {host.address} "
            f"congctl {_CONGESTION_CONTROL}",
        ],
        namespace=host.namespace,
    )
    bits_per_s = round(8 * MAX_BANDWIDTH_BYTES_PER_S)
    bucket = f"tbf rate {bits_per_s}bit burst {_BURST_BYTES} latency {round(WIRE_QUEUE_S * 1000)}ms"
    run("tc", "-n", host.namespace, "qdisc", "replace", "dev", tap, "root", *bucket.split())
