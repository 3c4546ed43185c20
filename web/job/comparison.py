"""What a job is compared with: like configurations with one axis changed, and their ratio to it.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from farm.core.means import mean
from farm.core.measurement import quantile
from farm.core.nouns import counted
from farm.core.spec import JobSpec, NetworkProfile
from farm.figures.display import bit_rate, count, duration, percent
from farm.store.neighbours import Neighbour
from web.setup_words import setup_words

_MOST_OF_AN_AXIS = 12
# Axes in the order in which a page has them.
_SIZE, _BATCH, _STRATEGY = "world size", "global batch size", "strategy"
_PASS = "pass"
_SERVERS, _DELAY, _JITTER = "servers", "one-way delay", "jitter"
_LOSS, _BANDWIDTH = "packet loss", "bandwidth"
# Settings of a job by their names there.
_SETTINGS = {
    "server_placement": "servers are",
    "replicas_per_rank": "replicas per rank",
    "steps_between_averages": "steps between averages",
    "placement": "placement",
    "batch_split": "batch split",
    "interface": "network",
}
_AXES = (
    *(_SIZE, _BATCH, _PASS, _STRATEGY, _SERVERS, *_SETTINGS.values()),
    *(_DELAY, _JITTER, _LOSS, _BANDWIDTH),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The measurements of one configuration that differs in `axis` alone; times are medians.

    The ratios are its value over the job's; None where either was not measured. `job_id` is the
    latest of them.
    """

    axis: str
    value: str
    job_id: int
    repetition_count: int
    step_time_s: float
    step_ratio: float | None
    throughput_examples_per_s: float | None
    throughput_ratio: float | None
    is_disturbed: bool


@dataclass(frozen=True, slots=True)
class _Cell:
    axis: str
    key: float | str
    value: str
    rows: list[Neighbour]


def compare(
    spec: JobSpec,
    neighbours: Sequence[Neighbour],
    *,
    step_time_s: float | None,
    throughput_examples_per_s: float | None,
) -> list[Compared]:
    """Group neighbours, the latest first, into configurations, and hold them against the job."""
    cells: dict[object, _Cell] = {}
    for row in neighbours:
        axis, key, value = _difference(spec, row)
        # Kinds of hardware and of emulators stay apart, as everywhere.
        setup = tuple(setup_words(row))
        identity = (axis, key, row.strategy, setup, row.network, row.fingerprint)
        cells.setdefault(identity, _Cell(axis, key, value, [])).rows.append(row)
    found: list[Compared] = []
    for axis in _AXES:
        of_axis = [cell for cell in cells.values() if cell.axis == axis]
        latest = of_axis[:_MOST_OF_AN_AXIS]
        latest.sort(key=lambda cell: (isinstance(cell.key, str), cell.key))
        found += [_compared(cell, step_time_s, throughput_examples_per_s) for cell in latest]
    return found


def _compared(
    cell: _Cell, step_time_s: float | None, throughput_examples_per_s: float | None
) -> Compared:
    times_s = sorted(row.step_time_s for row in cell.rows)
    median_s = quantile(times_s, 0.5)
    throughput = mean(row.throughput_examples_per_s for row in cell.rows)
    return Compared(
        axis=cell.axis,
        value=cell.value,
        job_id=cell.rows[0].job_id,
        repetition_count=len(cell.rows),
        step_time_s=median_s,
        step_ratio=median_s / step_time_s if step_time_s else None,
        throughput_examples_per_s=throughput,
        throughput_ratio=throughput / throughput_examples_per_s
        if throughput is not None and throughput_examples_per_s
        else None,
        is_disturbed=any(row.is_disturbed for row in cell.rows),
    )


def _difference(spec: JobSpec, row: Neighbour) -> tuple[str, float | str, str]:
    """Return the axis in which a neighbour differs, its value to sort by, and as it is written."""
    if row.world_size != spec.world_size:
        machines = counted(row.world_size, "machine")
        is_other = row.strategy != spec.strategy
        return _SIZE, row.world_size, f"{machines}, {row.strategy}" if is_other else machines
    if row.global_batch_size != spec.global_batch_size:
        return _BATCH, row.global_batch_size, f"{count(row.global_batch_size)} examples"
    if row.training_pass != spec.training_pass.value:
        written = row.training_pass.replace("_", " + ")
        return _PASS, written, written
    network = spec.network or NetworkProfile()
    if row.strategy != spec.strategy:
        name = ", ".join([row.strategy or "unnamed", *setup_words(row)])
        return _STRATEGY, name, name
    if row.server_count != spec.server_count:
        return _SERVERS, row.server_count, counted(row.server_count, "server")
    for setting, axis in _SETTINGS.items():
        own, value = getattr(spec, setting), getattr(row, setting)
        own = getattr(own, "value", own)
        is_told = setting != "server_placement" or spec.server_count
        if is_told and value != own:
            written = "the usual one" if value is None else str(value).replace("_", " ")
            return axis, value if isinstance(value, int) else written, written
    if row.one_way_delay_s != network.one_way_delay_s:
        return _DELAY, row.one_way_delay_s, f"{duration(row.one_way_delay_s)} one way"
    if row.jitter_s != network.jitter_s:
        return _JITTER, row.jitter_s, f"± {duration(row.jitter_s)}"
    if row.packet_loss_ratio != network.packet_loss_ratio:
        return _LOSS, row.packet_loss_ratio, f"{percent(row.packet_loss_ratio, 2)} lost"
    limit = row.bandwidth_bytes_per_s
    # Not limited is more than any limit, and comes last.
    return _BANDWIDTH, limit or float("inf"), bit_rate(limit) if limit else "not limited"
