"""The checks of `farm doctor`: each reads one part of the farm and returns findings.

The checks are independent: each opens its own connections, so one that hangs delays no other.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.orm import Session

from farm import __version__
from farm.broker.celery_app import open_client
from farm.broker.claim import look_at_claim
from farm.broker.errors import broker_errors
from farm.broker.health_records import (
    COLLECTOR,
    EVERY_S,
    SCHEDULER,
    HealthRecord,
    read_health_records,
    record_refusal,
)
from farm.broker.state import connected_client, queue_lengths, read_state
from farm.broker.url import DEFAULT_PORT, authorities_file, is_local_broker
from farm.cli.session import stopped_farm, store
from farm.cli.sweeps.jobs import why_jobs_wait
from farm.diagnosis.agents import (
    AgentCondition,
    LossCounts,
    judge_access,
    judge_agent_disks,
    judge_capabilities,
    judge_clocks,
    judge_heartbeats,
    judge_leases,
    judge_machines,
    judge_ports,
    judge_quotas,
    judge_room,
    judge_spools,
    judge_versions,
)
from farm.diagnosis.broker import foreign_key, judge_broker
from farm.diagnosis.finding import Finding, unknown, well, wrong
from farm.diagnosis.jobs import judge_noise, judge_queue, judge_tracker
from farm.diagnosis.server import (
    CertificateState,
    DatabaseState,
    ProcessState,
    idle_collectors,
    judge_certificates,
    judge_collector,
    judge_database,
    judge_scheduler,
    judge_server_clocks,
)
from farm.errors import FarmError, OtherFarm, Unreachable
from farm.keys.certificates import file_expiries, server_expiry
from farm.messages.envelope import WIRE_VERSION
from farm.messages.trainer_lines import FailureKind
from farm.settings.server import Settings
from farm.store.agents.agent_keys import key_records, keyed_agents
from farm.store.agents.agent_status import is_alive
from farm.store.agents.agents import list_agents
from farm.store.engine import SQLITE, reading, redacted
from farm.store.health import (
    database_bytes,
    database_time,
    failed_attempts,
    server_version,
    succeeded_count,
    write_error,
)
from farm.store.maintenance.partitions import missing_days
from farm.store.reports.late_reports import late_count
from farm.store.schema import revisions
from farm.store.tables import AgentRow, TrackerCursor
from farm.store.tracker_cursors import given_up, pending_jobs
from farm.text.display import byte_count
from farm.trackers import find_tracker

_BROKER_TIMEOUT_S = 3.0
_SECOND_LOOK_S = EVERY_S + 1.0
_LOOK_EVERY_S = 0.2
_MOST_WAITING = 1000
_AN_HOUR = dt.timedelta(hours=1)
_JudgeAgents = Callable[[Sequence[AgentCondition]], list[Finding]]


@dataclass(frozen=True, slots=True)
class Check:
    """`look` may raise FarmError if the checked part does not answer."""

    name: str
    look: Callable[[Settings], list[Finding]]
    needs: str | None = None  # the check that reports why this one cannot run


@contextmanager
def _agents(settings: Settings) -> Iterator[tuple[Session, list[AgentCondition]]]:
    with store(settings) as engine, reading(engine) as session:
        now = dt.datetime.now(dt.UTC)
        rows = list_agents(session, limit=None)
        lease_s = 0.0 if stopped_farm(settings) else settings.lease_s
        yield session, [_condition(row, now=now, lease_s=lease_s) for row in rows]


def _condition(row: AgentRow, *, now: dt.datetime, lease_s: float) -> AgentCondition:
    beat_at, lease_ends_at = row.heartbeat_at, row.lease_expires_at
    silent_s = None if beat_at is None else max(0.0, (now - beat_at).total_seconds())
    hardware = row.facts["hardware"]
    return AgentCondition(
        agent_id=row.id,
        is_live=is_alive(row, now=now, lease_s=lease_s),
        silent_s=silent_s,
        state=row.state,
        trouble=row.facts.get("trouble"),
        is_drained=row.is_drained,
        clock_offset_s=row.clock_offset_s,
        benchfarm_version=hardware["benchfarm_version"],
        tensorflow_version=hardware["tensorflow_version"],
        capabilities=tuple(row.facts["capabilities"]),
        accelerators=tuple(hardware.get("accelerators", ())),
        backlog_count=row.backlog_count,
        backlog_bytes=row.backlog_bytes,
        report_lag_s=row.report_lag_s,
        disk_free_bytes=row.disk_free_bytes,
        attempt_id=row.attempt_id,
        lease_left_s=None if lease_ends_at is None else (lease_ends_at - now).total_seconds(),
        machine_id=row.machine_id,
        address=row.facts["address"],
        cpus=frozenset(row.facts["cpus"]),
    )


def _broker(settings: Settings) -> AbstractContextManager[Any]:
    return connected_client(settings.broker_url, timeout_s=_BROKER_TIMEOUT_S)


def _look_at_broker(settings: Settings) -> list[Finding]:
    with _broker(settings) as client:
        state = read_state(client, settings.broker_url, timeout_s=_BROKER_TIMEOUT_S)
        return judge_broker(dataclasses.replace(state, refusal=record_refusal(client)))


def _look_at_farm(settings: Settings) -> list[Finding]:
    with store(settings) as engine, _broker(settings) as client:
        try:
            found = look_at_claim(engine, client)
        except OtherFarm as error:
            return [wrong(str(error), "see docs/operations.md, Two farms")]
    if found is None:
        return [well("no scheduler or collector has run on this database yet")]
    return [well(f"broker and database are those of farm {found.farm_id[:8]}")]


def _look_at_database(settings: Settings) -> list[Finding]:
    with store(settings) as engine:
        begun_s = time.monotonic()
        with reading(engine) as session:
            version, byte_total = server_version(session), database_bytes(session)
            its_time, our_time = database_time(session), dt.datetime.now(dt.UTC)
        answer_s = time.monotonic() - begun_s
        return judge_database(
            DatabaseState(
                shown_url=redacted(settings.database_url),
                version=version,
                schema=revisions()[-1],
                answer_s=answer_s,
                byte_count=byte_total,
                write_error=write_error(engine),
                clock_offset_s=(its_time - our_time).total_seconds() if its_time else None,
                missing_days=len(missing_days(engine, today=our_time.date())),
            )
        )


def _look_at_scheduler(settings: Settings) -> list[Finding]:
    with _broker(settings) as client:
        records = read_health_records(client)
        refusal = record_refusal(client)
    running = _processes(records, SCHEDULER)
    if not running and refusal is not None:
        return [_no_records(refusal)]
    clocks = judge_server_clocks([*running, *_processes(records, COLLECTOR)])
    return judge_scheduler(running, version=__version__) + clocks


def _look_at_collector(settings: Settings) -> list[Finding]:
    deadline = time.monotonic() + _SECOND_LOOK_S
    agents = _keyed_agents(settings)
    with _broker(settings) as client:
        while True:
            waiting = queue_lengths(client, agents=agents or ())
            running = _processes(read_health_records(client), COLLECTOR)
            if not running and (refusal := record_refusal(client)) is not None:
                return [_no_records(refusal)]
            # A record is some seconds old, and what waits may be the first for hours: a collector
            # that works has emptied the queue, or says that it worked, by the next record.
            is_well = not any(waiting.counts.values()) or not idle_collectors(running)
            if is_well or time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_EVERY_S)
    judged = judge_collector(
        running,
        beat_count=waiting.counts["heartbeats"],
        report_count=waiting.counts["reports"],
        of_agents=waiting.of_agents,
        agent_count=len(agents or ()),
        version=__version__,
    )
    judged += [foreign_key(key, "holds no list") for key in waiting.unreadable]
    if agents is None:
        judged.append(unknown("what waits in queues of the agents' own is not known: see database"))
    return judged


def _keyed_agents(settings: Settings) -> Collection[str] | None:
    """Return the agents that have queues of their own; None: the store does not answer."""
    try:
        with store(settings) as engine, reading(engine) as session:
            return keyed_agents(session)
    except FarmError:
        return None


def _no_records(refusal: str) -> Finding:
    return unknown(
        f"it is not known whether one runs: the broker takes no health records ({refusal})"
    )


def _processes(records: Sequence[HealthRecord], process: str) -> list[ProcessState]:
    return [
        ProcessState(
            name=record.name,
            benchfarm_version=record.benchfarm_version,
            silent_s=record.age_s,
            worked_s=record.worked_s,
            up_s=record.up_s,
            trouble=record.trouble,
            clock_offset_s=record.clock_offset_s,
            clock_step_s=record.clock_step_s,
            clock_step_ago_s=record.clock_step_ago_s,
        )
        for record in records
        if record.process == process
    ]


def _looks_at_agents(*judges: _JudgeAgents) -> Callable[[Settings], list[Finding]]:
    """Return a check that needs only the agents in the store."""

    def look(settings: Settings) -> list[Finding]:
        with _agents(settings) as (_, found):
            return [finding for judge in judges for finding in judge(found)]

    return look


def _health_records(settings: Settings) -> list[HealthRecord]:
    """Return what the server's processes say of themselves; nothing if the broker is away."""
    try:
        with open_client(settings.broker_url, timeout_s=_BROKER_TIMEOUT_S) as client:
            return read_health_records(client)
    except broker_errors():
        return []  # what speaks another version is not heard of either


