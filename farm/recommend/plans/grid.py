"""The grid of configurations that a plan may measure.

A way is the part of a configuration that is not a number: model, strategy, instance type and so on.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from farm.configuration.spec import NetworkConditions
from farm.recommend.calibrated.novelty import keeps_replica_batch
from farm.recommend.configuration import UNTOUCHED_NETWORK, Configuration
from farm.recommend.features import canonical
from farm.recommend.memory_limits import limits_by_workload, workload
from farm.recommend.setup import USUAL_SETUP

# Five proposals then take some seconds; the time grows with the square of the number.
MAX_CONFIGURATIONS = 400

_Network = tuple[str | None, NetworkConditions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The values to cross; an empty axis takes those that were measured."""

    strategies: tuple[str, ...] = ()
    world_sizes: tuple[int, ...] = ()
    global_batch_sizes: tuple[int, ...] = ()
    one_way_delays_s: tuple[float, ...] = ()
    instance_types: tuple[str, ...] = ()


def grid(known: Sequence[Configuration], axes: Axes) -> list[Configuration]:
    """Cross the measured ways, networks, world sizes and batch sizes, or those that axes name.

    `known`: what was measured, or failed. Where it keeps the per-replica batch size while the
    world size varies, so does the grid. One machine comes once for each batch size, without a
    network, in the ways it was measured in; if it never was, then in those of the gangs. So do
    several ranks on one machine, which on more machines are crossed with every network.
    """
    known = [canonical(c) for c in known if _is_meant(c, axes)]
    gangs = [c for c in known if not c.is_one_machine]
    world_sizes = sorted(set(axes.world_sizes) or {c.world_size for c in known})
    found: dict[Configuration, None] = {}
    single = [c for c in known if c.is_one_machine]
    for way in _ways(single or [_by_itself(c) for c in gangs]):
        for batch in _batches(known, axes, world_size=1):
            alone = dataclasses.replace(way.without_network(), world_size=1, server_count=0)
            found.setdefault(dataclasses.replace(alone, global_batch_size=batch))
    networks = _networks(gangs, axes)
    for way in _ways(_on_networks(gangs, networks)):
        for network in (n for n in networks if n[0] == way.network):
            for world_size in world_sizes:
                is_alone = world_size == 1 and not way.server_count
                if is_alone or not way.setup.fills_machines(world_size):
                    continue
                for batch in _batches(known, axes, world_size=world_size):
                    if batch >= world_size:
                        gang = dataclasses.replace(
                            way.on_network(*network), world_size=world_size, global_batch_size=batch
                        )
                        found.setdefault(canonical(gang))
    return list(found)


def works(
    configurations: Iterable[Configuration],
    failures: Sequence[tuple[Configuration, str]],
    *,
    measured: Iterable[Configuration],
) -> list[Configuration]:
    """Leave out what failed, and what needs more memory than what ran out of it.

    `failures`: configurations with their status; what was measured all the same works.
    """
    measured = [canonical(c) for c in measured]
    failed = {canonical(c) for c, _ in failures}.difference(measured)
    limits = limits_by_workload(failures, measured)
    return [
        c
        for c in configurations
        if canonical(c) not in failed
        and (workload(c) not in limits or limits[workload(c)].exceeded_by(c) is None)
    ]


def thinned(configurations: Sequence[Configuration], *, seed: int = 0) -> list[Configuration]:
    """Return at most `MAX_CONFIGURATIONS`: whole questions, chosen at random, in the same order.

    A question's gangs stay together, and with them the single machines they compete with.
    """
    if len(configurations) <= MAX_CONFIGURATIONS:
        return list(configurations)
    singles = [c for c in configurations if not c.has_network]
    questions: dict[Configuration, list[Configuration]] = {}
    for c in configurations:
        if c.has_network:
            questions.setdefault(_question(c), []).append(c)
    kept: set[Configuration] = set()
    for question in random.Random(seed).sample(list(questions), len(questions)):
        if kept and len(kept) + len(questions[question]) > MAX_CONFIGURATIONS - len(singles):
            break
        kept.update(questions[question])
    kept_questions = {_question(c.without_network()) for c in kept}
    kept.update(c for c in singles if _question(c) in kept_questions)
    return [c for c in configurations if c in kept]


def _question(c: Configuration) -> Configuration:
    """Return what is given in a question, with numbers that mean nothing where it asks."""
    return dataclasses.replace(
        c,
        framework=None,
        strategy=None,
        setup=USUAL_SETUP,
        instance_type=None,
        world_size=1,
        server_count=0,
    )


def _is_meant(c: Configuration, axes: Axes) -> bool:
    if axes.instance_types and c.instance_type not in axes.instance_types:
        return False
    return c.is_one_machine or not axes.strategies or c.strategy in axes.strategies


def _ways(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Return one configuration for each way, with numbers that mean nothing."""
    ways = (
        dataclasses.replace(
            c.on_network(c.network, UNTOUCHED_NETWORK), world_size=1, global_batch_size=1
        )
        for c in configurations
    )
    return list(dict.fromkeys(ways))


def _on_networks(
    gangs: Iterable[Configuration], networks: Iterable[_Network]
) -> Iterator[Configuration]:
    """Yield the gangs, and those that have no network once for each of the networks' names."""
    names = dict.fromkeys(name for name, _ in networks)
    for c in gangs:
        if c.has_network:
            yield c
        else:
            yield from (c.on_network(name, UNTOUCHED_NETWORK) for name in names)


def _networks(gangs: Iterable[Configuration], axes: Axes) -> list[_Network]:
    """Return the conditions that were measured, with the delays that are asked for.

    Those of ranks on one machine are of no network, and count where there are no others.
    """
    found: dict[_Network, None] = {}
    known = list(gangs)
    for c in [c for c in known if c.has_network] or known:
        for delay_s in axes.one_way_delays_s or (c.one_way_delay_s,):
            measured = NetworkConditions(**c.by_field)
            conditions = dataclasses.replace(
                measured, one_way_delay_s=delay_s, jitter_s=min(c.jitter_s, delay_s)
            )
            found.setdefault((c.network, conditions))
    return list(found)


def _batches(known: Sequence[Configuration], axes: Axes, *, world_size: int) -> list[int]:
    if axes.global_batch_sizes:
        return sorted(set(axes.global_batch_sizes))
    if keeps_replica_batch(known):
        replica = {c.per_replica_batch_size for c in known}
        return sorted({round(batch * world_size) for batch in replica})
    return sorted({c.global_batch_size for c in known})


def _by_itself(gang: Configuration) -> Configuration:
    """Return one machine of a gang, which has neither its servers nor its averages."""
    return dataclasses.replace(
        gang.without_network(), server_count=0, setup=gang.setup.of_one_machine
    )
