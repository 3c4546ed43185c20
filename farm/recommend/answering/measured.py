"""Selects the measurements that answer a question, and their hardware.

Kinds of hardware are never pooled. The instance type is part of the answer, so options of different
instance types are listed together. If an instance type, or none, was measured on several
fingerprints, only one of them is used, and a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from farm.measuring.measurement import OK
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import MACHINE_STATUSES, Evidence, Option, Question
from farm.recommend.setup import Setup, published_name
from farm.text.display import short_fingerprint
from farm.text.plurals import counted

# Delays are converted from milliseconds, so equal ones may differ in their last bits.
_EQUAL_RATIO = 1e-9
_CLEARLY_FASTER = 1.1  # repetitions on one kind of hardware seldom differ by more

# What is chosen: strategy, framework, set-up, network, instance type, world size, server count.
ConfigurationKey = tuple[str | None, str | None, Setup, str | None, str | None, int, int]
Named = Configuration | Option
UNNAMED = "unnamed "  # before a field, of a choice that leaves it unnamed
DistinguishingFields = Mapping[str, frozenset[str | None]]  # by field, see `distinguishing_fields`
# What is known of a choice that failed before it began.
_KNOWN_EARLY = ("instance_type", "setup")
Attempted = tuple[str | None, Setup, int, int, str | None]  # see `attempted`


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOptions:
    """The measurements that answer a question.

    `successes`: the repetitions of each choice, in order of their ids; `failed`: what was attempted
    and never succeeded. `fingerprints`: for each
    instance type of the workload, measured as asked or not, the kind of hardware that answers.
    """

    successes: Mapping[ConfigurationKey, tuple[Evidence, ...]]
    failed: frozenset[Attempted]
    fingerprints: Mapping[str | None, str | None]
    warnings: tuple[str, ...]
    cautions: tuple[str, ...] = ()


def measured_as_requested(evidence: Sequence[Evidence], question: Question) -> MeasuredOptions:
    """Pick from the measurements of one workload and origin those that answer the question."""
    answering = [e for e in evidence if answers(e, question)]
    fingerprints, warnings = _one_fingerprint_each(answering)
    kept = sorted(
        (e for e in answering if fingerprints[e.configuration.instance_type] == e.fingerprint),
        key=lambda e: e.measurement_id,
    )
    warnings += _failures(kept)
    groups: dict[ConfigurationKey, list[Evidence]] = {}
    for item in kept:
        if item.status == OK:
            groups.setdefault(choice_of(item.configuration), []).append(item)
    tried = frozenset(attempted(e.configuration) for e in kept if e.status not in MACHINE_STATUSES)
    succeeded = {attempted(e.configuration) for e in kept if e.status == OK}
    others, _ = _one_fingerprint_each(
        e
        for e in evidence
        if (name := e.configuration.instance_type) not in fingerprints
        and (not question.instance_types or name in question.instance_types)
    )
    return MeasuredOptions(
        successes={choice: tuple(group) for choice, group in groups.items()},
        failed=tried - succeeded,
        fingerprints={**fingerprints, **others},
        warnings=tuple(warnings),
        cautions=tuple(_faster_elsewhere(answering, fingerprints)),
    )


def answers(evidence: Evidence, question: Question) -> bool:
    """Whether a measurement was made under the conditions asked about.

    One machine needs no network, so it answers at every delay, bandwidth and loss.
    """
    measured = evidence.configuration
    if measured.global_batch_size != question.global_batch_size:
        return False
    if question.instance_types and measured.instance_type not in question.instance_types:
        return False
    if measured.is_one_machine:
        return True
    return (
        (not question.strategies or measured.strategy in question.strategies)
        and (not question.world_sizes or measured.world_size in question.world_sizes)
        and (not measured.has_network or _is_on_network_of(question, measured))
    )


def _is_on_network_of(question: Question, measured: Configuration) -> bool:
    return (not question.networks or measured.network in question.known_networks) and all(
        map(_equal, measured.conditions, question.conditions)
    )


def _equal(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=_EQUAL_RATIO)


def _one_fingerprint_each(
    evidence: Iterable[Evidence],
) -> tuple[dict[str | None, str | None], list[str]]:
    """Return for each instance type the fingerprint with most configurations, the newest of equals.

    A fingerprint of several instance types is a mixed gang's, and its type names the mixture.
    """
    by_type: dict[str | None, dict[str | None, list[Evidence]]] = {}
    for item in evidence:
        by_type.setdefault(item.configuration.instance_type, {}).setdefault(
            item.fingerprint, []
        ).append(item)
    fingerprints: dict[str | None, str | None] = {}
    warnings: list[str] = []
    for instance_type, kinds in by_type.items():
        chosen = max(kinds, key=lambda kind: _weight(kinds[kind]))
        fingerprints[instance_type] = chosen
        if len(kinds) > 1:
            of_type = f" of instance type {instance_type}" if instance_type else ""
            warnings.append(
                f"measured on {len(kinds)} kinds of hardware{of_type}, which are not pooled: "
                f"this answers for {_short(chosen)}, not for "
                f"{', '.join(sorted(_short(kind) for kind in kinds if kind != chosen))}"
            )
    return fingerprints, warnings


def _faster_elsewhere(
    evidence: Sequence[Evidence], fingerprints: Mapping[str | None, str | None]
) -> Iterable[str]:
    """Say of the kinds of hardware that do not answer which one has a faster option as asked."""
    for field, what in (("time_per_epoch_s", "an epoch"), ("step_time_s", "a step")):
        least: dict[str | None, dict[str | None, float]] = {}
        for e in evidence:
            time_s = getattr(e, field)
            if e.status == OK and time_s:
                of_type = least.setdefault(e.configuration.instance_type, {})
                of_type[e.fingerprint] = min(time_s, of_type.get(e.fingerprint, time_s))
        for instance_type, by_kind in least.items():
            own_s = by_kind.get(fingerprints[instance_type])
            fastest = min(by_kind, key=lambda kind: by_kind[kind])
            if own_s is not None and own_s > _CLEARLY_FASTER * by_kind[fastest]:
                yield (
                    f"{what} was {own_s / by_kind[fastest]:,.1f} times as fast on other hardware, "
                    f"{_short(fastest)}, which this does not answer for"
                )
        if least:
            return


def _weight(group: Sequence[Evidence]) -> tuple[int, int]:
    successes = {choice_of(e.configuration) for e in group if e.status == OK}
    return len(successes), max(e.measurement_id for e in group)


def _short(fingerprint: str | None) -> str:
    return short_fingerprint(fingerprint) if fingerprint else "hardware without a fingerprint"


def attempted(item: Named) -> Attempted:
    """Return the key of a tried configuration. Early failures have no framework."""
    return (item.strategy, item.setup, item.world_size, item.server_count, item.instance_type)


def choice_of(configuration: Configuration) -> ConfigurationKey:
    return (
        configuration.strategy,
        configuration.framework,
        configuration.setup,
        # An emulator's ways show in the times; one machine has none to show.
        None if configuration.is_one_machine else configuration.network,
        configuration.instance_type,
        configuration.world_size,
        configuration.server_count,
    )


def servers_words(server_count: int) -> str:
    """Return the number of servers in words, if there are any."""
    if not server_count:
        return ""
    return f" and {counted(server_count, 'server')}"


def name_of(item: Named, by: DistinguishingFields = MappingProxyType({})) -> str:
    """Name a choice in a warning. `by`: further fields to tell, see `distinguishing_fields`."""
    servers = servers_words(item.server_count)
    of_type = f" of {item.instance_type}" if item.instance_type else ""
    strategy = item.strategy or f"{UNNAMED}strategy"
    further = "".join(f", {words}" for words in distinctions(item, by))
    return f"{strategy} with world_size {item.world_size}{servers}{of_type}{further}"


def distinguishing_fields(
    items: Iterable[Named],
    fields: Sequence[str] = ("instance_type", "framework", "setup", "network"),
) -> DistinguishingFields:
    """Return which fields distinguish choices, beside strategy and sizes.

    By each field the strategies of which some choices name it, where others leave it unnamed; the
    instance type is compared over all strategies. The network of one machine does not count, since
    it has none.
    """
    known = list(items)
    found: dict[str, frozenset[str | None]] = {}
    for field in fields:
        compared = [item for item in known if field != "network" or not item.is_one_machine]
        if len({getattr(item, field) for item in compared}) > 1:
            found[field] = frozenset(
                item.strategy
                for item in compared
                if field == "instance_type" or getattr(item, field)
            )
    return found


def distinctions(item: Named, by: DistinguishingFields) -> list[str]:
    """Return in words how a choice differs from others, beside a named instance type.

    What it leaves unnamed is said where that alone may tell it from another.
    """
    words = []
    for field, named_with in by.items():
        value = getattr(item, field)
        if field == "network" and item.is_one_machine:
            continue
        if not value:
            if item.strategy in named_with:
                words.append(f"{UNNAMED}{published_name(field).replace('_', ' ')}")
        elif field != "instance_type":
            words.append(f"network {value}" if field == "network" else str(value))
    return words


def _failures(kept: Sequence[Evidence]) -> list[str]:
    """Say which configurations failed. What failed early may not know framework and network."""
    tried = [e.configuration for e in kept]
    knows_network = all(c.network is not None or c.is_one_machine for c in tried)
    by = distinguishing_fields(tried, (*_KNOWN_EARLY, "network") if knows_network else _KNOWN_EARLY)
    by_name: dict[str, list[Evidence]] = {}
    for item in kept:
        by_name.setdefault(name_of(item.configuration, by), []).append(item)
    warnings = []
    for name, group in by_name.items():
        failed = [e.status for e in group if e.status != OK]
        if failed:
            reasons = ", ".join(sorted(set(failed)))
            warnings.append(
                f"{name}: {reasons} in {len(failed)} of {counted(len(group), 'measurement')}"
            )
    return warnings
