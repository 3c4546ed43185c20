"""What was measured, one value a cell, over all its repetitions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from farm.core.axes import AXES, BY_NAME, Axis, AxisKind, Value
from farm.core.catalogue import GangShape
from farm.core.means import weighted_median
from farm.core.measurement import OK, scaling_efficiency_ratio
from farm.core.noise import UNDISTURBED, Disturbance, disturbance_of_row, undisturbed_first
from farm.core.outliers import outlier_positions
from farm.core.precision import Target, Timeline, cell_inflation, time_interval, timeline_of
from farm.core.scaling import baselines, workload
from farm.core.spec import TrainingPass
from farm.errors import InvalidSpec
from farm.registry import strategy

if TYPE_CHECKING:
    from farm.store.result_tables import MeasurementRow


# The order of cells.
_FIRST = [
    axis for kind in (AxisKind.WORKLOAD, AxisKind.PROFILE) for axis in AXES if axis.kind is kind
]
_THEN = [BY_NAME[name] for name in ("global_batch_size", "world_size", "server_count", "strategy")]
_LAST = [axis for axis in AXES if axis not in (*_FIRST, *_THEN)]

# By job id: rows with the job's `cell_hash` and `spec`, see `farm.store.cell_rows.jobs_of`.
Jobs: TypeAlias = Mapping[int, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """Medians over the successful repetitions of one configuration on one kind of hardware.

    `step_time_low_s` and `_high_s` are the 95 % interval of the median step time over the
    repetitions, None with fewer than 3. `step_time_p25_s` and `_p75_s` are medians of the
    repetitions' quartiles: how much steps differ within a run. `disturbed`: what disturbed those
    runs that were; `set_aside_count` of them do not count, since undisturbed ones do. `target` is
    how the cell of a sweep until precision stands; `outlier_job_ids` are repetitions far from the
    others. `values`: of every axis, by its field. `labels`, `steps` and the like are those of its
    jobs, None where they are not known.
    `expected_bytes_per_step` is what the strategy's theory says one rank sends, and receives.
    `scaling_efficiency_ratio` is strong: against one rank, the same global batch size.
    """

    values: Mapping[str, Value]
    steps: int | None
    epochs: int | None
    warmup_step_count: int | None
    repeat: bool | None
    time_limit_s: float | None
    emulator: str | None
    labels: Mapping[str, str] | None
    fingerprint: str | None
    framework: str | None
    run_count: int
    disturbed: tuple[Disturbance, ...]
    set_aside_count: int
    target: Target | None
    outlier_job_ids: tuple[int, ...]
    step_time_s: float | None
    step_time_low_s: float | None
    step_time_high_s: float | None
    step_time_p25_s: float | None
    step_time_p75_s: float | None
    throughput_examples_per_s: float | None
    scaling_efficiency_ratio: float | None
    cpu_ratio: float | None
    resident_bytes: float | None
    net_rx_bytes_per_s: float | None
    net_tx_bytes_per_s: float | None
    accuracy: float | None
    sent_bytes_per_step: float | None
    received_bytes_per_step: float | None
    expected_bytes_per_step: float | None
    idle_ratio: float | None
    push_s: float | None
    pull_s: float | None
    update_count: float | None
    staleness_mean: float | None
    staleness_max: float | None

    @property
    def half_width_ratio(self) -> float | None:
        """Half of the interval of the step time, over it."""
        if not self.step_time_s or self.step_time_low_s is None or self.step_time_high_s is None:
            return None
        return (self.step_time_high_s - self.step_time_low_s) / 2 / self.step_time_s


def measured_cells(
    rows: Sequence[MeasurementRow],
    jobs: Jobs | None = None,
    targets: Mapping[int, Target] | None = None,
) -> list[MeasuredCell]:
    """Group successful measurements into cells, by batch size and the like.

    `jobs`: those of the measurements, by id. `targets`: job to how its cell stands, where the
    sweep goes on until it is precise.
    """
    groups = grouped(rows, jobs)
    alone = baselines(row for group in groups for row in group)
    timeline = _timeline(groups)
    return [
        _cell(
            group,
            spec=_spec(group[0], jobs or {}),
            single_examples_per_s=alone.get(workload(group[0])),
            targets=targets or {},
            timeline=timeline,
        )
        for group in groups
    ]


def _timeline(groups: Sequence[Sequence[MeasurementRow]]) -> Timeline:
    """Measurements are numbered in the order in which they were made."""
    timed = [
        (row.id or 0, row.job_id, str(number), row.fingerprint, row.step_time_s)
        for number, group in enumerate(groups)
        for row in group
        if row.job_id is not None and row.step_time_s is not None
    ]
    timed.sort(key=itemgetter(0))
    return timeline_of(one[1:] for one in timed)


def grouped(rows: Sequence[MeasurementRow], jobs: Jobs | None = None) -> list[list[MeasurementRow]]:
    """Return the successful measurements by cell, in the cells' order.

    A cell is what it is on pages, the jobs with one `cell_hash`, on one kind of hardware and by one
    framework. The columns of a measurement only sort cells, and group measurements without a job.
    """
    groups: dict[tuple[object, ...], list[MeasurementRow]] = {}
    for row in rows:
        if row.status == OK:
            job = (jobs or {}).get(row.job_id or 0)
            place = _place(row)
            key = place if job is None else (job.cell_hash, row.fingerprint, row.framework)
            groups.setdefault(key, []).append(row)
    lengths = {key: _length(group[0], jobs or {}) for key, group in groups.items()}
    return [groups[key] for key in sorted(groups, key=lambda k: (_place(groups[k][0]), lengths[k]))]


def _spec(row: MeasurementRow, jobs: Jobs) -> Mapping[str, Any]:
    job = jobs.get(row.job_id or 0)
    return {} if job is None else job.spec


def _length(row: MeasurementRow, jobs: Jobs) -> int:
    return _spec(row, jobs).get("steps") or 0


def _place(row: MeasurementRow) -> tuple[object, ...]:
    def at(axes: Iterable[Axis]) -> list[object]:
        return [_sortable(axis, axis.value_measured(row)) for axis in axes]

    return (
        *at(_FIRST),
        row.fingerprint or "",
        row.epochs or 0,
        *at(_THEN),
        row.framework or "",
        *at(_LAST),
    )


def _sortable(axis: Axis, value: Value) -> str | float:
    if value is None:
        return math.inf if axis.is_number else ""
    return value


def _cell(
    group: Sequence[MeasurementRow],
    *,
    spec: Mapping[str, Any],
    single_examples_per_s: float | None,
    targets: Mapping[int, Target],
    timeline: Timeline,
) -> MeasuredCell:
    disturbed = [disturbance_of_row(row) for row in group]
    all_count, group = len(group), undisturbed_first(group, disturbance_of_row)
    first = group[0]
    timed = [(row.job_id, row.step_time_s) for row in group if row.step_time_s]
    times_s = [time_s for _, time_s in timed]
    target = targets.get(first.job_id) if first.job_id is not None else None
    job_ids = [job_id or 0 for job_id, _ in timed]
    interval = time_interval(
        times_s, is_sequential=target is not None, inflation=cell_inflation(job_ids, timeline)
    )
    far = [timed[position][0] for position in outlier_positions(times_s)]
    throughput = _median(group, "throughput_examples_per_s")
    return MeasuredCell(
        values={axis.field: axis.value_measured(first) for axis in AXES},
        epochs=first.epochs,
        steps=spec.get("steps"),
        warmup_step_count=spec.get("warmup_step_count"),
        repeat=spec.get("repeat"),
        time_limit_s=spec.get("time_limit_s"),
        emulator=spec.get("emulator"),
        labels=spec.get("labels"),
        fingerprint=first.fingerprint,
        framework=first.framework,
        run_count=len(group),
        disturbed=tuple(one for one in disturbed if one != UNDISTURBED),
        set_aside_count=all_count - len(group),
        target=target,
        outlier_job_ids=tuple(job_id for job_id in far if job_id is not None),
        step_time_s=_median(group, "step_time_s"),
        step_time_low_s=interval.low_s if interval else None,
        step_time_high_s=interval.high_s if interval else None,
        step_time_p25_s=_median(group, "step_time_p25_s"),
        step_time_p75_s=_median(group, "step_time_p75_s"),
        throughput_examples_per_s=throughput,
        scaling_efficiency_ratio=_efficiency(throughput, first.world_size, single_examples_per_s),
        cpu_ratio=_median(group, "cpu_ratio"),
        resident_bytes=_median(group, "resident_bytes"),
        net_rx_bytes_per_s=_median(group, "net_rx_bytes_per_s"),
        net_tx_bytes_per_s=_median(group, "net_tx_bytes_per_s"),
        accuracy=_median(group, "accuracy"),
        sent_bytes_per_step=_median(group, "sent_bytes_per_step"),
        received_bytes_per_step=_median(group, "received_bytes_per_step"),
        expected_bytes_per_step=_expected_bytes_per_step(first),
        idle_ratio=_median(group, "idle_ratio"),
        push_s=_median(group, "push_s"),
        pull_s=_median(group, "pull_s"),
        update_count=_median(group, "update_count"),
        staleness_mean=_median(group, "staleness_mean"),
        staleness_max=_median(group, "staleness_max"),
    )


def _efficiency(
    throughput_examples_per_s: float | None, world_size: int, single_examples_per_s: float | None
) -> float | None:
    if throughput_examples_per_s is None or not single_examples_per_s:
        return None
    return scaling_efficiency_ratio(
        throughput_examples_per_s=throughput_examples_per_s,
        world_size=world_size,
        single_examples_per_s=single_examples_per_s,
    )


def _expected_bytes_per_step(row: MeasurementRow) -> float | None:
    """Ask the strategy; None where nothing is exchanged or this program does not know it."""
    is_training = row.training_pass == TrainingPass.FORWARD_BACKWARD.value
    if row.strategy is None or row.gradient_bytes is None or not is_training:
        return None
    try:
        described = strategy(row.strategy)
    except InvalidSpec:
        return None
    return described.traffic(
        GangShape(
            world_size=row.world_size,
            server_count=row.server_count,
            steps_between_averages=row.steps_between_averages or 1,
        ),
        row.gradient_bytes,
    ).bytes


def _median(group: Sequence[MeasurementRow], name: str) -> float | None:
    """Return the median of what was measured, disturbed runs by their weight as in answers."""
    values = [
        (value, disturbance_of_row(row).weight)
        for row in group
        if (value := getattr(row, name)) is not None
    ]
    return weighted_median(values) if values else None
