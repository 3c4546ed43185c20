"""/metrics: metrics of the farm in the text format of Prometheus, all read at the same time."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flask import Blueprint, Response
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm import __version__
from farm.broker.celery_app import open_client
from farm.broker.errors import broker_errors
from farm.broker.health_records import COLLECTOR, SCHEDULER, HealthRecord, read_health_records
from farm.broker.state import QueueLengths, queue_lengths
from farm.gang.lifecycle import JobState
from farm.messages.trainer_lines import FailureKind
from farm.store.agents.agent_keys import keyed_agents
from farm.store.agents.agent_status import AgentStatus, agent_status, is_live
from farm.store.agents.agents import list_agents
from farm.store.dashboard import job_counts
from farm.store.health import failure_counts
from farm.store.reports.late_reports import late_count
from farm.store.tables import AgentRow
from web.backend import backend, now, read_session

_MOST_AGENTS = 10_000
_BROKER_TIMEOUT_S = 1.0
# Agents of machines that were rented and given back would pile up as series. But what an agent
# holds back is missing from the store until it comes, or somebody gives it up.
_SHOWN_AFTER_LAST_BEAT = dt.timedelta(days=1)
_begun_unix_s = time.time()

bp = Blueprint("metrics", __name__)

_LabelledValues = Iterable[tuple[Mapping[str, str], float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmState:
    """The state of store and broker at one time.

    `queues`: None while the broker does not answer.
    """

    now: dt.datetime
    lease_s: float
    jobs: Mapping[JobState, int]
    agents: Sequence[AgentRow]
    late_report_count: int
    failures: Mapping[str, int]
    queues: QueueLengths | None
    records: Sequence[HealthRecord]

    @property
    def live(self) -> list[AgentRow]:
        return [a for a in self.agents if is_live(a, now=self.now, lease_s=self.lease_s)]

    @property
    def shown(self) -> Iterator[AgentRow]:
        """The agents with a recent heartbeat, or with unsent reports and not drained."""
        for agent in self.agents:
            at = agent.heartbeat_at
            is_recent = at is not None and self.now - at < _SHOWN_AFTER_LAST_BEAT
            if is_recent or (agent.backlog_count and not agent.is_drained):
                yield agent


@dataclass(frozen=True, slots=True)
class PrometheusMetric:
    """`kind`: counter or gauge, as Prometheus has them. `read` gives labels and values."""

    name: str
    kind: str
    meaning: str
    read: Callable[[FarmState], _LabelledValues]


def look_at_broker(
    broker_url: str, *, agents: Collection[str]
) -> tuple[QueueLengths | None, Sequence[HealthRecord]]:
    """Return the broker's queue lengths, None while it does not answer, and the health records.

    `agents`: those that have queues of their own.
    """
    try:
        with open_client(broker_url, timeout_s=_BROKER_TIMEOUT_S) as client:
            return queue_lengths(client, agents=agents), read_health_records(client)
    except broker_errors():
        return None, ()


def look_at_store(
    session: Session,
    *,
    now: dt.datetime,
    lease_s: float,
    queues: QueueLengths | None,
    records: Sequence[HealthRecord],
) -> FarmState:
    """Read the part of the state that is in the store."""
    return FarmState(
        now=now,
        lease_s=lease_s,
        jobs=job_counts(session),
        agents=list_agents(session, limit=_MOST_AGENTS),
        late_report_count=late_count(session),
        failures=failure_counts(session),
        queues=queues,
        records=records,
    )


def _of_one(read: Callable[[FarmState], float]) -> Callable[[FarmState], _LabelledValues]:
    def values(seen: FarmState) -> _LabelledValues:
        yield {}, read(seen)

    return values


def _of_agents(read: Callable[[AgentRow], float | None]) -> Callable[[FarmState], _LabelledValues]:
    """Return the last reported value of each agent. It is as old as the agent's heartbeat."""

    def values(seen: FarmState) -> _LabelledValues:
        for agent in seen.shown:
            if (value := read(agent)) is not None:
                yield {"agent": agent.id}, value

    return values


def _agents(seen: FarmState) -> _LabelledValues:
    statuses = Counter(agent_status(a, now=seen.now, lease_s=seen.lease_s) for a in seen.agents)
    for status in AgentStatus:
        yield {"status": status.value}, statuses[status]


def _beat_ages(seen: FarmState) -> _LabelledValues:
    for agent in seen.shown:
        if (at := agent.heartbeat_at) is not None:
            yield {"agent": agent.id}, max(0.0, (seen.now - at).total_seconds())


def _queues(seen: FarmState) -> _LabelledValues:
    if seen.queues is not None:
        for queue, count in seen.queues.counts.items():
            yield {"queue": queue}, count


def _processes(seen: FarmState) -> _LabelledValues:
    if seen.queues is not None:
        counts = Counter(record.process for record in seen.records)
        for process in (SCHEDULER, COLLECTOR):
            yield {"process": process}, counts[process]


def _worked(seen: FarmState) -> _LabelledValues:
    for record in seen.records:
        ids = {"process": record.process, "host": record.host, "pid": str(record.pid)}
        if record.worked_s is not None:
            yield ids, record.worked_s + record.age_s


