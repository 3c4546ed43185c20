"""The latency study's figures, as the field's papers draw them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from farm.plotting.look import COLOURS, DASHES, MARKERS, panels
from farm.studies.latency.cells import Curve, Panel
from farm.studies.text import ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MS = 1000.0


def draw_epoch_times(shown: Sequence[Panel]) -> Figure:
    """Draw time per epoch against delay: a panel a model and batch, a line a world size."""
    with _grid(shown) as (figure, axes):
        for panel, ax in zip(shown, axes, strict=False):
            farthest_s = max(p.one_way_delay_s for curve in panel.curves for p in curve.points)
            for curve in panel.curves:
                _epoch_line(ax, curve, farthest_s=farthest_s)
            ax.set_title(f"{panel.model}, global batch {panel.global_batch_size}")
            ax.set_ylim(bottom=0)
            ax.set_xlabel("one-way delay (ms)")
            ax.set_ylabel("time per epoch (s)")
        _legend(figure, axes[0])
    return figure


def draw_round_trips(shown: Sequence[Panel]) -> Figure:
    """Draw every run's step time against its measured round trip, with the fitted lines."""
    with _grid(shown) as (figure, axes):
        for panel, ax in zip(shown, axes, strict=False):
            for curve in panel.gangs:
                _fitted_line(ax, curve)
            ax.set_title(f"{panel.model}, global batch {panel.global_batch_size}")
            ax.set_xlim(left=0)
            ax.set_ylim(bottom=0)
            ax.set_xlabel("measured round trip (ms)")
            ax.set_ylabel("step time (ms)")
            if ax.get_legend_handles_labels()[1]:
                ax.legend(loc="upper left", fontsize=8)
    return figure


def _grid(shown: Sequence[Panel]) -> AbstractContextManager[tuple[Figure, list[Axes]]]:
    columns = min(2, len(shown))
    return panels(-(-len(shown) // columns), columns)


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))


def _epoch_line(ax: Axes, curve: Curve, *, farthest_s: float) -> None:
    look = _look(curve.world_size)
    points = curve.points
    x = [p.one_way_delay_s * _MS for p in points]
    y = [p.step_time_s * p.steps_per_epoch for p in points]
    low, high = [], []
    for p, middle in zip(points, y, strict=True):
        ends = p.interval
        low.append(middle - ends.low_s * p.steps_per_epoch if ends else 0.0)
        high.append(ends.high_s * p.steps_per_epoch - middle if ends else 0.0)
    if curve.world_size == 1:
        # One machine waits for nobody: what was measured once holds at every delay.
        ax.plot([0, farthest_s * _MS], [y[0], y[0]], **{**look, "marker": ""})
    label = f"{curve.world_size} {'host' if curve.world_size == 1 else 'hosts'}"
    # The median may lie outside of the interval, which is made from the mean of logarithms.
    errors = [[max(0.0, e) for e in low], [max(0.0, e) for e in high]]
    ax.errorbar(x, y, yerr=errors, label=label, **look)


def _fitted_line(ax: Axes, curve: Curve) -> None:
    pairs = [(run.rtt_s, run.step_time_s) for run in curve.runs]
    known = [(x * _MS, y * _MS) for x, y in pairs if x is not None and y is not None]
    if not known:
        return
    look = _look(curve.world_size)
    label = f"{curve.world_size} hosts"
    if curve.fit is not None:
        ends = [0.0, max(x for x, _ in known)]
        line = [curve.fit.at(x / _MS) * _MS for x in ends]
        ax.plot(ends, line, color=look["color"], linestyle=look["linestyle"])
        label += f": {ms(curve.fit.intercept)} ms + {curve.fit.slope:.2f} RTT"
    ax.plot(
        *zip(*known, strict=True),
        linestyle="",
        marker=look["marker"],
        color=look["color"],
        markerfacecolor="none",
        label=label,
    )


def _look(world_size: int) -> dict[str, Any]:
    place = (world_size - 1) % len(COLOURS)
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": DASHES[place]}
