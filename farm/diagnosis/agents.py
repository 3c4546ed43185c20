"""Checks agents: heartbeats, versions, clocks, disks, backlogs, keys and port protection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.catalogue import TORCH
from farm.configuration.spec import EXACT_EMULATION, TCP_PROXY, TENSORFLOW
from farm.diagnosis.finding import Finding, doubt, list_names, well, wrong
from farm.messages.agents import CLOCK_TOLERANCE_S, CLOSES_PORTS, TRAINER_USER, AgentState
from farm.placement.agent_index import SHARES_CORES
from farm.text.display import byte_count, duration
from farm.text.plurals import counted

# Silent for longer than this, an agent is no news.
_GONE_S = 86400.0
_LAG_S = 30.0
_LONG_LAG_S = 600.0
_LITTLE_BYTES = 1_000_000_000
_LEAST_BYTES = 200_000_000
_GRACE_S = 5.0  # in which a scheduler takes a lease away that has run out


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCondition:
    """An agent's state in the store. `silent_s`: time since its last fresh heartbeat.

    `lease_left_s`: None without a lease; negative: it ran out so long ago.
    """

    agent_id: str
    is_live: bool
    silent_s: float | None
    state: AgentState
    trouble: str | None = None
    is_drained: bool = False
    clock_offset_s: float | None = None
    benchfarm_version: str = ""
    tensorflow_version: str | None = None
    capabilities: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    backlog_count: int | None = None
    backlog_bytes: int | None = None
    report_lag_s: float | None = None
    disk_free_bytes: int | None = None
    attempt_id: int | None = None
    lease_left_s: float | None = None
    machine_id: str = ""
    address: str = ""
    cpus: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCounts:
    """What went wrong in the last hour."""

    lost_attempts: int
    late_reports: int
    reasons: Mapping[str, int]  # of the lost attempts, in the scheduler's words


def judge_heartbeats(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Report which agents are alive, silent, or take no rank."""
    live = [a for a in agents if a.is_live]
    start = (
        "start one with `farm-agent` on each machine; its log says what keeps it from the broker"
    )
    if not live:
        seen = "no agent has ever reported" if not agents else "no agent is alive"
        return [wrong(seen, start), *_silent(agents)]
    busy = sum(a.attempt_id is not None for a in live)
    found = [well(f"{counted(len(live), 'agent')} alive, {busy} of them at work"), *_silent(agents)]
    found += [
        wrong(f"{a.agent_id} takes no rank: {a.trouble}", "repair that; it continues by itself")
        for a in live
        if a.trouble is not None
    ]
    if drained := [a.agent_id for a in live if a.is_drained]:
        found.append(
            doubt(
                f"drained, and so without new ranks: {list_names(drained)}",
                "`farm drain --resume AGENT` lets it take ranks again",
            )
        )
    return found


def _silent(agents: Sequence[AgentCondition]) -> list[Finding]:
    found = []
    if left := [a.agent_id for a in agents if not a.is_live and a.state is AgentState.LEAVING]:
        found.append(well(f"told to stop: {list_names(left)}"))
    known = [(a.agent_id, a.silent_s) for a in agents if not a.is_live and a.agent_id not in left]
    if lately := [
        f"{name} for {duration(s)}" for name, s in known if s is not None and s < _GONE_S
    ]:
        found.append(
            doubt(
                f"silent: {list_names(lately)}",
                "see whether the machine is up and reaches the broker, and look at the agent's log "
                "(`journalctl -u farm-agent`)",
            )
        )
    if never := [name for name, silent_s in known if silent_s is None]:
        found.append(
            doubt(
                f"seen, but not known to be alive: {list_names(never)}",
                "wait for its second heartbeat; if none comes, it does not hear the server's "
                "answers: look whether the collector runs",
            )
        )
    return found


