"""The program `nft`, which sets the kernel's packet filter. It needs CAP_NET_ADMIN."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from farm.errors import EmulationFailed
from worker_agent.network.environment import plain_environment
from worker_agent.network.gate_rules import GateRules, closing_script
from worker_agent.trainer_process import privilege

ANSWER_LIMIT_S = 10.0
# Where distributions put it, which is not in every user's path.
PLACES = ("/usr/sbin", "/sbin", "/usr/local/sbin")


class NoAnswer(EmulationFailed):
    """nft was ended before it answered, so nobody knows whether it can do what it was asked."""


def find_obstacle() -> str | None:
    """Return what keeps this process from closing ports, or None. Changes nothing.

    The kernel is asked with all that is used later, of which it may have been built without.

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
    """Run a script, which the kernel takes whole or not at all; return what was said.

    Raises:
        EmulationFailed: there is no nft, or the kernel refuses.
    """
    return _run([*options, "--file", "-"], script)


def refused_counts(table: str) -> dict[str, int] | None:
    """Return how many packets each chain of a table has turned away; None without that table.

    Raises:
        EmulationFailed: nobody can say.
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
    program = _find()
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
        said = done.stderr.strip().splitlines()
        raise EmulationFailed(f"nft: {said[0] if said else f'status {done.returncode}'}")
    return done.stdout


def _find() -> str | None:
    return shutil.which("nft") or shutil.which("nft", path=":".join(PLACES))
