"""When a prediction is a guess: it lies further away than any measurement bears out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from farm.recommend.calibrated.novelty import Beyond, Gap, GapAxis
from farm.text.display import bit_rate, duration, percent

# Beyond its own curve, the time may do what nothing that was measured hints at: a link that fills
# up, a cache that is too small. Up to this far it has no room to.
_NEAR_DOUBLINGS = 0.25


def why_speculative(
    gaps: Collection[Gap],
    beyond: Iterable[Beyond],
    unexampled: Collection[Gap],
    *,
    is_together_exampled: bool,
) -> str | None:
    """Say why a prediction with these gaps is speculative; None where it is not.

    `unexampled`: the gaps of which no measurement could be held out as an example.
    `is_together_exampled`: whether one could be that had all the gaps at once.
    """
    if any(gap.axis is GapAxis.ALONE for gap in gaps):
        return "no single machine was measured"
    reasons = [
        why
        for one in sorted(beyond, key=lambda one: -one.doublings)
        if (why := _why_beyond(one)) is not None
    ]
    told = {one.axis for one in beyond if _why_beyond(one) is not None}
    reasons += [
        f"no measurement could be held out to check {_checked(axis)}"
        for axis in dict.fromkeys(gap.axis for gap in sorted(unexampled, key=repr))
        if axis not in told
    ]
    if not (reasons or is_together_exampled):
        several = " and ".join(_checked(gap.axis) for gap in sorted(gaps, key=repr))
        reasons.append(f"no measurement could be held out to check {several} at once")
    return "; ".join(reasons) or None


def _why_beyond(one: Beyond) -> str | None:
    name, value, edge = one.axis.value, _shown(one.axis, one.value), _shown(one.axis, one.edge)
    if one.own_count < 2:
        return f"{name} {value}: measured like this at {edge} only"
    if one.doublings <= _NEAR_DOUBLINGS:
        return None
    end = "largest" if one.value > one.edge else "smallest"
    return f"{name} {value}: beyond the {end} that was measured like this, {edge}"


def _checked(axis: GapAxis) -> str:
    return "a new combination of names" if axis is GapAxis.NAMES else f"a new {axis.value}"


def _shown(axis: GapAxis, value: float) -> str:
    match axis:
        case GapAxis.DELAY | GapAxis.JITTER:
            return duration(value)
        case GapAxis.BANDWIDTH:
            return "no limit" if math.isinf(value) else bit_rate(value)
        case GapAxis.PACKET_LOSS:
            return percent(value, 2)
    return f"{value:.6g}"
