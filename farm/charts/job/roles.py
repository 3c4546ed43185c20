"""Charts of CPU, memory and network by role: the mean over ranks, and over servers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from farm.charts.job.figures import key_of, quantity_of
from farm.charts.job.steps import STEP_TIME
from farm.charts.timelines import Shade, TimelineFigure, TimelineSeries
from farm.measuring.sampled import USED_BY_ROLE, SampledMetric
from farm.store.series.role_series import SERVING, TRAINING, RoleSeries

_NAMES = {TRAINING: "ranks that train, mean", SERVING: "servers, mean"}


def _key(metric: SampledMetric) -> str:
    return f"role-{key_of(metric)}"


ROLE_CHART_KEYS = tuple(map(_key, USED_BY_ROLE))


def role_timelines(
    roles: Sequence[RoleSeries], *, over: Sequence[TimelineSeries] = (), shades: Sequence[Shade]
) -> list[TimelineFigure]:
    """Return a chart for each metric that was told by role. `over`: the steps, laid over them."""
    found = []
    for metric in USED_BY_ROLE:
        lines = [
            TimelineSeries(name=_NAMES[role.name], points=role.metrics[metric.name], style=style)
            for style, role in enumerate(roles)
            if any(value is not None for _, value in role.metrics.get(metric.name, ()))
        ]
        if lines:
            found.append(_timeline(metric, lines, over, shades))
    return found


def _timeline(
    metric: SampledMetric,
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
        title=metric.role_title,
        summary="; ".join(most) + ("; the steps of rank 0 are laid over them" if over else ""),
        quantity=quantity,
        lines=[*over, *lines],
        over=STEP_TIME if over else None,
        shades=shades,
    )
