"""Strong scaling efficiency of gangs against one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from farm.configuration.axes import AXES
from farm.configuration.axis import AxisKind
from farm.measuring.measurement import OK, scaling_efficiency_ratio
from farm.measuring.noise import disturbance_of_row, undisturbed_first
from farm.statistics import weighted_median


class ScaledMeasurement(Protocol):
    """The attributes that are read here, with all axes. The store's rows have them."""

    @property
    def status(self) -> str: ...
    @property
    def strategy(self) -> str | None: ...
    @property
    def world_size(self) -> int: ...
    @property
    def framework(self) -> str | None: ...
    @property
    def fingerprint(self) -> str | None: ...
    @property
    def throughput_examples_per_s(self) -> float | None: ...
    @property
    def flags(self) -> Sequence[Mapping[str, Any]]: ...


# What one machine must share with a gang to be its baseline. It has no network. A step in another
# precision, of another optimizer or with other input does not do the same work.
_SHARED = tuple(
    axis
    for axis in AXES
    if axis.kind is AxisKind.WORKLOAD
    or axis.name == "global_batch_size"
    or axis.is_of_training
    or axis.is_of_input
)
BaselineKey: TypeAlias = tuple[object, ...]
_SET_UP = tuple(axis for axis in AXES if axis.kind is AxisKind.SETUP)
Baselines = Mapping[BaselineKey, float]  # throughput of one machine, in examples per second


def baselines(measurements: Iterable[ScaledMeasurement]) -> Baselines:
    """Return the throughput of one machine by workload: the median of its repetitions.

    Where several strategies ran on one machine, or one in several ways, the best of them is what a
    gang has to beat. Disturbed repetitions count only where there are no others.
    """
    groups: dict[tuple[BaselineKey, tuple[object, ...]], list[ScaledMeasurement]] = {}
    for row in measurements:
        if row.status == OK and row.world_size == 1 and row.throughput_examples_per_s is not None:
            way = (row.strategy, *(axis.value_measured(row) for axis in _SET_UP))
            groups.setdefault((baseline_key(row), way), []).append(row)
    best: dict[BaselineKey, float] = {}
    for (work, _), rows in groups.items():
        # Weighed as in the medians of cells, so that one machine is as efficient as itself.
        throughputs = [
            (row.throughput_examples_per_s or 0.0, disturbance_of_row(row).weight)
            for row in undisturbed_first(rows, disturbance_of_row)
        ]
        best[work] = max(best.get(work, 0.0), weighted_median(throughputs))
    return best


def efficiency(
    row: ScaledMeasurement, known: Baselines, *, ranks_per_agent: int = 1
) -> float | None:
    """Return the scaling efficiency of a measurement; None without a throughput or a baseline."""
    single = known.get(baseline_key(row))
    if single is None or row.throughput_examples_per_s is None:
        return None
    return scaling_efficiency_ratio(
        throughput_examples_per_s=row.throughput_examples_per_s,
        machine_count=row.world_size // ranks_per_agent,
        single_examples_per_s=single,
    )


def baseline_key(row: ScaledMeasurement) -> BaselineKey:
    """Return the measured configuration without the gang and its network."""
    return (row.framework, row.fingerprint, *(axis.value_measured(row) for axis in _SHARED))
