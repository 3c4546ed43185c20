"""CPU, memory and network by role: ranks that train on average, servers apart from them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from farm.charts.job.figures import quantity_of
from farm.charts.job.steps import STEP_TIME
from farm.charts.timelines import Shade, TimelineFigure, TimelineSeries
from farm.store.series.role_series import SERVING, TRAINING, RoleSeries

_METRICS = ("cpu_ratio", "resident_bytes", "net_rx_bytes_per_s", "net_tx_bytes_per_s")
_TITLES = {
    "cpu_ratio": "CPU by role",
    "resident_bytes": "Memory by role",
    "net_rx_bytes_per_s": "Received by role",
    "net_tx_bytes_per_s": "Sent by role",
}
_NAMES = {TRAINING: "ranks that train, mean", SERVING: "servers, mean"}


def _key(metric: str) -> str:
    return f"role-{metric.partition('_per_')[0].replace('_', '-')}"


ROLE_CHART_KEYS = tuple(_key(metric) for metric in _METRICS)


def role_timelines(
    roles: Sequence[RoleSeries], *, over: Sequence[TimelineSeries] = (), shades: Sequence[Shade]
) -> list[TimelineFigure]:
    """Return a chart for each metric that was told by role. `over`: the steps, laid over them."""
    found = []
    for metric in _METRICS:
        lines = [
            TimelineSeries(name=_NAMES[role.name], points=role.metrics[metric], style=style)
            for style, role in enumerate(roles)
            if any(value is not None for _, value in role.metrics.get(metric, ()))
        ]
        if lines:
            found.append(_timeline(metric, lines, over, shades))
    return found


def _timeline(
    metric: str,
    lines: Sequence[TimelineSeries],
    over: Sequence[TimelineSeries],
    shades: Sequence[Shade],
) -> TimelineFigure:
    quantity = quantity_of(metric)
    most = [
        f"{line.name} at most {quantity.write(max(v for _, v in line.points if v is not None))}"
        for line in lines
    ]
    return TimelineFigure(
        key=_key(metric),
        title=_TITLES[metric],
        summary="; ".join(most) + ("; the steps of rank 0 are laid over them" if over else ""),
        quantity=quantity,
        lines=[*over, *lines],
        over=STEP_TIME if over else None,
        shades=shades,
    )
