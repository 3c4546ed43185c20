"""Which measurements are held out together, so that what is left stands for a real ignorance."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from farm.recommend.calibrated.novelty import Axis, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import plain

FOLD_COUNT = 10  # of random splits

# What is held out together; None: never held out. Groups have an order by their repr.
Group = Callable[[Configuration], Hashable]


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
    configurations: Sequence[Configuration], group: Group, *, count: int, seed: int = 0
) -> list[Fold]:
    """Deal the groups out to at most `count` folds, whatever the order of the configurations."""
    groups = [group(plain(c)) for c in configurations]
    distinct = sorted({g for g in groups if g is not None}, key=repr)
    random.Random(seed).shuffle(distinct)
    return [holding_out(groups, distinct[start::count]) for start in range(count)][: len(distinct)]


def leave_one_out(configurations: Sequence[Configuration], group: Group) -> list[Fold]:
    """Hold each group out once, in their order."""
    groups = [group(plain(c)) for c in configurations]
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
    configurations = [plain(o.configuration) for o in observations]
    space = Space.of(configurations)

    def by(axis: Axis) -> list[Fold]:
        return leave_one_out(configurations, lambda c: space.value(c, axis))

    def network(c: Configuration) -> Hashable:
        return None if c.is_one_machine else str(c.network)

    together = _series if space.is_weak else _itself
    sizes = sorted({c.world_size for c in configurations})
    beyond = [beyond_largest(configurations, from_size=sizes[-2])] if len(sizes) > 3 else []
    found = [
        Split("random", tuple(random_folds(configurations, together, count=FOLD_COUNT, seed=seed))),
        Split("batch", tuple(by(Axis.BATCH)), is_leave_one_out=True),
        Split("delay", tuple(by(Axis.DELAY)), is_leave_one_out=True),
        Split("delay, not the first or last", tuple(by(Axis.DELAY)[1:-1])),
        Split("world size", tuple(by(Axis.WORLD_SIZE)), is_leave_one_out=True),
        Split("two largest world sizes", tuple(beyond)),
        Split(
            "strategy",
            tuple(leave_one_out(configurations, lambda c: str(c.strategy))),
            is_leave_one_out=True,
        ),
        Split("network", tuple(leave_one_out(configurations, network)), is_leave_one_out=True),
    ]
    return [split for split in found if split.folds]


def _itself(configuration: Configuration) -> Hashable:
    return configuration


def _series(configuration: Configuration) -> Hashable:
    """Return the configuration without its batch size; one machine without its strategy too."""
    if configuration.is_one_machine:
        configuration = dataclasses.replace(configuration, strategy=None)
    return dataclasses.replace(configuration, global_batch_size=1)


def _order(group: Hashable) -> tuple[float, str]:
    return (group, "") if isinstance(group, float) else (0.0, repr(group))
