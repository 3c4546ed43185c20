"""What a farm looks like after a schedule: its store, its disks, its processes, its ports."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import psutil
from sqlalchemy import select
from sqlalchemy.orm import Session

from farm.gang.lifecycle import AttemptState
from farm.store.engine import reading
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.tables import AttemptRow, JobRow, LateReport, RankRow, SpoolPosition
from tests.chaos.farm import LIAR, ChaosFarm
from tests.chaos.spools import SpoolOnDisk, read_spool
from tests.promises.protocol_values import Service, Spooled, StoreValue
from tests.promises.store_snapshot import spooled, store_value, stored_reports

_SERVED = re.compile(r"rank begins.*\btoken=(\d+)|(rank is over)|(agent begins)")
# What an agent keeps from one life to the next, and what each life has.
_KEPT_FILES = frozenset(
    {
        "spool",
        "bundles",  # fetched for scripts, and kept
        "highest_token",
        "lock",
        "template.log",
        "applied_network.lock",
        "closed_ports.lock",
        "closed_ports.log",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`changed_late`: ranks whose end was stored after their attempt's, as (attempt, rank).

    `generations`: attempts that succeeded, to the spools that a rank's counted reports came from.
    `step_counts`: jobs, to the steps that their measurement counts and those they asked for.
    """

    store: StoreValue
    written: tuple[Spooled, ...] = ()
    waiting: tuple[Spooled, ...] = ()
    stored: tuple[Spooled, ...] = ()
    services: tuple[Service, ...] = ()
    changed_late: tuple[tuple[int, int], ...] = ()
    generations: Mapping[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    step_counts: Mapping[int, tuple[int | None, int]] = field(default_factory=dict)
    processes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    network: str = ""


def gather(farm: ChaosFarm) -> Evidence:
    """Look at everything. The farm should have nothing left to do.

    Raises:
        Unreachable: the database does not answer.
    """
    spools = [spool for name in _names(farm) for spool in _spools_of(farm, name)]
    with reading(farm.engine) as session:
        positions = _positions(session)
        stored = tuple(stored_reports(session, but_of=LIAR))
        counted = set(_only_counted(session, spools, set(stored)))
        return Evidence(
            store=store_value(session, now=dt.datetime.now(dt.UTC)),
            written=tuple(
                value
                for s in spools
                for report in s.reports
                if (s.agent_id, s.generation, report.number) not in counted
                for value in spooled(s.agent_id, report)
            ),
            waiting=tuple(
                value
                for s in spools
                for report in s.reports
                if report.number > positions.get((s.agent_id, s.generation), 0)
                for value in spooled(s.agent_id, report)
            ),
            stored=stored,
            services=tuple(s for name in farm.agents for s in services_of(farm, name)),
            changed_late=_changed_late(session),
            generations=_generations(session, spools),
            step_counts=_step_counts(session),
            processes=tuple(_strangers(farm)),
            files=tuple(left_files(farm)),
            ports=tuple(_open_ports(farm)),
            network=read_network(),
        )


def undelivered(farm: ChaosFarm) -> list[str]:
    """Say which living agents have reports that are not confirmed yet."""
    with reading(farm.engine) as session:
        positions = _positions(session)
    found = []
    for name in farm.agents:
        for spool in _spools_of(farm, name):
            confirmed = positions.get((spool.agent_id, spool.generation), 0)
            if spool.reports and spool.reports[-1].number > confirmed:
                waiting = spool.reports[-1].number - confirmed
                found.append(f"{name} has {waiting} reports that are not stored")
    return found


def services_of(farm: ChaosFarm, name: str) -> Iterator[Service]:
    """Read what an agent served from its log, whose lines are the clock."""
    token, begun = None, 0
    lines = (farm.home / "logs" / f"{name}.log").read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        found = _SERVED.search(line)
        if found is None:
            continue
        if token is not None:
            yield Service(agent_id=name, token=token, begun=begun, ended=number)
        token, begun = (int(found[1]), number) if found[1] else (None, number)
    if token is not None:
        yield Service(agent_id=name, token=token, begun=begun, ended=None)


def read_network() -> str:
    """Return what is applied to the interface that the agents share."""
    if shutil.which("tc") is None:
        return ""
    shown = subprocess.run(
        ["tc", "qdisc", "show", "dev", "lo"], capture_output=True, text=True, check=False
    )
    return shown.stdout


def _names(farm: ChaosFarm) -> list[str]:
    return [name for name in farm.processes if name.startswith("agent-")]


def _spools_of(farm: ChaosFarm, name: str) -> list[SpoolOnDisk]:
    agent_id = name.removesuffix("-twin")
    folders = sorted(farm.state_dir(name).glob("spool*"))
    return [read_spool(folder, agent_id) for folder in folders if folder.is_dir()]


def _positions(session: Session) -> dict[tuple[str, str], int]:
    return {
        (p.agent_id, p.generation): p.confirmed_number
        for p in session.scalars(select(SpoolPosition))
    }


def _changed_late(session: Session) -> tuple[tuple[int, int], ...]:
    rows = session.execute(
        select(RankRow.attempt_id, RankRow.rank)
        .join(AttemptRow, AttemptRow.id == RankRow.attempt_id)
        .where(RankRow.ended_at > AttemptRow.ended_at)
    )
    return tuple((token, rank) for token, rank in rows)


def _generations(
    session: Session, spools: Iterable[SpoolOnDisk]
) -> dict[tuple[int, int], frozenset[str]]:
    rows = session.execute(select(LateReport.agent_id, LateReport.generation, LateReport.number))
    late = {tuple(row) for row in rows}
    # Which of a spool's reports did not count is not known where some of them were only counted.
    counted = select(SpoolPosition.agent_id, SpoolPosition.generation)
    unclear = {tuple(row) for row in session.execute(counted.where(SpoolPosition.late_count > 0))}
    found: dict[tuple[int, int], set[str]] = {}
    for spool in spools:
        for report in spool.reports:
            its_own = (spool.agent_id, spool.generation)
            if its_own not in unclear and (*its_own, report.number) not in late:
                found.setdefault((report.token, report.rank), set()).add(spool.generation)
    return {at: frozenset(generations) for at, generations in found.items()}


def _only_counted(
    session: Session, spools: Iterable[SpoolOnDisk], stored: set[Spooled]
) -> Iterator[tuple[str, str, int]]:
    """Name reports that the store has counted and not kept, since their agent had enough late ones.

    None of an attempt that succeeded is among them, and of no spool more than were counted.
    """
    succeeded = set(
        session.scalars(select(AttemptRow.id).where(AttemptRow.state == AttemptState.SUCCEEDED))
    )
    counts = select(
        SpoolPosition.agent_id, SpoolPosition.generation, SpoolPosition.late_count
    ).where(SpoolPosition.late_count > 0)
    late = {(agent_id, generation): n for agent_id, generation, n in session.execute(counts)}
    for spool in spools:
        missing = [
            (spool.agent_id, spool.generation, report.number)
            for report in spool.reports
            if report.token not in succeeded
            if not stored.issuperset(spooled(spool.agent_id, report))
        ]
        yield from missing[: late.get((spool.agent_id, spool.generation), 0)]


def _step_counts(session: Session) -> dict[int, tuple[int | None, int]]:
    rows = session.execute(
        select(MeasurementRow.job_id, MEASUREMENTS.timed_step_count, JobRow.spec)
        .join(JobRow, JobRow.id == MeasurementRow.job_id)
        .where(MeasurementRow.status == "ok")
    )
    return {job_id or 0: (count, spec["steps"]) for job_id, count, spec in rows}


def _strangers(farm: ChaosFarm) -> Iterator[str]:
    """Tell the processes of this farm that should not be there any more."""
    known = {process.pid for process in farm.processes.values()}
    for name in farm.agents:
        known |= {
            p.pid for p in (farm.broker_client_of(name), farm.template_of(name)) if p is not None
        }
    web = psutil.Process(farm.processes["web"].pid)
    known |= {p.pid for p in web.children(recursive=True)}
    mark = str(farm.home)
    for process in psutil.process_iter():
        try:
            is_ours = any(mark in value for value in process.environ().values())
            if is_ours and process.pid not in known and process.status() != "zombie":
                yield f"{process.pid} {' '.join(process.cmdline())[:200]}"
        except psutil.Error:
            continue


def left_files(farm: ChaosFarm) -> Iterator[str]:
    """Name what agents have in their folders that they do not keep, and what is in the farm's."""
    for name in farm.agents:
        for file in farm.state_dir(name).iterdir():
            if file.name not in _KEPT_FILES:
                yield str(file)
    # Celery, gunicorn and others may keep a folder there for as long as they live.
    for file in (farm.home / "tmp").iterdir():
        if not file.name.startswith(("wgunicorn", "pymp-")):
            yield str(file)


def _open_ports(farm: ChaosFarm) -> Iterator[str]:
    ranges = [farm.ports_of(name) for name in farm.agents]
    for connection in psutil.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN:
            port = connection.laddr[1]  # type: ignore[misc] # one that listens has an address
            if any(first <= port <= last for first, last in ranges):
                yield f"port {port} of {connection.pid}"
