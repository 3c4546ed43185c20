"""Splits measurements into training and test parts, to evaluate predictors."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.novelty import GapAxis, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import canonical, names_of

FOLD_COUNT = 10  # of random splits
_LEAST_VALUES = 3  # of which one can be left out, and two still show a trend
_MOST_CURVES = 6  # that are ended in turn

# What is held out together; None: never held out. Groups have an order by their repr.
GroupOf = Callable[[Configuration], Hashable]
_DELAY = GapAxis.of("one_way_delay_s")


@dataclass(frozen=True, slots=True)
class Fold:
    """Positions among the observations; some may be in neither."""

    training: tuple[int, ...]
    tested: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """One way to hold out. `is_leave_one_out`: of one value of something, everywhere."""

    name: str
    folds: tuple[Fold, ...]
    is_leave_one_out: bool = False


def random_folds(
    configurations: Sequence[Configuration], group: GroupOf, *, count: int, seed: int = 0
) -> list[Fold]:
    """Deal the groups out to at most `count` folds, whatever the order of the configurations."""
    groups = [group(canonical(c)) for c in configurations]
    distinct = sorted({g for g in groups if g is not None}, key=repr)
    random.Random(seed).shuffle(distinct)
    return [holding_out(groups, distinct[start::count]) for start in range(count)][: len(distinct)]


def leave_one_out(configurations: Sequence[Configuration], group: GroupOf) -> list[Fold]:
    """Hold each group out once, in their order."""
    groups = [group(canonical(c)) for c in configurations]
    distinct = sorted({g for g in groups if g is not None}, key=_order)
    return [holding_out(groups, [g]) for g in distinct] if len(distinct) > 1 else []


def holding_out(groups: Sequence[Hashable], held_out: Sequence[Hashable]) -> Fold:
    """Return the fold that tests these groups and trains with all others."""
    tested = set(held_out)
    return Fold(
        training=tuple(i for i, g in enumerate(groups) if g not in tested),
        tested=tuple(i for i, g in enumerate(groups) if g in tested),
    )


def beyond_largest(configurations: Sequence[Configuration], *, from_size: int) -> Fold:
    """Train below a world size and test there and above."""
    return holding_out([c.world_size >= from_size for c in configurations], [True])


def all_splits(observations: Sequence[Observation], *, seed: int = 0) -> list[Split]:
    """Return every kind of split that the measurements have enough in them for.

    Random folds keep the repetitions of a configuration together. Where the per-replica batch size
    was kept the same over the world sizes, they keep all batch sizes of one strategy, network and
    world size together too: these were measured one after the other, and one gives away the next.
    Those of one machine are kept together over the strategies, which print the same run again.
    """
    configurations = [canonical(o.configuration) for o in observations]
    space = Space.of(configurations)

    def by(axis: GapAxis) -> list[Fold]:
        return leave_one_out(configurations, lambda c: space.value(c, axis))

    def both(first: GapAxis, second: GapAxis) -> list[Fold]:
        return _both(space, configurations, (first, second))

    def network(c: Configuration) -> Hashable:
        return None if c.is_one_machine else str(c.network)

    together = _series if space.is_weak else (lambda configuration: configuration)
    sizes = sorted({c.world_size for c in configurations})
    beyond = [beyond_largest(configurations, from_size=sizes[-2])] if len(sizes) > 3 else []
    found = [
        Split("random", tuple(random_folds(configurations, together, count=FOLD_COUNT, seed=seed))),
        Split("batch", tuple(by(GapAxis.BATCH)), is_leave_one_out=True),
        Split("delay", tuple(by(_DELAY)), is_leave_one_out=True),
        Split("delay, not the first or last", tuple(by(_DELAY)[1:-1])),
        Split("delay, the first or last", tuple(by(_DELAY)[:1] + by(_DELAY)[1:][-1:])),
        Split("world size", tuple(by(GapAxis.WORLD_SIZE)), is_leave_one_out=True),
        Split("two largest world sizes", tuple(beyond)),
        Split("world size and batch", tuple(both(GapAxis.WORLD_SIZE, GapAxis.BATCH))),
        Split("world size and delay", tuple(both(GapAxis.WORLD_SIZE, _DELAY))),
        Split("batch and delay", tuple(both(GapAxis.BATCH, _DELAY))),
        Split("one curve beyond its two smallest gangs", tuple(_curves_ended(configurations))),
        Split("instance type on one machine only", tuple(_types_on(configurations, most=1))),
        Split("instance type on two machines at most", tuple(_types_on(configurations, most=2))),
        Split(
            "strategy",
            tuple(leave_one_out(configurations, lambda c: str(c.strategy))),
            is_leave_one_out=True,
        ),
        Split("network", tuple(leave_one_out(configurations, network)), is_leave_one_out=True),
    ]
    return [split for split in found if split.folds]


def _both(
    space: Space, configurations: Sequence[Configuration], axes: Sequence[GapAxis]
) -> list[Fold]:
    """Leave out a value of each axis, and test the gangs where both meet.

    The largest and the smallest of each: what a question far from everything asks.
    """
    gangs = [c for c in configurations if not c.is_one_machine]
    known = [sorted({v for c in gangs if (v := space.value(c, axis)) is not None}) for axis in axes]
    if any(len(values) < _LEAST_VALUES for values in known):
        return []
    found = []
    for chosen in itertools.product(*((values[0], values[-1]) for values in known)):
        lacks = [
            [
                space.value(c, axis) == value
                and not (axis == GapAxis.WORLD_SIZE and c.is_one_machine)
                for axis, value in zip(axes, chosen, strict=True)
            ]
            for c in configurations
        ]
        found.append(
            Fold(
                training=tuple(i for i, own in enumerate(lacks) if not any(own)),
                tested=tuple(i for i, own in enumerate(lacks) if all(own)),
            )
        )
    return [fold for fold in found if fold.tested]


def _curves_ended(configurations: Sequence[Configuration]) -> list[Fold]:
    """End one curve after its two smallest world sizes, while the others go on."""
    sizes: dict[Hashable, set[int]] = {}
    for c in configurations:
        if not c.is_one_machine:
            sizes.setdefault(names_of(c), set()).add(c.world_size)
    curves = sorted((names for names in sizes if len(sizes[names]) > 2), key=repr)
    if len(sizes) < 2:
        return []
    count = min(_MOST_CURVES, len(curves))
    return [
        holding_out(
            [
                names_of(c) == names and c.world_size > sorted(sizes[names])[1]
                for c in configurations
            ],
            [True],
        )
        for names in (curves[i * len(curves) // count] for i in range(count))
    ]


def _types_on(configurations: Sequence[Configuration], *, most: int) -> list[Fold]:
    """Know each instance type in turn on so many machines at most, and the others fully."""
    types = sorted({c.instance_type for c in configurations}, key=repr)
    known = {c.instance_type for c in configurations if c.world_size <= most}
    if len(types) < 2:
        return []
    found = [
        holding_out(
            [c.instance_type == name and c.world_size > most for c in configurations], [True]
        )
        for name in types
        if name in known
    ]
    return [fold for fold in found if fold.tested]


def _series(configuration: Configuration) -> Hashable:
    """Return the configuration without its batch size; one machine without its strategy too."""
    if configuration.is_one_machine:
        configuration = dataclasses.replace(configuration, strategy=None)
    return dataclasses.replace(configuration, global_batch_size=1)


def _order(group: Hashable) -> tuple[float, str]:
    return (group, "") if isinstance(group, float) else (0.0, repr(group))
