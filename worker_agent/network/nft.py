"""Writes and sets firewall rules that admit only the members of a training to a trainer's ports.

`nft` needs CAP_NET_ADMIN.

A rank has a table of its own. The table restricts access to the rank's ports and never opens a port
that another table closes. The rules apply to single packets, so they also cut connections that
existed before. Packets on loopback pass, since ranks of one machine and proxies use it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from farm.errors import EmulationFailed
from worker_agent.trainer_process import privilege
from worker_agent.trainer_process.environment import plain_environment

ANSWER_LIMIT_S = 10.0
# Where distributions put it, which is not in every user's path.
PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin")

INCOMING = "incoming"
_PREFIX = "benchfarm_"
# After connection tracking, before an ordinary filter: what is refused here costs that nothing.
_PRIORITY = "filter - 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """Which ports to close, and to which addresses. `ports`: the rank's own, at least one."""

    table: str
    ports: Sequence[int]
    peers: Sequence[IPv4Address | IPv6Address]
    trainer_uid: int | None = None  # whose packets go to the peers alone; None: nobody's


def nft_table_name(state_dir: str) -> str:
    """Name the table of an agent; agents of one machine have a state directory each."""
    return _PREFIX + hashlib.sha256(state_dir.encode()).hexdigest()[:12]


def closing_script(rules: GateRules) -> str:
    """Return the script that atomically replaces the table by one with these rules."""
    chains = _incoming(rules) + _outgoing(rules)
    return f"{removing_script(rules.table)}table inet {rules.table} {{\n{chains}}}\n"


def removing_script(table: str) -> str:
    """Return the script that removes a table, if it exists."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def _incoming(rules: GateRules) -> str:
    ports = _elements(sorted(rules.ports))
    lines = ['iif "lo" accept']
    lines += [f"tcp dport {ports} {match} accept" for match in _matches("saddr", rules.peers)]
    # To a stranger the port looks as if nobody listened.
    lines.append(f"tcp dport {ports} counter reject with tcp reset")
    return _chain(INCOMING, "input", lines)


def outgoing_chain(uid: int) -> str:
    """Name the chain that filters a user's outgoing packets; only one agent may filter a user."""
    return f"outgoing_{uid}"


def _outgoing(rules: GateRules) -> str:
    """Restrict the trainers' outgoing packets to their gang.

    Answers to strangers are dropped as well, so nobody else reaches a port on which they listen,
    whichever the kernel has chosen.
    """
    uid = rules.trainer_uid
    if uid is None:
        return ""
    lines = [f"meta skuid != {uid} accept", 'oif "lo" accept']
    lines += [f"{match} accept" for match in _matches("daddr", rules.peers)]
    lines.append("counter reject with icmpx admin-prohibited")
    return _chain(outgoing_chain(uid), "output", lines)


def _matches(field: str, peers: Sequence[IPv4Address | IPv6Address]) -> list[str]:
    """Return the matches for the peers' addresses, one for each address family."""
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


class NoAnswer(EmulationFailed):
    """nft was ended before it answered, so it is not known whether it works."""


def find_obstacle() -> str | None:
    """Return why this process cannot close ports, or None.

    Changes nothing. It tests everything that is used later, since a kernel may be built without
    some of it.

    Raises:
        NoAnswer: whether there is an obstacle is not known.
    """
    example = GateRules(
        table="benchfarm_check",
        ports=(1, 2),
        peers=(IPv4Address("127.0.0.1"), IPv6Address("::1")),
        trainer_uid=1,
    )
    try:
        run_nft(closing_script(example), "--check")
    except NoAnswer:
        raise
    except EmulationFailed as error:
        return str(error)
    return None


def run_nft(script: str, *options: str) -> str:
    """Run a script, which the kernel applies atomically; return the output.

    Raises:
        EmulationFailed: there is no nft, or the kernel refuses.
    """
    return _run([*options, "--file", "-"], script)


def refused_counts(table: str) -> dict[str, int] | None:
    """Return how many packets each chain of a table has dropped; None without that table.

    Raises:
        EmulationFailed: not known.
    """
    try:
        rules = json.loads(_run(["--json", "list", "table", "inet", table]))["nftables"]
    except EmulationFailed:
        # What nft says of a table that is not there is meant for people.
        tables = json.loads(_run(["--json", "list", "tables"]))["nftables"]
        if any(found.get("table", {}).get("name") == table for found in tables):
            raise
        return None
    counts: dict[str, int] = {}
    for rule in (found["rule"] for found in rules if "rule" in found):
        for part in rule["expr"]:
            if "counter" in part:
                counts[rule["chain"]] = int(part["counter"]["packets"])
    return counts


def tables_with(chain: str) -> list[str]:
    """Return the tables that have a chain of that name. Raises EmulationFailed."""
    found = json.loads(_run(["--json", "list", "chains"]))["nftables"]
    chains = [one["chain"] for one in found if "chain" in one]
    return [one["table"] for one in chains if one["name"] == chain]


def _run(arguments: Sequence[str], script: str = "") -> str:
    program = shutil.which("nft") or shutil.which("nft", path=":".join(PLACES))
    if program is None:
        raise EmulationFailed("nft is not installed (Debian: apt install nftables)")
    try:
        with privilege.handed_on():
            done = subprocess.run(
                [program, *arguments],
                input=script,
                capture_output=True,
                text=True,
                timeout=ANSWER_LIMIT_S,
                env=plain_environment(),
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise NoAnswer(f"nft did not answer within {ANSWER_LIMIT_S:g} s") from error
    except OSError as error:
        raise EmulationFailed(f"nft: {error}") from error
    if done.returncode < 0:
        raise NoAnswer(f"nft was ended by signal {-done.returncode}")
    if done.returncode != 0:
        error_lines = done.stderr.strip().splitlines()
        raise EmulationFailed(
            f"nft: {error_lines[0] if error_lines else f'status {done.returncode}'}"
        )
    return done.stdout
