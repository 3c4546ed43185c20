"""What theory says of synchronous and asynchronous servers, and the values that it is held against.

No measurements of this study were published with their numbers, so that there is theory alone.
"""

from __future__ import annotations

from farm.studies.orderings import Ordering, Place, Placed
from farm.studies.pairs import ratios
from farm.studies.run_groups import RunGroup, placed_of
from farm.studies.servers.lines import ALONE, ASYNC, SYNC, ServerLines

_AXES = ("strategy", "one_way_delay_s")

CLAIMS = (
    Ordering(
        says="a synchronous step takes longer, since it waits for the slowest rank",
        of="step_time_s",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=True,
        because="Ranks wait only if one is slower. Where all have equal machines and equal ways, "
        "which this lab gives them, a long way takes all of them the same time.",
    ),
    Ordering(
        says="a longer way makes a step longer, of both",
        of="step_time_s",
        along="one_way_delay_s",
        is_rising=True,
        because="A step contains its way; if it did not grow, something else has disturbed the "
        "runs with the shorter one.",
    ),
    Ordering(
        says="the longer the way, the less a synchronous step is longer",
        of="waiting_ratio",
        along="one_way_delay_s",
        is_rising=False,
        because="What a rank waits for another one is computing, on both and on the server, and "
        "no part of the way. Beside a long way it is too little to be measured.",
    ),
    Ordering(
        says="a longer way makes ranks idler",
        of="computing_ratio",
        along="one_way_delay_s",
        is_rising=False,
        because="Idle is all of a step but computing, and that takes the same time at any "
        "distance. Where nearly all of a step is idle, little is left to grow.",
    ),
    Ordering(
        says="synchronous ranks are idler than asynchronous ones",
        of="computing_ratio",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=False,
        because="The model is so small that both do nothing else but wait, if not for each other "
        "then for the server.",
    ),
    Ordering(
        says="from as many examples asynchronous ranks learn less",
        of="accuracy",
        along="strategy",
        order=(ASYNC, SYNC),
        is_rising=True,
        because="A synchronous update is made from the examples of all ranks, an asynchronous one "
        "from those of one rank, at the same learning rate. From the same examples asynchronous "
        "ranks make as many times more updates as there are ranks. Early in training more updates "
        "bring more than their staleness costs.",
    ),
    Ordering(
        says="with as many updates of the same size, stale ones teach less than fresh ones",
        of="accuracy_by_update",
        along="strategy",
        order=(ASYNC, ALONE),
        is_rising=True,
        because="One update of another rank in between changes the weights little; what it costs "
        "is about as much as repetitions differ by.",
    ),
)


def claimed_values(lines: ServerLines) -> dict[str, list[Placed]]:
    """Return the medians that the claims are about, by the name of the value."""
    values = {
        "step_time_s": [p for one in lines.points if (p := one.placed("step_time_s", _AXES))],
    }
    values["computing_ratio"] = [p for one in lines.points if (p := _computing(one))]
    values["waiting_ratio"] = [
        placed
        for delay_s, values_of_delay in lines.waiting_ratios.items()
        if (placed := placed_of(values_of_delay, {"one_way_delay_s": delay_s}))
    ]
    base = lines.alone_like(SYNC)
    values["accuracy"] = [p for one in lines.points if (p := _accuracy(one, one, base))]
    values["accuracy_by_update"] = _by_update(lines)
    return values


def _computing(group: RunGroup) -> Placed | None:
    """Place what is not idle: a share near 1 has no interval that may not exceed it."""
    at = {axis: getattr(group.first, axis) for axis in _AXES}
    return placed_of([1 - v for v in group.values_of("idle_ratio") if v < 1], at)


def _by_update(lines: ServerLines) -> list[Placed]:
    """Each asynchronous point, and beside it one machine, which is the same at every delay."""
    alone = lines.alone_like(ASYNC)
    if alone is None:
        return []
    pairs = [(point, group) for point in lines.gangs.get(ASYNC, ()) for group in (point, alone)]
    return [p for point, group in pairs if (p := _accuracy(group, point, alone))]


def _accuracy(group: RunGroup, where: RunGroup, base: RunGroup | None) -> Placed | None:
    """Place the accuracy of a group where another one stands, in terms of one machine's.

    Seed by seed, since seeds differ by more than strategies do; as it is, where no such machine was
    measured.
    """
    relative = ratios(group, base, "accuracy") if base else []
    at: Place = {
        "strategy": group.first.strategy or "",
        "one_way_delay_s": where.first.one_way_delay_s,
    }
    return placed_of(relative or [v for v in group.values_of("accuracy") if v > 0], at)
