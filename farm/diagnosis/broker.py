"""Checks the settings and the state of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from farm.diagnosis.finding import Finding, doubt, well, wrong
from farm.text.display import byte_count, duration

OLDEST_VERSION = (6, 0)
SLOW_S = 0.05
_CROWDED_RATIO = 0.9
_FULL_RATIO = 0.8


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A key of the farm's that holds another type than the farm's."""

    name: str
    holds: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The state that a Redis reports; None: it does not report it, as many hosted ones.

    `account`: who asks. `forbidden`: what it may not, such as "INFO", which tells the version.
    `latency_s`: the shortest of some pings. `refuses_strangers`: whether somebody without a
    password, or a certificate, is refused. `limit_bytes`: 0 for none. `refusal`: why it takes no
    message. `foreign`: keys that another program has written.
    """

    shown_url: str  # without its password
    is_local: bool
    account: str = "default"
    forbidden: tuple[str, ...] = ()
    version: str | None
    latency_s: float
    refuses_strangers: bool | None
    keeps_log: bool | None  # appendonly
    keeps_snapshots: bool | None
    last_write_failed: bool = False  # of either
    eviction: str | None = None
    used_bytes: int = 0
    limit_bytes: int = 0
    client_count: int = 0
    client_limit: int | None = None
    refusal: str | None = None
    foreign: tuple[ForeignKey, ...] = ()


def judge_broker(state: BrokerState) -> list[Finding]:
    """Judge a broker that answers."""
    latency = duration(state.latency_s)
    shown = "Redis" if state.version is None else f"Redis {state.version}"
    found = [well(f"{shown} at {state.shown_url} answers within {latency}")]
    if state.version is not None and _version(state.version) < OLDEST_VERSION:
        needed = ".".join(map(str, OLDEST_VERSION))
        found.append(wrong(f"Redis {state.version} is too old", f"install {needed} or newer"))
    if state.latency_s > SLOW_S:
        found.append(
            doubt(
                f"an answer takes {latency}",
                "look at its machine's load and at the network; every report waits for it",
            )
        )
    return found + _hidden(state) + _keeping(state) + _access(state) + _room(state)


_HIDDEN = {
    "INFO": "version, memory, connections and what it keeps on disk",
    "CONFIG GET": "whether it keeps snapshots",
}


def _hidden(state: BrokerState) -> list[Finding]:
    return [
        doubt(
            f"{_HIDDEN[command]} is not known: its account {state.account!r} may not run {command}",
            f"grant it that (`ACL SETUSER {state.account} +{command.lower().replace(' ', '|')}`)",
        )
        for command in state.forbidden
        # Snapshots matter only to who keeps no log.
        if command != "CONFIG GET" or not state.keeps_log
    ]


def _keeping(state: BrokerState) -> list[Finding]:
    found = []
    if state.last_write_failed:
        found.append(
            wrong(
                "its last write to disk failed, and it may refuse every message",
                "look at its log and its disk; it is full, or its permissions are wrong",
            )
        )
    if state.keeps_log is False:
        also = "; it keeps nothing at all" if state.keeps_snapshots is False else ""
        found.append(
            doubt(
                f"a restart of Redis loses its queued messages (appendonly is off{also})",
                "set `appendonly yes` and `appendfsync everysec`; agents send again what is not "
                "confirmed, so only time is lost",
            )
        )
    if state.eviction is not None and state.eviction != "noeviction":
        # Queues have no end of life: of these only health records can be dropped.
        level = doubt if state.eviction.startswith("volatile-") else wrong
        found.append(
            level(
                f"it drops messages when its memory is full (maxmemory-policy {state.eviction})",
                "set `maxmemory-policy noeviction`",
            )
        )
    return found


def _access(state: BrokerState) -> list[Finding]:
    if state.refuses_strangers is not False or state.is_local:
        return []
    return [
        wrong(
            "it requires no password: any host that reaches it can read and send everything",
            "set `requirepass`, and the password in FARM_BROKER_URL of server and agents",
        )
    ]


def foreign_key(name: str, what: str) -> Finding:
    """Report a key of the farm that has the wrong type."""
    return wrong(
        f"its key {name} {what}: another program writes here",
        f"`redis-cli DEL {name}`, and give each program a database of its own in Redis",
    )


def _room(state: BrokerState) -> list[Finding]:
    found = [
        foreign_key(key.name, f"holds a {key.holds} and not a {key.expected}")
        for key in state.foreign
    ]
    if state.refusal is not None:
        found.append(
            wrong(
                f"it takes no messages: {state.refusal}",
                "where it is full raise `maxmemory`, and see whether the collector runs: it "
                "empties the queues",
            )
        )
    if state.limit_bytes and state.used_bytes > _FULL_RATIO * state.limit_bytes:
        used = f"{byte_count(state.used_bytes)} of {byte_count(state.limit_bytes)}"
        found.append(
            wrong(
                f"its memory is nearly used up ({used})",
                "raise `maxmemory`, and see whether the collector runs: it empties the queues",
            )
        )
    limit = state.client_limit
    if limit and state.client_count > _CROWDED_RATIO * limit:
        found.append(
            wrong(
                f"{state.client_count} of {limit} connections are taken",
                "raise `maxclients`: an agent takes about four",
            )
        )
    return found


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)
