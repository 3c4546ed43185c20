"""Time and cost until the cells of a sweep reached a target accuracy. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.cells.configuration import CellConfiguration, configuration_of
from farm.measuring.learning_curves import TimeToAccuracy, mean_curve, time_to_accuracy
from farm.measuring.machine_time import cost_usd
from farm.store.measurements.trained_cells import TrainedCell


@dataclass(frozen=True, slots=True, kw_only=True)
class AccurateCell:
    """`reached` and `cost_usd` are None without a target, the cost also without a price."""

    configuration: CellConfiguration
    job_ids: tuple[int, ...]
    final_accuracy: float
    epoch_count: int
    reached: TimeToAccuracy | None
    cost_usd: float | None


def accurate_cells(
    cells: Sequence[TrainedCell],
    *,
    target_ratio: float | None,
    prices_usd_per_hour: Mapping[str, float],
) -> list[AccurateCell]:
    """Return the cells, ordered by the time to the target."""
    found = []
    for cell in cells:
        configuration = configuration_of(cell.spec)
        curve = mean_curve(cell.curves)
        reached = None if target_ratio is None else time_to_accuracy(cell.curves, target_ratio)
        price = prices_usd_per_hour.get(cell.instance_type or "")
        time_s = None if reached is None else reached.time_s
        found.append(
            AccurateCell(
                configuration=configuration,
                job_ids=cell.job_ids,
                final_accuracy=curve[-1],
                epoch_count=len(curve),
                reached=reached,
                cost_usd=cost_usd(configuration.machine_count, time_s, price),
            )
        )
    return sorted(found, key=_order)


def _order(cell: AccurateCell) -> tuple[bool, float]:
    time_s = cell.reached.time_s if cell.reached is not None else None
    return time_s is None, -cell.final_accuracy if time_s is None else time_s
