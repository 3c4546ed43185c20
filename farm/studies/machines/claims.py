"""Checks claims about the published table against our own measurements. Pure.

Every ordering can be decided by the published table, and does not assume equal batch sizes or equal
computers: a batch is only small or large compared with others of its own source.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from farm.studies.machines.cells import CellTimes, MachineCell
from farm.studies.orderings import Coordinates, Ordering, Placed, PlacedValues

# The names of values that orderings are about.
_BY_MACHINES = "step time by machines"  # one machine's holds at every delay
_BY_DELAY = "step time by delay"
_BY_BATCH = "step time by batch"
_PER_EXAMPLE = "time per example"
_SLOWDOWN = "step time under a delay over that without"
_TRIPS = "round trips of a step"
_FASTEST_BY_DELAY = "fastest number of machines, none and most delay"
_FASTEST_BY_BATCH = "fastest number of machines, small and large batch"

_SMALL, _BETWEEN, _LARGE, _BEYOND = "small", "between", "large", "beyond"


def values_of(source: CellTimes) -> PlacedValues:
    """Return what the orderings compare, by name."""
    by_place = [
        _at_size(source, cell).moved(delay_s=delay_s)
        for delay_s in source.delays_s
        for batch in source.batches
        for cell in source.beside(batch, delay_s)
    ]
    return {
        _BY_MACHINES: by_place,
        _BY_DELAY: [_at_size(source, cell) for cell in source.gangs],
        _BY_BATCH: [cell.step_time for cell in source.cells],
        _PER_EXAMPLE: [cell.example_time for cell in source.cells],
        _SLOWDOWN: _slowdowns(source),
        _TRIPS: _trips(source),
        **_fastest(source),
    }


def _at_size(source: CellTimes, cell: MachineCell) -> Placed:
    return cell.step_time.moved(size=size_of(source, cell.batch))


def size_of(source: CellTimes, batch: int) -> str:
    """Say of a batch size what it is in its source: the smallest, or the largest of one machine."""
    if batch == source.batches[0]:
        return _SMALL
    if source.large_batch is None or batch < source.large_batch:
        return _BETWEEN
    return _LARGE if batch == source.large_batch else _BEYOND


def _slowdowns(source: CellTimes) -> list[Placed]:
    """Return each step time under a delay over that without any."""
    found = []
    for cell in source.gangs:
        base = source.cell(cell.world_size, cell.batch, 0.0)
        # Neighbouring batches differ by less than the noise, the smallest and the large one do not.
        if base and cell.delay_s > 0 and size_of(source, cell.batch) in (_SMALL, _LARGE):
            found.append(_over(cell.step_time, base.step_time))
    return found


def _over(value: Placed, base: Placed) -> Placed:
    """Return one value over another, with the ends that its interval can have."""
    low, high = None, None
    if value.low and value.high and base.low and base.high:
        low, high = value.low / base.high, value.high / base.low
    return Placed(at=value.at, value=value.value / base.value, low=low, high=high)


def _trips(source: CellTimes) -> list[Placed]:
    found = []
    for size in source.world_sizes:
        for batch in source.batches:
            fit = source.round_trips(size, batch)
            if fit is not None:
                # A line through printed values has an interval, too: how far they are from a line.
                at = {"world_size": size, "batch": batch}
                ends = {"low": fit.slope_low, "high": fit.slope_high}
                found.append(Placed(at=at, value=fit.slope, **ends))
    return found


def _fastest(source: CellTimes) -> dict[str, list[Placed]]:
    """Return the fastest number of machines at the ends of each axis, where several were measured.

    Between the ends it changes in few places only, and says no more.
    """
    by_delay, by_batch = [], []
    for (batch, delay_s), fastest in source.all_fastest().items():
        sizes = (fastest.world_size, *fastest.others)
        at = {"delay_s": delay_s, "batch": batch}
        placed = Placed(at=at, value=sizes[0], low=min(sizes), high=max(sizes))
        if delay_s in (source.delays_s[0], source.delays_s[-1]):
            by_delay.append(placed)
        if size_of(source, batch) in (_SMALL, _LARGE):
            by_batch.append(placed)
    return {_FASTEST_BY_DELAY: by_delay, _FASTEST_BY_BATCH: by_batch}


def _where(
    size: str, *, has_delay: bool, machines: tuple[int, ...] = ()
) -> Callable[[Coordinates], bool]:
    """Admit a batch that is small or large in its source, with or without a delay."""
    return lambda place: (
        place["size"] == size
        and (float(place["delay_s"]) > 0) is has_delay
        and (not machines or place["world_size"] in machines)
    )


_SHARED_CORES = (
    "Machines of the study add cores, our hosts share the cores of one machine: where there are "
    "more hosts than cores, a further host adds to the exchange and nothing to the computing."
)
_SHORT_STEPS = (
    "Each step here is short, and repeated three times only: the difference may be there and be "
    "smaller than what repetitions differ by."
)

_by_machines = partial(Ordering, of=_BY_MACHINES, along="world_size")

ORDERINGS: tuple[Ordering, ...] = (
    Ordering(
        says="a longer delay makes a step of two or more machines longer",
        of=_BY_DELAY,
        along="delay_s",
        is_rising=True,
        because=_SHORT_STEPS,
    ),
    _by_machines(
        says="without a delay, at the smallest batch, each further machine makes a step longer",
        is_rising=True,
        where=_where(_SMALL, has_delay=False),
        because=_SHORT_STEPS,
    ),
    _by_machines(
        says="at the smallest batch, under a delay, each further machine makes a step longer",
        is_rising=True,
        where=_where(_SMALL, has_delay=True),
        because=_SHORT_STEPS,
    ),
    _by_machines(
        says="without a delay, at the large batch, two machines are faster than one",
        is_rising=False,
        where=_where(_LARGE, has_delay=False, machines=(1, 2)),
        because=(
            "What the second host saves in computing, the exchange takes: over 100 Mbit/s, with "
            "the farm and the lab's switch on the same cores."
        ),
    ),
    _by_machines(
        says="under a delay, at the large batch, two machines are faster than one",
        is_rising=False,
        where=_where(_LARGE, has_delay=True, machines=(1, 2)),
        because=(
            "One machine of the study needs 10 s for a step at its large batch, of which a second "
            "one saves four: more than the round trips of any of its delays take. Ours saves far "
            "less, which a few round trips take."
        ),
    ),
    _by_machines(
        says="without a delay, at the large batch, three machines are faster than two",
        is_rising=False,
        where=_where(_LARGE, has_delay=False, machines=(2, 3)),
        because=_SHARED_CORES,
    ),
    Ordering(
        says="a larger batch makes a step longer",
        of=_BY_BATCH,
        along="batch",
        is_rising=True,
        because=_SHORT_STEPS,
    ),
    Ordering(
        says="a larger batch takes less time for each example",
        of=_PER_EXAMPLE,
        along="batch",
        is_rising=False,
        because=(
            "Once computing is most of a step, the time of an example no longer depends on the "
            "batch: what is left are the caches, which a larger batch fits less well."
        ),
    ),
    Ordering(
        says="the same delay lengthens a step by a smaller share at the large batch than at the "
        "smallest",
        of=_SLOWDOWN,
        along="batch",
        is_rising=False,
        because=_SHORT_STEPS,
    ),
    Ordering(
        says="a step of three machines waits for more round trips than one of two",
        of=_TRIPS,
        along="world_size",
        is_rising=True,
        where=lambda place: place["world_size"] in (2, 3),
        because=_SHORT_STEPS,
    ),
    Ordering(
        says="under the longest delay fewer machines are the fastest than without any",
        of=_FASTEST_BY_DELAY,
        along="delay_s",
        is_rising=False,
        because=(
            "Where one machine is the fastest without a delay already, no delay can make it fewer, "
            "or the intervals leave open which number is the fastest."
        ),
    ),
    Ordering(
        says="at the large batch more machines are the fastest than at the smallest",
        of=_FASTEST_BY_BATCH,
        along="batch",
        is_rising=True,
        because=(
            "The large batch is not large enough for these delays: what further machines save in "
            "computing, the round trips take, or the intervals leave open which number is the "
            "fastest."
        ),
    ),
)
