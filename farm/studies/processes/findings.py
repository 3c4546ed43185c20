"""What the processes study's page says in sentences: each made from the numbers it speaks of."""

from __future__ import annotations

import itertools
import statistics

from farm.studies.processes.set_ups import SetUp, SetUps
from farm.studies.processes.tables import losses_apart, small
from farm.studies.run_groups import study_interval
from farm.studies.text import listing, percent, significant


def findings(found: SetUps) -> list[str]:
    """Return one line for each that the runs tell."""
    return [
        *(line for one in found.others for line in _speed_ups(found, one)),
        *_batches(found),
        *(line for one in found.others for line in _same_losses(found, one)),
        *_same_shares(found),
        *_learning(found),
    ]


def _speed_ups(found: SetUps, one: SetUp) -> list[str]:
    """Which batches are faster than with one process, slower, or neither for sure."""
    by_verdict: dict[str, list[str]] = {}
    for batch in found.batches:
        values = found.speed_ups(one, batch)
        if not values:
            continue
        interval = study_interval(values)
        middle = statistics.median(values)
        if interval is None or interval.low_s <= 1 <= interval.high_s:
            verdict = "as fast as 1 process within what repetitions differ by"
        else:
            verdict = "faster than 1 process" if middle > 1 else "slower than 1 process"
        by_verdict.setdefault(verdict, []).append(f"{middle:.2f} times with a batch of {batch}")
    if not by_verdict:
        return []
    parts = [f"{verdict}: {listing(batches)}" for verdict, batches in by_verdict.items()]
    return [f"**{one.name}** goes through an epoch {'; '.join(parts)}."]


def _batches(found: SetUps) -> list[str]:
    parts = []
    for one in found.all:
        near, far = one.points[0], one.points[-1]
        small_s, large_s = near.median_of("time_per_epoch_s"), far.median_of("time_per_epoch_s")
        if near is far or not small_s or not large_s:
            continue
        parts.append(f"{significant(small_s / large_s)} times with {one.name}")
    if not parts:
        return []
    first, last = found.batches[0], found.batches[-1]
    return [
        f"An epoch of batch {first} takes so many times as long as one of batch {last}: "
        f"{listing(parts)}."
    ]


def _same_losses(found: SetUps, one: SetUp) -> list[str]:
    """Whether the same seeds give the same loss as one process does, by batch."""
    if found.alone is None:
        return []
    apart = _apart(found, one, found.alone)
    if not apart:
        return []
    parts = [f"{small(most)} with a batch of {batch}" for batch, most in apart.items()]
    return [
        f"Of the same seed the test loss of {one.name} is away from that of {found.alone.name} by"
        f" at most {listing(parts)}."
    ]


def _same_shares(found: SetUps) -> list[str]:
    """Whether it matters who computes the same shares of a batch: one process or several."""
    text = []
    for one, other in itertools.combinations(found.others, 2):
        apart = _apart(found, one, other)
        if one.replica_count != other.replica_count or not apart:
            continue
        most = max(apart.values())
        text.append(
            f"{one.name} and {other.name} cut a batch into the same {one.replica_count} shares."
            " Of the same seed and batch their test losses "
            + ("are equal to the last digit." if most == 0 else f"differ by at most {small(most)}.")
        )
    return text


def _apart(found: SetUps, one: SetUp, other: SetUp) -> dict[int, float]:
    """Return by batch how far two set-ups' losses of the same seed are apart, at most."""
    by_batch = {batch: losses_apart(one, other, batch) for batch in found.batches}
    return {batch: max(values) for batch, values in by_batch.items() if values}


def _learning(found: SetUps) -> list[str]:
    shown = found.alone or found.all[0]
    parts = [
        f"{percent(accuracy)} with a batch of {point.first.global_batch_size}"
        for point in shown.points
        if (accuracy := point.median_of("accuracy")) is not None
    ]
    return [f"After the same epochs the accuracy is {listing(parts)}."] if parts else []