def judge_machines(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Name agents that are taken for one machine, though they may be several."""
    machines: dict[str, list[AgentCondition]] = {}
    for one in agents:
        if one.is_live and one.machine_id:
            machines.setdefault(one.machine_id, []).append(one)
    found = []
    for own in machines.values():
        names = [one.agent_id for one in own if any(_is_clone(one, other) for other in own)]
        if names:
            found.append(
                doubt(
                    f"{list_names(names)} have different addresses and the same machine id, so "
                    "they are taken for one machine, whose cores only one of them uses at a time",
                    "where they are VMs cloned from one image, give each an id of its own, `rm "
                    "/etc/machine-id && systemd-machine-id-setup`, and restart its agent; where "
                    "they are containers of one host, give them disjoint AGENT_CPUS",
                )
            )
    return found


def _is_clone(one: AgentCondition, other: AgentCondition) -> bool:
    may_share = SHARES_CORES in one.capabilities and SHARES_CORES in other.capabilities
    return one.address != other.address and not may_share and not one.cpus.isdisjoint(other.cpus)


def judge_versions(
    agents: Sequence[AgentCondition],
    *,
    version: str,
    wire_version: int,
    strangers: Mapping[str, int],
) -> list[Finding]:
    """Compare versions with ours. `strangers`: who speaks another wire version, and which."""
    live = [a for a in agents if a.is_live]
    found = [
        wrong(
            f"{agent_id} speaks wire version {spoken}, and this farm {wire_version}: nothing of it "
            "is taken",
            f"install benchfarm {version} on its machine and restart farm-agent; its reports wait "
            "on its disk",
        )
        for agent_id, spoken in sorted(strangers.items())
    ]
    if others := [a for a in live if a.benchfarm_version != version]:
        text = list_names([f"{a.agent_id} {a.benchfarm_version}" for a in others])
        found.append(
            doubt(
                f"of another benchfarm than {version}: {text}",
                "install the same everywhere, so that measurements are comparable",
            )
        )
    frameworks = Counter(a.tensorflow_version for a in live)
    if len(frameworks) > 1:
        parts = [f"{n} with {v or 'none'}" for v, n in frameworks.most_common()]
        found.append(
            doubt(
                f"TensorFlow differs: {', '.join(parts)}",
                "a gang is made of agents of one version only; install one everywhere",
            )
        )
    if not found:
        framework = next(iter(frameworks), None)
        with_framework = f", TensorFlow {framework}" if framework else ""
        return [well(f"benchfarm {version}, wire version {wire_version}{with_framework}")]
    return found


def judge_clocks(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Report wrong clocks. They affect no measurement, but make logs hard to compare."""
    offsets = [(a.agent_id, a.clock_offset_s) for a in agents if a.is_live and a.clock_offset_s]
    off = [(name, offset_s) for name, offset_s in offsets if abs(offset_s) > CLOCK_TOLERANCE_S]
    if not off:
        most_s = max((abs(offset_s) for _, offset_s in offsets), default=0.0)
        return [well(f"the agents' clocks are within {duration(most_s)} of the server's")]
    return [
        doubt(
            f"{name}'s clock is {duration(abs(offset_s))} "
            f"{'ahead of' if offset_s > 0 else 'behind'} the server's",
            "let its machine follow a time server (chrony, systemd-timesyncd); measurements and "
            "leases do not rest on it, but logs cannot be compared",
        )
        for name, offset_s in sorted(off)
    ]


def judge_capabilities(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Report what the farm can serve, and what no agent can."""
    live = [a for a in agents if a.is_live]
    if not live:
        return [well("no agent is alive")]
    able = Counter(c for a in live for c in a.capabilities)
    shaping = f"{able[EXACT_EMULATION]} of {len(live)} can shape networks"
    if able[TCP_PROXY] and not able[EXACT_EMULATION]:
        shaping += f" ({able[TCP_PROXY]} can by a proxy, approximately)"
    with_gpu = sum(bool(a.accelerators) for a in live)
    parts = [shaping, f"{with_gpu} have GPUs", f"{able[TORCH]} have PyTorch"]
    found = [well(", ".join(parts))]
    if not able[EXACT_EMULATION]:
        found = [
            doubt(
                f"no agent can shape networks as they are; {', '.join(parts[1:])}",
                "jobs with a delay, loss or bandwidth wait: run agents with CAP_NET_ADMIN and tc "
                '(docs/networks.md), or ask for emulator = "tcp_proxy"',
            )
        ]
    without = [a for a in live if TENSORFLOW not in a.capabilities]
    if only_torch := [a.agent_id for a in without if _has_torch(a)]:
        found.append(
            doubt(
                f"without TensorFlow: {list_names(only_torch)}",
                "jobs of PyTorch alone run there; install benchfarm with [agent] for the others",
            )
        )
    if idle := [a.agent_id for a in without if not _has_torch(a)]:
        found.append(
            doubt(
                f"without TensorFlow and PyTorch: {list_names(idle)}",
                "install benchfarm with [agent] there; it can serve no job",
            )
        )
    return found


def judge_spools(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Report unsent reports of agents, and their age."""
    live = [a for a in agents if a.is_live]
    found = [
        wrong(
            f"{a.agent_id} takes no rank: its spool is full, or its disk",
            "see whether the collector runs and keeps up; AGENT_SPOOL_MAX_BYTES is the limit",
        )
        for a in live
        if a.state is AgentState.SPOOL_FULL
    ]
    for agent in live:
        lag_s = agent.report_lag_s or 0.0
        if lag_s > _LAG_S:
            held = counted(agent.backlog_count or 0, "report")
            what = (
                f"{agent.agent_id} holds back {held} ({byte_count(agent.backlog_bytes)}), the "
                f"oldest for {duration(lag_s)}"
            )
            judge = wrong if lag_s > _LONG_LAG_S else doubt
            found.append(judge(what, "look whether the collector keeps up, and at its log"))
    if found:
        return found
    total = sum(a.backlog_count or 0 for a in live)
    most_s = max((a.report_lag_s or 0.0 for a in live), default=0.0)
    return [well(f"{counted(total, 'report')} on the way, the oldest for {duration(most_s)}")]


def judge_quotas(held_back: Mapping[str, int]) -> list[Finding]:
    """Report agents that exceed their quotas, and the number of dropped messages."""
    return [
        wrong(
            f"{agent_id} sends more than its quota: {counted(count, 'message')} dropped",
            "an agent that returns with a large backlog is served in time; if it is none, its key "
            f"was stolen, or without keys its name: `farm agent remove {agent_id}`",
        )
        for agent_id, count in sorted(held_back.items(), key=lambda item: -item[1])
    ]


def judge_leases(agents: Sequence[AgentCondition], losses: LossCounts) -> list[Finding]:
    """Report leases that expired, now and within the last hour."""
    found = [
        wrong(
            f"the lease of {a.agent_id} for attempt {a.attempt_id} ran out "
            f"{duration(-a.lease_left_s)} ago, and nobody has ended the attempt",
            "see whether the scheduler runs",
        )
        for a in agents
        if a.attempt_id is not None and a.lease_left_s is not None and a.lease_left_s < -_GRACE_S
    ]
    if losses.lost_attempts:
        most = Counter(losses.reasons).most_common()
        reasons = [one if count == 1 else f"{one}, {count} times" for one, count in most]
        why = f" ({list_names(reasons)})" if most else ""
        found.append(
            doubt(
                f"{counted(losses.lost_attempts, 'attempt')} of the last hour ended since an agent "
                f"was lost{why}",
                "look at those machines' load, network and log; their jobs were retried",
            )
        )
    if losses.late_reports:
        found.append(
            doubt(
                f"{counted(losses.late_reports, 'report')} of the last hour came late and do not "
                "count",
                "nothing where an agent sent what it had after its attempt was over; the agent's "
                "page says how many are whose",
            )
        )
    return found or [well("no lease has run out in the last hour")]


def judge_agent_disks(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Report disks that are nearly full."""
    found = []
    for agent in agents:
        free = agent.disk_free_bytes
        if agent.is_live and free is not None:
            found += judge_room(f"{agent.agent_id}'s disk", free)
    return found


def judge_room(whose: str, free_bytes: int) -> list[Finding]:
    """Check the free space of a disk; no finding if it is enough."""
    if free_bytes >= _LITTLE_BYTES:
        return []
    judge = wrong if free_bytes < _LEAST_BYTES else doubt
    what = f"{whose} has only {byte_count(free_bytes)} left"
    return [
        judge(what, "free some space: a full disk ends ranks, and stops everything stored there")
    ]


def _has_torch(agent: AgentCondition) -> bool:
    return TORCH in agent.capabilities


def judge_access(
    agents: Sequence[AgentCondition], *, keyed: Collection[str], is_beyond: bool
) -> list[Finding]:
    """Name agents without a key, and live ones whose trainers run as the agent itself.

    `keyed`: who has a key that counts. `is_beyond`: the broker is on another machine than the
    server, or may be, so that messages are signed.
    """
    if not is_beyond:
        return [well("the broker is on loopback: this farm is of one machine")]
    found = []
    if keyless := [a.agent_id for a in agents if a.agent_id not in keyed]:
        found.append(
            wrong(
                f"without a valid key: {list_names(keyless)}; their messages are refused",
                "`farm agent add NAME` prints what to install there",
            )
        )
    live = [a for a in agents if a.is_live]
    if alike := [a.agent_id for a in live if TRAINER_USER not in a.capabilities]:
        found.append(
            doubt(
                "trainers run as the agent's own user, and can read its files: "
                f"{list_names(alike)}",
                "set AGENT_TRAINER_USER there (docs/security.md)",
            )
        )
    return found or [well("every agent has a key, and its trainers a user of their own")]


def judge_ports(agents: Sequence[AgentCondition]) -> list[Finding]:
    """Name the live agents that leave their ranks' ports open to everybody."""
    live = [a for a in agents if a.is_live]
    if not live:
        return [well("no agent is alive, so no port of a gang is open")]
    if leaving := [a.agent_id for a in live if CLOSES_PORTS not in a.capabilities]:
        return [
            doubt(
                f"the trainers' ports of {list_names(leaving)} are open to any host that reaches "
                "them",
                "run these agents with CAP_NET_ADMIN and nft, or have a firewall open "
                "AGENT_PORT_RANGE to the other agents alone (docs/security.md)",
            )
        ]
    return [well(f"{counted(len(live), 'agent')} open a gang's ports to its peers alone")]
