"""The history of a cell: what each sweep measured of it, and what changed in between.

Points are compared as `farm.cells.comparison` compares sweeps. Each is compared with the latest
earlier comparable point on the same machines. Points are in the order in which they were stored, so
a clock that steps back changes nothing. Imported measurements belong to no cell.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy.orm import Session

from farm.cells.comparison import CellPair, Verdict, pair_of
from farm.cells.configuration import CellConfiguration, configuration_of
from farm.cells.json_forms import ratio_json, results_json
from farm.cells.table import CellLine, CellState, make_line
from farm.configuration.scripts import VERSION_DIGITS, version_of
from farm.gang.lifecycle import JobState
from farm.measuring.measurement import OK
from farm.measuring.precision import TimeRatio
from farm.recommend.prices import Prices
from farm.store.measurements.history import (
    details_of,
    find_job,
    jobs_of_cell,
    same_cells,
    sweeps_of,
    sweeps_with_cell,
)
from farm.store.measurements.repetitions import latest_runs
from farm.store.sweeps.sweeps import stored_precision
from farm.store.tables import SweepRow
from farm.text.display import byte_count, short_fingerprint
from farm.text.plurals import counted

MOST_SWEEPS = 100  # at once
DEFAULT_SWEEPS = 30
# Of a sweep, from which the correlation of neighbours in time is estimated.
_MOST_RUNS = 2000
_GIB = 2**30
_TENSORFLOW = "TensorFlow"
# Names of software, by the fields of an agent's hardware.
_VERSIONS = {
    _TENSORFLOW: "tensorflow_version",
    "kernel": "kernel",
    "Python": "python_version",
    "Benchfarm": "benchfarm_version",
}

# Of a measurement: its kind of hardware, its framework, and the version of Benchfarm.
_Kind: TypeAlias = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class HistoryPoint:
    """The measurements of a cell by one sweep, on one kind of machine and software.

    `machine` and `software`: over all ranks, by name, as far as they are known; `machine` None:
    nobody knows. `before`: the point that it is compared with; None: there is none, or this one has
    no step time. `changes`: of the software since then. `pair`: both compared.
    """

    sweep_id: int
    sweep_name: str
    measured_at: dt.datetime | None
    line: CellLine
    machine: str | None
    software: Mapping[str, str]
    before: HistoryPoint | None = None
    changes: tuple[str, ...] = ()
    pair: CellPair | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Whether it is slower than before, if that is known; None: not known."""
        return None if self.pair is None else self.pair.change(is_same_machine=True)

    @property
    def ratio(self) -> TimeRatio | None:
        """Its step time over that of `before`."""
        return None if self.pair is None else self.pair.ratio

    @property
    def verdict_text(self) -> str:
        """The verdict for people, or why there is none."""
        if self.verdict is not None:
            return str(self.verdict.value)
        if self.line.state is not CellState.MEASURED:
            return str(self.line.state.value)
        return "first on these machines" if self.line.times_s else "no step time"

    def to_json(self) -> dict[str, object]:
        """Return it in base units; null means not known."""
        return {
            "sweep_id": self.sweep_id,
            "sweep_name": self.sweep_name,
            "job_id": self.line.first_job_id,
            "measured_at": self.measured_at,
            "state": self.line.state.value,
            "machine": self.machine,
            "software": dict(self.software),
            "changes": list(self.changes),
            "compared_with_sweep_id": None if self.before is None else self.before.sweep_id,
            "verdict": None if self.verdict is None else self.verdict.value,
            **ratio_json(self.ratio),
            **results_json(self.line),
        }


@dataclass(frozen=True, kw_only=True)
class CellHistory:
    """`points`: the oldest first. `next_id`: older sweeps have ids below it; None: there is none.

    `job_id`: the job whose cell it is.
    """

    job_id: int
    configuration: CellConfiguration
    points: Sequence[HistoryPoint]
    next_id: int | None

    def to_json(self) -> dict[str, object]:
        """Return it with the newest point first, as lists of the API are."""
        return {
            "job_id": self.job_id,
            "values": self.configuration.values,
            "items": [point.to_json() for point in reversed(self.points)],
            "next": None if self.next_id is None else str(self.next_id),
        }


def read_history(
    session: Session,
    job_id: int,
    *,
    limit: int = DEFAULT_SWEEPS,
    before_id: int | None = None,
) -> CellHistory:
    """Read the history of the cell of a job: its newest `limit` sweeps, of each 100 repetitions.

    A script's versions are one cell. `before_id`: only sweeps with smaller ids.

    Raises:
        NotFound: there is no such job.
    """
    job = find_job(session, job_id)
    configuration = configuration_of(job.spec)
    hashes = list(same_cells(session, [(job.cell_hash, job.spec)]))
    # One more, for what the oldest that is shown is compared with.
    sweep_ids = sweeps_with_cell(session, hashes, before_id=before_id, limit=limit + 1)
    sweeps = sweeps_of(session, sweep_ids)
    by_sweep: dict[int, list[Any]] = {}
    for row in jobs_of_cell(session, hashes, sweep_ids):
        by_sweep.setdefault(row.sweep_id, []).append(row)
    points = _points(session, configuration, _in_order(by_sweep), sweeps)
    shown = set(sweep_ids[:limit])
    return CellHistory(
        job_id=job_id,
        configuration=configuration,
        points=[point for point in points if point.sweep_id in shown],
        next_id=min(shown) if len(sweep_ids) > limit else None,
    )


