"""Options that were measured as asked: nothing between or beyond them is guessed.

Kinds of hardware are never pooled. The kind of instance is part of the answer, so options of
different instance types stand beside each other; where one instance type (or none is named) was
measured on several fingerprints, only one of them answers, and a warning says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.core.measurement import OK
from farm.recommend.contracts import MEASURED, Evidence, Option, Question
from farm.recommend.intervals import prediction_interval

_SHOWN_DIGITS = 12  # of a fingerprint
# Delays are converted from milliseconds, so equal ones may differ in their last bits.
_EQUAL_RATIO = 1e-9

_Candidate = tuple[str | None, str | None, str | None, str | None, str | None, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOptions:
    options: tuple[Option, ...]
    warnings: tuple[str, ...]


def measured_options(
    evidence: Sequence[Evidence],
    question: Question,
    *,
    examples_count: int | None,
    prices_usd_per_hour: Mapping[str, float],
) -> MeasuredOptions:
    """Turn the measurements of one workload and origin into options for the question.

    `examples_count`: of the training set, None if not known. `prices_usd_per_hour`: of one VM, by
    instance type; a type that is not there has no known cost.
    """
    asked = [e for e in evidence if answers(e, question)]
    kept, warnings = _one_fingerprint_each(asked)
    warnings += _failures(kept)
    groups: dict[_Candidate, list[Evidence]] = {}
    for item in kept:
        if item.status == OK:
            groups.setdefault(_candidate(item), []).append(item)
    options = []
    for group in groups.values():
        option = _option(group, question, examples_count, prices_usd_per_hour)
        if option is None:
            warnings.append(f"{_name(group[0])}: the length of its epoch is not known")
        else:
            options.append(option)
    return MeasuredOptions(options=tuple(options), warnings=tuple(warnings))


def answers(evidence: Evidence, question: Question) -> bool:
    """Whether a measurement was made under the conditions asked about.

    One machine needs no network, so it answers at every delay, bandwidth and loss.
    """
    if evidence.global_batch_size != question.global_batch_size:
        return False
    if question.instance_types and evidence.instance_type not in question.instance_types:
        return False
    if evidence.is_one_machine:
        return True
    return (
        (not question.strategies or evidence.strategy in question.strategies)
        and (not question.world_sizes or evidence.world_size in question.world_sizes)
        and _equal(evidence.one_way_delay_s, question.one_way_delay_s)
        and _equal(evidence.packet_loss_ratio, question.packet_loss_ratio)
        and _equal(evidence.jitter_s, question.jitter_s)
        and _equal(evidence.bandwidth_bytes_per_s, question.bandwidth_bytes_per_s)
    )


def _equal(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=_EQUAL_RATIO)


def _one_fingerprint_each(asked: Iterable[Evidence]) -> tuple[list[Evidence], list[str]]:
    """Keep for each instance type the fingerprint with most configurations, the newest of equals.

    A fingerprint of several instance types is a mixed gang's, and its type names the mixture.
    """
    by_type: dict[str | None, dict[str | None, list[Evidence]]] = {}
    for item in asked:
        by_type.setdefault(item.instance_type, {}).setdefault(item.fingerprint, []).append(item)
    kept: list[Evidence] = []
    warnings: list[str] = []
    for instance_type, kinds in by_type.items():
        chosen = max(kinds, key=lambda kind: _weight(kinds[kind]))
        kept += kinds[chosen]
        if len(kinds) > 1:
            of_type = f" of instance type {instance_type}" if instance_type else ""
            warnings.append(
                f"measured on {len(kinds)} kinds of hardware{of_type}, which are not pooled: "
                f"this answers for {_short(chosen)}, not for "
                f"{', '.join(sorted(_short(kind) for kind in kinds if kind != chosen))}"
            )
    return sorted(kept, key=lambda e: e.measurement_id), warnings


def _weight(group: Sequence[Evidence]) -> tuple[int, int]:
    successes = {_candidate(e) for e in group if e.status == OK}
    return len(successes), max(e.measurement_id for e in group)


def _short(fingerprint: str | None) -> str:
    return fingerprint[:_SHOWN_DIGITS] if fingerprint else "hardware without a fingerprint"


def _candidate(evidence: Evidence) -> _Candidate:
    return (
        evidence.strategy,
        evidence.framework,
        evidence.placement,
        # An emulator's ways show in the times; one machine has none to show.
        None if evidence.is_one_machine else evidence.network,
        evidence.instance_type,
        evidence.world_size,
        evidence.server_count,
    )


def _name(evidence: Evidence) -> str:
    servers = f" and {evidence.server_count} servers" if evidence.server_count else ""
    of_type = f" of {evidence.instance_type}" if evidence.instance_type else ""
    strategy = evidence.strategy or "unnamed strategy"
    return f"{strategy} with world_size {evidence.world_size}{servers}{of_type}"


def _failures(kept: Iterable[Evidence]) -> list[str]:
    """Say which configurations failed. What failed early does not know its framework."""
    by_name: dict[str, list[Evidence]] = {}
    for item in kept:
        by_name.setdefault(_name(item), []).append(item)
    warnings = []
    for name, group in by_name.items():
        failed = [e.status for e in group if e.status != OK]
        if failed:
            reasons = ", ".join(sorted(set(failed)))
            warnings.append(f"{name}: {reasons} in {len(failed)} of {len(group)} measurements")
    return warnings


def _option(
    group: Sequence[Evidence],
    question: Question,
    examples_count: int | None,
    prices_usd_per_hour: Mapping[str, float],
) -> Option | None:
    first = group[0]
    times_s = [t for e in group if (t := _time_per_epoch_s(e, examples_count)) is not None]
    if not times_s:
        return None
    time_per_epoch_s = statistics.median(times_s)
    time_s = time_per_epoch_s * question.epochs
    machine_count = first.world_size + first.server_count
    price = prices_usd_per_hour.get(first.instance_type or "")
    interval = prediction_interval(times_s, coverage_ratio=0.9)
    interval80 = prediction_interval(times_s, coverage_ratio=0.8)
    return Option(
        strategy=first.strategy,
        world_size=first.world_size,
        server_count=first.server_count,
        instance_type=first.instance_type,
        framework=first.framework,
        placement=first.placement,
        network=None if first.is_one_machine else first.network,
        fingerprint=first.fingerprint,
        time_per_epoch_s=time_per_epoch_s,
        step_time_s=_median(e.step_time_s for e in group),
        step_time_spread_s=_median(e.step_time_spread_s for e in group),
        spread_s=max(times_s) - min(times_s) if len(times_s) > 1 else None,
        low_s=interval.low_s if interval else None,
        high_s=interval.high_s if interval else None,
        low80_s=interval80.low_s if interval80 else None,
        high80_s=interval80.high_s if interval80 else None,
        time_s=time_s,
        cost_usd=None if price is None else machine_count * time_s * price / 3600,
        accuracy=_median(e.accuracy for e in group),
        repetition_count=len(times_s),
        basis=MEASURED,
        measurement_ids=tuple(e.measurement_id for e in group),
    )


def _time_per_epoch_s(evidence: Evidence, examples_count: int | None) -> float | None:
    """As measured, or step time x ceil(examples / global batch size), the last step partial."""
    if evidence.time_per_epoch_s is not None:
        return evidence.time_per_epoch_s
    step_count = evidence.steps_per_epoch
    if step_count is None and examples_count is not None:
        step_count = math.ceil(examples_count / evidence.global_batch_size)
    if evidence.step_time_s is None or step_count is None:
        return None
    return evidence.step_time_s * step_count


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