def _look_at_versions(settings: Settings) -> list[Finding]:
    strangers: dict[str, int] = {}
    for record in _health_records(settings):
        strangers |= record.strangers
    with _agents(settings) as (_, found):
        return judge_versions(
            found, version=__version__, wire_version=WIRE_VERSION, strangers=strangers
        )


def _look_at_access(settings: Settings) -> list[Finding]:
    is_beyond = not is_local_broker(settings.broker_url) or settings.signing_key_file is not None
    with _agents(settings) as (session, found):
        return judge_access(found, keyed=key_records(session), is_beyond=is_beyond)


def _look_at_reports(settings: Settings) -> list[Finding]:
    held_back: Counter[str] = Counter()
    for record in _health_records(settings):
        held_back.update(record.held_back)
    with _agents(settings) as (_, found):
        return judge_quotas(held_back) + judge_spools(found)


def _look_at_leases(settings: Settings) -> list[Finding]:
    with _agents(settings) as (session, found):
        since = dt.datetime.now(dt.UTC) - _AN_HOUR
        reasons = failed_attempts(session, FailureKind.AGENT_LOST, since=since)
        late = late_count(session, since=since)
    losses = LossCounts(lost_attempts=sum(reasons.values()), late_reports=late, reasons=reasons)
    return judge_leases(found, losses)