def _points(
    session: Session,
    configuration: CellConfiguration,
    groups: Sequence[Sequence[Any]],
    sweeps: Mapping[int, SweepRow],
) -> list[HistoryPoint]:
    """Make a point of each group of jobs, compared with the last sure one on like machines."""
    lasts = [last.measurement_id for group in groups if (last := _last_measured(group))]
    details = details_of(session, lasts)
    timelines = {
        sweep_id: latest_runs(session, sweep_id, (), most_jobs=_MOST_RUNS) for sweep_id in sweeps
    }
    points: list[HistoryPoint] = []
    latest: dict[str, HistoryPoint] = {}
    for group in groups:
        sweep = sweeps[group[0].sweep_id]
        line = make_line(
            configuration,
            group,
            precision=stored_precision(sweep),
            single={},
            prices=Prices(),
            timeline=timelines[sweep.id],
        )
        last = _last_measured(group)
        hardware, sha256 = details[last.measurement_id] if last else (None, None)
        machine = _machine(hardware)
        key = machine or f"of unknown hardware {line.fingerprint}"
        point = _point(
            sweep,
            line,
            last,
            machine=machine,
            software={} if last is None else _software(last, hardware, sha256),
            before=latest.get(key) if line.times_s else None,
        )
        points.append(point)
        if line.times_s and (key not in latest or _is_sure(line) >= _is_sure(latest[key].line)):
            latest[key] = point
    return points


def _is_sure(line: CellLine) -> bool:
    """Whether others can be compared with it."""
    return line.statistics.low_s is not None and not line.is_disturbed


def _point(
    sweep: SweepRow,
    line: CellLine,
    last: Any,
    *,
    machine: str | None,
    software: Mapping[str, str],
    before: HistoryPoint | None,
) -> HistoryPoint:
    pair = None
    if before is not None:
        is_sequential = line.precision is not None or before.line.precision is not None
        pair = pair_of(before.line, line, is_sequential=is_sequential)
    return HistoryPoint(
        sweep_id=sweep.id,
        sweep_name=sweep.name,
        measured_at=None if last is None else last.created_at,
        line=line,
        machine=machine,
        software=software,
        before=before,
        changes=() if before is None else _changes(before, software, line.fingerprint),
        pair=pair,
    )


def _in_order(by_sweep: Mapping[int, Sequence[Any]]) -> list[list[Any]]:
    """Return the jobs of each point, in the order in which their measurements were stored.

    What has measured nothing comes after all that older sweeps measured.
    """
    placed: list[tuple[int, int, list[Any]]] = []
    largest = 0
    for sweep_id in sorted(by_sweep):
        for group in _kinds(by_sweep[sweep_id]):
            last_id = max((row.measurement_id or 0 for row in group), default=0)
            largest = max(largest, last_id)
            placed.append((last_id or largest, sweep_id, group))
    return [group for _, _, group in sorted(placed, key=lambda one: one[:2])]


def _kinds(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the jobs of a sweep by hardware and software; those that failed with the largest."""
    kinds: dict[_Kind, list[Any]] = {}
    others: list[Any] = []
    for row in rows:
        if _is_measured(row):
            kind = row.fingerprint, row.framework, row.benchfarm_version
            kinds.setdefault(kind, []).append(row)
        else:
            others.append(row)
    groups = sorted(kinds.values(), key=len, reverse=True)
    if not groups:
        return [others]
    groups[0] += others
    return groups


def _is_measured(row: Any) -> bool:
    return row.state is JobState.SUCCEEDED and row.status == OK


def _last_measured(rows: Sequence[Any]) -> Any:
    measured = (row for row in rows if _is_measured(row))
    return max(measured, key=lambda row: row.measurement_id, default=None)


def _machine(hardware: object) -> str | None:
    """Name the kinds of machines of all ranks without their software; None: nobody knows."""
    kinds = set()
    for rank in _ranks(hardware):
        parts = [str(rank.get("cpu_model", "unknown CPU")), counted(rank["core_count"], "core")]
        memory = rank.get("memory_bytes")
        parts += [] if memory is None else [byte_count(round(memory / _GIB) * _GIB)]
        kinds.add(", ".join([*parts, *map(str, rank.get("accelerators") or ())]))
    return " + ".join(sorted(kinds)) or None


def _software(row: Any, hardware: object, sha256: str | None) -> dict[str, str]:
    """Return the versions of all ranks' software by name, as far as they are known."""
    found: dict[str, set[str]] = {}
    for rank in _ranks(hardware):
        versions = {name: rank.get(field) for name, field in _VERSIONS.items()}
        for name, version in (versions | (rank.get("accelerator_software") or {})).items():
            if version is not None:
                found.setdefault(name, set()).add(str(version))
    named = {name: " + ".join(sorted(versions)) for name, versions in found.items()}
    if row.framework:
        name, _, version = row.framework.partition(" ")
        if name.casefold() == _TENSORFLOW.casefold():
            named.pop(_TENSORFLOW, None)  # the same
        named |= {"framework": row.framework} if not version else {name: version}
    if script := version_of(row.command) or (sha256 or "")[:VERSION_DIGITS]:
        named["script"] = script
    return named


def _ranks(hardware: object) -> list[Mapping[str, Any]]:
    ranks = hardware if isinstance(hardware, list) else []
    return [rank for rank in ranks if isinstance(rank, Mapping) and "core_count" in rank]


def _changes(
    before: HistoryPoint, software: Mapping[str, str], fingerprint: str | None
) -> tuple[str, ...]:
    """Say which software differs, of what is known of both points."""
    found = [
        f"{name} {before.software[name]} -> {version}"
        for name, version in software.items()
        if name in before.software and before.software[name] != version
    ]
    kinds = before.line.fingerprint, fingerprint
    if not found and kinds[0] != kinds[1] and None not in kinds:
        digits = [short_fingerprint(str(kind)) for kind in kinds]
        found.append(f"fingerprint {digits[0]} -> {digits[1]}")
    return tuple(found)