PROMETHEUS_METRICS = (
    PrometheusMetric(
        "farm_build_info",
        "gauge",
        "What runs here.",
        lambda _: [({"version": __version__}, 1)],
    ),
    PrometheusMetric(
        "farm_jobs",
        "gauge",
        "Jobs by state.",
        lambda seen: (({"state": s.value}, n) for s, n in seen.jobs.items()),
    ),
    PrometheusMetric("farm_agents", "gauge", "Agents ever seen, by status.", _agents),
    PrometheusMetric(
        "farm_agents_live",
        "gauge",
        "Agents with recent heartbeats.",
        _of_one(lambda seen: len(seen.live)),
    ),
    PrometheusMetric(
        "farm_lease_expiries_total",
        "counter",
        "Attempts lost with an agent that was silent for a lease, or cut off for half of one.",
        _of_one(lambda seen: seen.failures.get(FailureKind.AGENT_LOST.value, 0)),
    ),
    PrometheusMetric(
        "farm_attempt_failures_total",
        "counter",
        "Attempts that failed, by kind of failure.",
        lambda seen: (
            ({"kind": kind.value}, seen.failures.get(kind.value, 0)) for kind in FailureKind
        ),
    ),
    PrometheusMetric(
        "farm_late_reports",
        "gauge",
        "Rejected reports: too late, of another agent's rank, or beyond a rank's limits.",
        _of_one(lambda seen: seen.late_report_count),
    ),
    PrometheusMetric(
        "farm_agent_heartbeats_total",
        "counter",
        "Heartbeats of an agent, since its start.",
        _of_agents(lambda agent: agent.beat_counter),
    ),
    PrometheusMetric(
        "farm_agent_heartbeat_age_seconds",
        "gauge",
        "Since the last fresh heartbeat of an agent.",
        _beat_ages,
    ),
    PrometheusMetric(
        "farm_agent_clock_offset_seconds",
        "gauge",
        "An agent's clock minus the server's, including the heartbeat's transit time.",
        _of_agents(lambda agent: agent.clock_offset_s),
    ),
    PrometheusMetric(
        "farm_agent_spool_reports",
        "gauge",
        "Reports on an agent's disk that are not confirmed, as last reported.",
        _of_agents(lambda agent: agent.backlog_count),
    ),
    PrometheusMetric(
        "farm_agent_spool_bytes",
        "gauge",
        "Their size.",
        _of_agents(lambda agent: agent.backlog_bytes),
    ),
    PrometheusMetric(
        "farm_agent_report_lag_seconds",
        "gauge",
        "For how long the oldest of them has waited; 0 where none waits.",
        # Nothing that waits is no lag; not to have told is none at all.
        _of_agents(lambda a: None if a.backlog_count is None else a.report_lag_s or 0.0),
    ),
    PrometheusMetric(
        "farm_agent_disk_free_bytes",
        "gauge",
        "Free space on the disk of an agent's spool.",
        _of_agents(lambda agent: agent.disk_free_bytes),
    ),
    PrometheusMetric(
        "farm_broker_up",
        "gauge",
        "1 if the broker answers within a second.",
        _of_one(lambda seen: seen.queues is not None),
    ),
    PrometheusMetric(
        "farm_queue_messages",
        "gauge",
        "Messages that wait for a collector, those in agents' own queues included.",
        _queues,
    ),
    PrometheusMetric(
        "farm_processes",
        "gauge",
        "Schedulers and collectors with a current health record.",
        _processes,
    ),
    PrometheusMetric(
        "farm_process_worked_ago_seconds",
        "gauge",
        "Since a scheduler's last round, or a collector's last message, without an error.",
        _worked,
    ),
    PrometheusMetric(
        "process_cpu_seconds_total",
        "counter",
        "User and system CPU time of this process.",
        _of_one(lambda _: time.process_time()),
    ),
    PrometheusMetric(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory of this process.",
        _of_one(
            lambda _: (
                int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            )
        ),
    ),
    PrometheusMetric(
        "process_start_time_seconds",
        "gauge",
        "Start of this process, in seconds since 1970.",
        _of_one(lambda _: _begun_unix_s),
    ),
)


@bp.get("/metrics")
def get_metrics() -> ResponseReturnValue:
    """Return the metrics of the farm and of this process for Prometheus."""
    settings = backend().settings
    with read_session() as session:
        agents = keyed_agents(session)
    queues, records = look_at_broker(settings.broker_url, agents=agents)
    with read_session() as session:
        seen = look_at_store(
            session, now=now(), lease_s=settings.lease_s, queues=queues, records=records
        )
    blocks = [family(m.name, m.kind, m.meaning, m.read(seen)) for m in PROMETHEUS_METRICS]
    return Response("".join(blocks), content_type="text/plain; version=0.0.4; charset=utf-8")


def family(name: str, kind: str, meaning: str, values: _LabelledValues) -> str:
    """Write one metric with its help, its type and a line for each set of labels."""
    escaped = meaning.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"]
    for labels, value in values:
        named = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{named}}} {value:.17g}" if named else f"{name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