def _look_at_noise(settings: Settings) -> list[Finding]:
    since = dt.datetime.now(dt.UTC) - _AN_HOUR
    with store(settings) as engine, reading(engine) as session:
        reasons = failed_attempts(session, FailureKind.DISTURBED, since=since)
        return judge_noise(reasons, measured_count=succeeded_count(session, since=since))


def _look_at_disks(settings: Settings) -> list[Finding]:
    folder = _own_folder(settings)
    disk = os.statvfs(folder)
    free_bytes = disk.f_bavail * disk.f_frsize
    found = judge_room(f"the disk of {folder}", free_bytes)
    if not found:
        found = [well(f"{byte_count(free_bytes)} free in {folder}")]
    try:
        with _agents(settings) as (_, conditions):
            return found + judge_agent_disks(conditions)
    except Unreachable:
        return [*found, unknown("what the agents have left is not known: see database")]


def _own_folder(settings: Settings) -> Path:
    """Return the folder of the store's file or of the farm, or the nearest that exists."""
    scheme, _, file = settings.database_url.partition(":///")
    folder = Path(file.partition("?")[0]).parent if scheme.startswith(SQLITE) else settings.home
    return next(f for f in (folder.absolute(), *folder.absolute().parents) if f.exists())


def look_at_certificates(settings: Settings) -> list[Finding]:
    """Check the certificates that the settings name, and that of the broker."""
    certificates: list[CertificateState] = []
    found: list[Finding] = []
    broker = urlsplit(settings.broker_url)
    authorities = authorities_file(settings.broker_url)
    if authorities is not None:
        certificates += _of_file("its authority's", authorities, found, is_authority=True)
        try:
            expires_at = server_expiry(
                broker.hostname or "", broker.port or DEFAULT_PORT, timeout_s=_BROKER_TIMEOUT_S
            )
            certificates.append(CertificateState(whose="the broker's", expires_at=expires_at))
        except (OSError, ValueError):
            found.append(unknown("the broker's is not known: see broker"))
    if settings.web_certificate_file is not None:
        certificates += _of_file("the dashboard's", settings.web_certificate_file, found)
    if found and not certificates:
        return found
    return found + judge_certificates(certificates, now=dt.datetime.now(dt.UTC))


