"""Fewer samples of long ago: equal ranges of ticks, each told by one row."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from farm.messages.reports import Sample

# A mean would hide what memory is judged by: how near it came to the limit.
_PEAKS = ("memory_used_bytes", "resident_bytes")
_MEANS = tuple(
    field.name
    for field in dataclasses.fields(Sample)
    if field.name not in ("tick", "extra", *_PEAKS)
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stored sample: of one tick, or of the `span_ticks` ticks that end with its own."""

    sample: Sample
    span_ticks: int = 1


def thin(stretches: Iterable[Stretch], *, width: int) -> list[Stretch]:
    """Join the stretches of one rank, given by tick, whose ticks lie in one range of `width` ticks.

    Ranges begin at multiples of `width`; a stretch belongs to the range of its last tick. Each
    metric becomes the mean of what was measured, weighted by the ticks it stands for, memory the
    largest; what nobody measured stays None. A joined stretch reaches from the first to the last
    tick that it was made of, so a hole at a range's edge stays one. Thinned again with the same
    width nothing changes.
    """
    ranges = itertools.groupby(stretches, key=lambda stretch: stretch.sample.tick // width)
    return [_joined(list(group)) for _, group in ranges]


def _joined(group: Sequence[Stretch]) -> Stretch:
    if len(group) == 1:
        return group[0]
    first, last = group[0], group[-1].sample.tick
    metrics: dict[str, float | None] = {}
    for name in _MEANS:
        metrics[name] = _mean([(getattr(s.sample, name), s.span_ticks) for s in group])
    for name in _PEAKS:
        measured = [value for s in group if (value := getattr(s.sample, name)) is not None]
        metrics[name] = max(measured, default=None)
    names = {name: None for s in group for name in s.sample.extra}
    extra = {
        name: mean
        for name in names
        if (mean := _mean([(s.sample.extra.get(name), s.span_ticks) for s in group])) is not None
    }
    # The names are a sample's own, which the type checker cannot follow.
    sample = Sample(tick=last, extra=extra, **metrics)  # type: ignore[arg-type]
    return Stretch(sample, last - (first.sample.tick - first.span_ticks))


def _mean(weighted: Sequence[tuple[float | None, int]]) -> float | None:
    measured = [(value, weight) for value, weight in weighted if value is not None]
    if not measured:
        return None
    # The bounds undo rounding: a mean lies between what it is the mean of.
    mean = sum(value * weight for value, weight in measured) / sum(w for _, w in measured)
    values = [value for value, _ in measured]
    return min(max(mean, min(values)), max(values))
