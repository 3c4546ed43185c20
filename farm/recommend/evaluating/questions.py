"""The questions of an evaluation: configurations to choose from, and the objective."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from farm.configuration.spec import TrainingPass
from farm.recommend.calibrated.novelty import GapAxis, Space
from farm.recommend.configuration import Configuration, Observation
from farm.recommend.features import canonical, names_of

# At the same per-replica batch size more machines always train on more examples a second. What
# is minimised there is the time per example x (1 + machines / 16), which has a least value.
WEAK_MACHINE_PRICE = 1 / 16
Positions = tuple[int, ...]  # positions in a list of configurations
Factor = Callable[[Configuration], float]  # what a step time is multiplied with
_Workload = tuple[str | None, str | None, TrainingPass, int]


def choices(configurations: Sequence[Configuration]) -> tuple[Positions, ...]:
    """Group the positions of configurations between which somebody has to choose, two at least.

    A question names the workload, the global batch size and the network; world size, strategy,
    servers and instance type are the answer. One machine, with however many ranks, is an option of
    every question about its workload and batch size, since no network matters to it.
    """
    gangs: dict[_Workload, dict[tuple[object, ...], list[int]]] = {}
    alone: dict[_Workload, list[int]] = {}
    for i, c in enumerate(configurations):
        workload = (c.model, c.dataset, c.training_pass, c.global_batch_size)
        if not c.has_network:
            alone.setdefault(workload, []).append(i)
            continue
        gangs.setdefault(workload, {}).setdefault((c.network, *c.conditions), []).append(i)
    found = []
    for workload in dict.fromkeys([*gangs, *alone]):
        single = _distinct(configurations, alone.get(workload, []))
        for options in gangs.get(workload, {}).values() or [[]]:
            choice = (*single, *options)
            if len(choice) > 1:
                found.append(choice)
    return tuple(found)


def _distinct(configurations: Sequence[Configuration], positions: Sequence[int]) -> list[int]:
    """Keep the first of the positions that are one and the same machine."""
    first: dict[Configuration, int] = {}
    for i in positions:
        first.setdefault(canonical(configurations[i]), i)
    return list(first.values())


def questions(configurations: Sequence[Configuration]) -> list[tuple[Configuration, ...]]:
    """Return the sets of distinct configurations between which somebody has to choose.

    See `choices`. Where the per-replica batch size was kept the same, a
    question is one curve instead: how many machines, with everything else given.
    """
    space = Space.of(configurations)
    if not space.is_weak:
        return [tuple(configurations[i] for i in options) for options in choices(configurations)]
    gangs: dict[Hashable, list[Configuration]] = {}
    for c in space.configurations:
        if not c.is_one_machine:
            key = (names_of(c), c.conditions, space.value(c, GapAxis.BATCH))
            gangs.setdefault(key, []).append(c)
    found = []
    for curve in gangs.values():
        alone = [
            c for c in space.configurations if c.is_one_machine and _begins(space, c, curve[0])
        ]
        if len(alone) + len(curve) > 1:
            found.append((*alone, *curve))
    return found


def _begins(space: Space, alone: Configuration, gang: Configuration) -> bool:
    """Whether one machine is the beginning of a gang's curve: the same but for the network."""
    same_batch = space.value(alone, GapAxis.BATCH) == space.value(gang, GapAxis.BATCH)
    return same_batch and names_of(alone)[:-1] == names_of(gang)[:-1]


def factor(configurations: Sequence[Configuration], *, machine_price: float) -> Factor:
    """Return a function: the factor that turns a configuration's step time into the objective.

    1 + machines x `machine_price`, over the global batch size where that differs between the
    candidates: then the step times are of different amounts of work.
    """
    is_weak = Space.of(configurations).is_weak

    def of(configuration: Configuration) -> float:
        work = configuration.global_batch_size if is_weak else 1
        return (1 + configuration.machine_count * machine_price) / work

    return of


def default_machine_price(observations: Sequence[Observation]) -> float:
    """Return the default price of a machine, relative to the time: see above."""
    space = Space.of(o.configuration for o in observations)
    return WEAK_MACHINE_PRICE if space.is_weak else 0.0