def _of_file(
    whose: str, file: Path, found: list[Finding], *, is_authority: bool = False
) -> list[CertificateState]:
    """Return a file's certificate that expires first; what cannot be read is added to `found`."""
    try:
        expiries = file_expiries(file)
    except (OSError, ValueError) as error:
        found.append(wrong(f"{file} cannot be read: {error}", "name a file with certificates"))
        return []
    if not expiries:
        return []
    return [CertificateState(whose=whose, expires_at=min(expiries), is_authority=is_authority)]


def _look_at_queue(settings: Settings) -> list[Finding]:
    with store(settings) as engine, reading(engine) as session:
        reasons = why_jobs_wait(session, settings)
    return judge_queue(
        waiting_count=len(reasons),
        held_count=sum(reason.is_held for reason in reasons.values()),
        unschedulable={i: reason.text for i, reason in reasons.items() if reason.is_unschedulable},
    )


def _look_at_tracker(settings: Settings) -> list[Finding]:
    with store(settings) as engine, reading(engine) as session:
        if settings.tracker is None:
            return [well("FARM_TRACKER names no experiment tracker")]
        name = find_tracker(settings.tracker)[0].name
        cursor = session.get(TrackerCursor, name)
        if cursor is None:
            return [well(f"{name}: no scheduler has run with it yet")]
        waiting = pending_jobs(session, cursor, limit=_MOST_WAITING)
        oldest_at = min((one.measured_at for one in waiting), default=None)
        now = dt.datetime.now(dt.UTC)
        return judge_tracker(
            name,
            waiting_count=len(waiting),
            lag_s=None if oldest_at is None else (now - oldest_at).total_seconds(),
            given_up_count=len(given_up(cursor)),
            trouble=cursor.trouble,
        )


CHECKS = (
    Check("broker", _look_at_broker),
    Check("database", _look_at_database),
    Check("farm", _look_at_farm, needs="database"),
    Check("scheduler", _look_at_scheduler, needs="broker"),
    Check("collector", _look_at_collector, needs="broker"),
    Check("heartbeats", _looks_at_agents(judge_heartbeats, judge_machines), needs="database"),
    Check("versions", _look_at_versions, needs="database"),
    Check("clocks", _looks_at_agents(judge_clocks), needs="database"),
    Check("capabilities", _looks_at_agents(judge_capabilities), needs="database"),
    Check("ports", _looks_at_agents(judge_ports), needs="database"),
    Check("access", _look_at_access, needs="database"),
    Check("reports", _look_at_reports, needs="database"),
    Check("leases", _look_at_leases, needs="database"),
    Check("noise", _look_at_noise, needs="database"),
    Check("disks", _look_at_disks),
    Check("certificates", look_at_certificates),
    Check("queue", _look_at_queue, needs="database"),
    Check("tracker", _look_at_tracker, needs="database"),
)
