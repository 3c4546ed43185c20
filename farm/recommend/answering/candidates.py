"""Lists the configurations that compete for a question, measured or not.

Candidates have the strategies, world sizes and instance types that the origin has at any batch size
and delay, and the world sizes that the question names. Configurations known to run out of memory
are left out. If an instance type was measured on one machine only, gangs of it are candidates with
the set-ups of other instance types: they were never measured, but may be worth measuring.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.catalogue import StrategyFacts
from farm.measuring.measurement import OK
from farm.recommend.answering.measured import (
    DistinguishingFields,
    answers,
    attempted,
    distinguishing_fields,
    name_of,
)
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Evidence, Question
from farm.recommend.memory_limits import OUT_OF_MEMORY, MemoryLimits
from farm.recommend.setup import Setup

# Far more than anybody compares; each costs a prediction.
MAX_CANDIDATES = 500

_ALONE = "single"  # the strategy that needs no gang

_Way = tuple[str | None, str | None, Setup, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    configurations: tuple[Configuration, ...]
    warnings: tuple[str, ...] = ()


def candidates(
    evidence: Sequence[Evidence],
    question: Question,
    *,
    others: Sequence[Evidence] = (),
    strategies: Mapping[str, StrategyFacts] | None = None,
) -> Candidates:
    """Return every configuration that competes, one machine first, then by world size.

    `evidence`: of the question's workload, on one kind of hardware. `others`: the same of instance
    types that are not asked about. `strategies`: which world sizes those that are known here can
    do. One machine is among the candidates even if none was measured: a predictor says whether
    anything can be said of it.
    """
    facts = strategies or {}
    usable = [e.configuration for e in evidence if e.status == OK]
    elsewhere = [e.configuration for e in others if e.status == OK]
    gangs = [*usable, *_assumed_gangs(usable, elsewhere)]
    found = dict.fromkeys([*_one_machine(evidence, question, facts), *_gangs(gangs, question)])
    measured = {(c.strategy, c.world_size) for c in gangs}
    failed = [e for e in evidence if e.status == OUT_OF_MEMORY]
    limits = MemoryLimits.of([e.configuration for e in failed], usable)
    by = distinguishing_fields(found, ("instance_type", "setup", "network"))
    fitting, warnings = [], []
    for configuration in found:
        chosen = (configuration.strategy, configuration.world_size)
        if configuration.world_size > question.global_batch_size or not (
            chosen in measured or _can_do(*chosen, facts)
        ):
            continue
        why = _out_of_memory(configuration, limits, failed, question, by)
        if why is None:
            fitting.append(configuration)
        elif why:
            warnings.append(why)
    if len(fitting) > MAX_CANDIDATES:
        warnings.append(
            f"{len(fitting)} configurations compete, of which the {MAX_CANDIDATES} with the fewest "
            "machines were considered: name strategies, networks or world sizes"
        )
    return Candidates(
        configurations=tuple(fitting[:MAX_CANDIDATES]), warnings=tuple(dict.fromkeys(warnings))
    )


def _can_do(strategy: str | None, world_size: int, facts: Mapping[str, StrategyFacts]) -> bool:
    known = facts.get(strategy or "")
    return known is None or (
        known.min_world_size <= world_size
        and (known.max_world_size is None or world_size <= known.max_world_size)
    )


def _one_machine(
    evidence: Sequence[Evidence], question: Question, facts: Mapping[str, StrategyFacts]
) -> Iterable[Configuration]:
    """Return the ways in which one machine was tried, or else what it would be without a gang."""
    single = [e for e in evidence if e.configuration.is_one_machine]
    # What failed early does not know its framework.
    single = [e for e in single if e.status == OK] or single
    ways: set[_Way] = set()
    for known in (e.configuration for e in single or evidence):
        strategy = known.strategy if single or _can_do(known.strategy, 1, facts) else _ALONE
        # Of a gang's servers and averages one machine has none.
        setup = known.setup if single else known.setup.of_one_machine
        way = (strategy, known.framework, setup, None, known.instance_type)
        if way not in ways:
            ways.add(way)
            yield _configuration(way, question, world_size=1, server_count=0)


def _assumed_gangs(
    usable: Sequence[Configuration], others: Sequence[Configuration]
) -> list[Configuration]:
    """Return the gangs of other instance types for each type of which only one machine is known."""
    gangs = [c for c in (*usable, *others) if not c.is_one_machine]
    with_gangs = {c.instance_type for c in usable if not c.is_one_machine}
    alone = {(c.instance_type, c.framework): None for c in usable if c.is_one_machine}
    return [
        dataclasses.replace(gang, instance_type=instance_type)
        for instance_type, framework in alone
        if instance_type is not None and instance_type not in with_gangs
        for gang in gangs
        if gang.framework == framework
    ]


def _gangs(usable: Sequence[Configuration], question: Question) -> Iterable[Configuration]:
    known = [c for c in usable if not c.is_one_machine]
    networks = _networks(known, question)
    gangs = [
        c
        for c in known
        if c.network in networks and (not question.strategies or c.strategy in question.strategies)
    ]
    server_counts: dict[_Way, dict[int, None]] = {}
    for item in gangs:
        way = (item.strategy, item.framework, item.setup, item.network, item.instance_type)
        server_counts.setdefault(way, {})[item.server_count] = None
    paired = {(c.strategy, c.world_size, c.server_count) for c in known}
    world_sizes = sorted(set(question.world_sizes) or {c.world_size for c in known})
    for world_size in world_sizes:
        for way, counts in server_counts.items():
            if not way[2].fills_machines(world_size):
                continue
            measured = [c for c in counts if (way[0], world_size, c) in paired]
            for server_count in measured or counts:
                if world_size > 1 or server_count:
                    yield _configuration(
                        way, question, world_size=world_size, server_count=server_count
                    )


def _networks(known: Sequence[Configuration], question: Question) -> set[str | None]:
    """Return the networks on which gangs may be asked about.

    A network's name says what made its conditions, such as an emulator. One that was only ever
    measured untouched cannot delay anything, unless no network here was touched at all.
    """
    alike = {c.network for c in known if c.is_untouched is question.is_untouched}
    networks = alike or {c.network for c in known}
    return {n for n in networks if not question.networks or n in question.known_networks}


def _configuration(
    way: _Way, question: Question, *, world_size: int, server_count: int
) -> Configuration:
    strategy, framework, setup, network, instance_type = way
    configuration = Configuration(
        **question.task,
        framework=framework,
        strategy=strategy,
        setup=setup,
        network=network,
        instance_type=instance_type,
        world_size=world_size,
        server_count=server_count,
    )
    return configuration if configuration.has_network else configuration.without_network()


def _out_of_memory(
    configuration: Configuration,
    limits: MemoryLimits,
    failed: Sequence[Evidence],
    question: Question,
    by: DistinguishingFields,
) -> str | None:
    """Say why a configuration cannot fit into memory; None where nothing speaks against it.

    `failed`: what ran out of memory. The text is empty where this very question failed, which is
    told with the failures.
    """
    batch_size = limits.exceeded_by(configuration)
    if batch_size is None:
        return None
    if any(
        answers(e, question) and attempted(e.configuration) == attempted(configuration)
        for e in failed
    ):
        return ""
    return (
        f"{name_of(configuration, by)}: ran out of memory with global_batch_size {batch_size}, "
        f"so it cannot do with {configuration.global_batch_size}"
    )
