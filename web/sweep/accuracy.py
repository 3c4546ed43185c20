"""How accurate a sweep's trainings got: by epoch and batch size, and how long to a target. Pure.

How much accuracy an epoch brings at which global batch size is statistical efficiency: with the
time of an epoch it makes the time to an accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from farm.core.axes import AXES, Value
from farm.core.display import count, percent
from farm.core.learning_curves import TimeToAccuracy, mean_curve, time_to_accuracy
from farm.core.machine_time import cost_usd
from farm.core.nouns import counted
from farm.figures.cell_configuration import CellConfiguration, configuration_of
from farm.figures.chart import STYLES, ChartAxis, Figure, Mark, Series
from farm.registry import catalogue
from farm.store.trained_cells import TrainedCell
from web.setup_words import setup_words

_BATCH = 3  # where `_names` has it


class _Learning(NamedTuple):
    """What one line of the figure is of. `rank_count`: 0 where it changes nothing."""

    model: str
    dataset: str
    strategy: str
    global_batch_size: int
    set_up: tuple[str, ...]
    rank_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccurateCell:
    """`reached` and `cost_usd` are None without a target, the cost also without a price."""

    configuration: CellConfiguration
    first_job_id: int
    repetition_count: int
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
    """Return the cells, those that reach the target soonest first."""
    found = [_accurate(cell, target_ratio, prices_usd_per_hour) for cell in cells]
    return sorted(found, key=_order)


def accuracy_figure(cells: Sequence[TrainedCell]) -> Figure | None:
    """Draw the mean accuracy after each epoch, a line for each way of learning.

    World size and network change nothing in what synchronous replicas learn in an epoch, so that
    those of one strategy are one line. Of more lines than colours the first; None without any.
    """
    groups: dict[_Learning, list[TrainedCell]] = {}
    for cell in cells:
        groups.setdefault(_learning(cell), []).append(cell)
    shown = sorted(groups)[:STYLES]
    if not shown:
        return None
    # Told only where it differs; a batch always.
    names = {key: _names(key) for key in groups}
    told = [i for i in range(6) if i == _BATCH or len({name[i] for name in names.values()}) > 1]
    series = []
    for key in shown:
        curve = mean_curve([curve for cell in groups[key] for curve in cell.curves])
        name = ", ".join(names[key][i] for i in told if names[key][i])
        marks = [Mark(x=float(n), y=ratio) for n, ratio in enumerate(curve, start=1)]
        series.append(Series(name=name, marks=marks))
    best = max(series, key=lambda one: one.marks[-1].y)
    left_out = f"; {len(groups) - len(shown)} more are left out" if len(groups) > STYLES else ""
    return Figure(
        title="Accuracy by epoch",
        summary=f"{best.name} got to {percent(best.marks[-1].y, 1)}{left_out}",
        x=ChartAxis(title="Epoch", write=count, is_counted=True),
        y=ChartAxis(title="Accuracy", write=percent),
        series=series,
    )


def _learning(cell: TrainedCell) -> _Learning:
    """Return what can change what is learnt in an epoch."""
    what = configuration_of(cell.spec)
    facts = catalogue().strategies.get(what["strategy"])
    learnt: dict[str, Value] = {
        axis.field: value
        for axis, value in zip(AXES, what.place, strict=True)
        if not axis.is_of_speed and not axis.is_of_network
    }
    return _Learning(
        model=what["model"],
        dataset=what["dataset"],
        strategy=what["strategy"],
        global_batch_size=what["global_batch_size"],
        set_up=tuple(setup_words(learnt)),
        rank_count=0 if facts is not None and facts.is_synchronous else what["world_size"],
    )


def _names(key: _Learning) -> tuple[str, str, str, str, str, str]:
    """Return what its line may be called, of which an empty one says nothing."""
    ranks = counted(key.rank_count, "rank", write=count)
    batch = f"batch {count(key.global_batch_size)}"
    set_up = ", ".join(key.set_up)
    return (key.model, key.dataset, key.strategy, batch, ranks if key.rank_count else "", set_up)


def _accurate(
    cell: TrainedCell, target_ratio: float | None, prices_usd_per_hour: Mapping[str, float]
) -> AccurateCell:
    configuration = configuration_of(cell.spec)
    curve = mean_curve(cell.curves)
    reached = None if target_ratio is None else time_to_accuracy(cell.curves, target_ratio)
    price = prices_usd_per_hour.get(cell.instance_type or "")
    time_s = None if reached is None else reached.time_s
    return AccurateCell(
        configuration=configuration,
        first_job_id=cell.job_ids[0],
        repetition_count=len(cell.job_ids),
        final_accuracy=curve[-1],
        epoch_count=len(curve),
        reached=reached,
        cost_usd=cost_usd(configuration.machine_count, time_s, price),
    )


def _order(cell: AccurateCell) -> tuple[bool, float]:
    time_s = cell.reached.time_s if cell.reached is not None else None
    return time_s is None, -cell.final_accuracy if time_s is None else time_s
