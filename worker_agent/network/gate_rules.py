"""Builds the packet filter rules that admit only a gang's members to its ports.

Pure text, in the language of `nft`.

A rank has a table of its own, which narrows what reaches its ports and never opens what another
table closes. The rules look at single packets, so connections from before they were set are
cut off too. What comes over loopback passes: ranks of one machine, and proxies, meet there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

INCOMING = "incoming"
_PREFIX = "benchfarm_"
# After connection tracking, before an ordinary filter: what is refused here costs that nothing.
_PRIORITY = "filter - 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """What to close to whom. `ports`: the rank's own, at least one."""

    table: str
    ports: Sequence[int]
    peers: Sequence[Address]
    trainer_uid: int | None = None  # whose packets go to the peers alone; None: nobody's


def table_of(state_dir: str) -> str:
    """Name the table of an agent; agents of one machine have a state directory each."""
    return _PREFIX + hashlib.sha256(state_dir.encode()).hexdigest()[:12]


def closing_script(rules: GateRules) -> str:
    """Return what replaces the table by one with these rules, at once or not at all."""
    chains = _incoming(rules) + _outgoing(rules)
    return f"{removing_script(rules.table)}table inet {rules.table} {{\n{chains}}}\n"


def removing_script(table: str) -> str:
    """Return what removes a table, whether or not there is one."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def _incoming(rules: GateRules) -> str:
    ports = _elements(sorted(rules.ports))
    lines = ['iif "lo" accept']
    lines += [f"tcp dport {ports} {match} accept" for match in _matches("saddr", rules.peers)]
    # To a stranger the port looks as if nobody listened.
    lines.append(f"tcp dport {ports} counter reject with tcp reset")
    return _chain(INCOMING, "input", lines)


def outgoing_chain(uid: int) -> str:
    """Name the chain that holds a user's packets back: no two agents may do so to one user."""
    return f"outgoing_{uid}"


def _outgoing(rules: GateRules) -> str:
    """Hold the trainers to their gang. What they answer to a stranger's call is stopped as well:

    so nobody else reaches a port on which they listen, whichever the kernel has given them.
    """
    uid = rules.trainer_uid
    if uid is None:
        return ""
    lines = [f"meta skuid != {uid} accept", 'oif "lo" accept']
    lines += [f"{match} accept" for match in _matches("daddr", rules.peers)]
    lines.append("counter reject with icmpx admin-prohibited")
    return _chain(outgoing_chain(uid), "output", lines)


def _matches(field: str, peers: Sequence[Address]) -> list[str]:
    """Return what matches the peers' addresses, one for each family that they have."""
    families = (("ip", IPv4Address), ("ip6", IPv6Address))
    found = []
    for name, kind in families:
        addresses = sorted({str(peer) for peer in peers if isinstance(peer, kind)})
        if addresses:
            found.append(f"{name} {field} {_elements(addresses)}")
    return found


def _chain(name: str, hook: str, lines: Iterable[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    head = f"    type filter hook {hook} priority {_PRIORITY}; policy accept;\n"
    return f"  chain {name} {{\n{head}{body}  }}\n"


def _elements(values: Iterable[object]) -> str:
    return "{ " + ", ".join(map(str, values)) + " }"
