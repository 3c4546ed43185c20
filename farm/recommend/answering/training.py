"""Time, cost and accuracy of a whole training from the time of a step."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from farm.configuration.catalogue import StrategyFacts
from farm.measuring.noise import UNDISTURBED, undisturbed_first
from farm.recommend.answering.epoch_length import EpochLength, EpochRatio
from farm.recommend.answering.learning import Learned
from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Basis, Evidence, Option, Prediction, Question
from farm.recommend.objective import UNKNOWN_ACCURACY
from farm.statistics import weighted_median

# Of strategies that a table names and the farm does not have.
_OTHER_UPDATES = re.compile(
    r"async|(?<![a-z])(a-?sgd|local[ _-]?sgd|gossip|hogwild|stale|ssp|easgd|diloco|fedavg"
    r"|federated)"
)


def trains_alike(strategies: Mapping[str, StrategyFacts], name: str | None) -> bool:
    """Whether a strategy computes the updates of synchronous training.

    Of one that the farm does not have, its name says.
    """
    facts = strategies.get(name or "")
    if facts is not None:
        return facts.is_synchronous
    return _OTHER_UPDATES.search((name or "").lower()) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTerms:
    """What is the same for all options of a question. Prices are of one VM, by instance type."""

    question: Question
    length: EpochLength
    ratio: EpochRatio
    prices_usd_per_hour: Mapping[str, float]
    strategies: Mapping[str, StrategyFacts] = field(default_factory=dict)


# The ends of the intervals over the expected time: low, high (90 %), low80, high80.
_Ends = tuple[float, float, float, float]


def measured_option(
    repetitions: Sequence[Evidence],
    prediction: Prediction | None,
    training: Learned,
    terms: TrainingTerms,
) -> Option | None:
    """Return what the repetitions of one configuration say; None without a single time.

    A time per epoch counts as it was measured, even where it is not the steps' times their number.
    Disturbed repetitions count only where there are no others, each by its weight.
    """
    timed = [e for e in repetitions if (e.step_time_s, e.time_per_epoch_s) != (None, None)]
    kept = undisturbed_first(timed, lambda e: e.disturbance)
    kept_ids = {e.measurement_id for e in kept}
    set_aside_ids = tuple(
        e.measurement_id
        for e in repetitions
        if e.disturbance != UNDISTURBED and e.measurement_id not in kept_ids and kept
    )
    repetitions = kept or repetitions
    first = repetitions[0]
    weighted = [(_time_per_epoch_s(e, terms), e.disturbance.weight) for e in repetitions]
    times = [(time_s, weight) for time_s, weight in weighted if time_s is not None]
    steps = [
        (e.step_time_s, e.disturbance.weight) for e in repetitions if e.step_time_s is not None
    ]
    if not times and not steps:
        return None
    times_s = [time_s for time_s, _ in times]
    step_time_s = weighted_median(steps) if steps else None
    if steps and prediction is not None and _is_of(prediction, repetitions):
        # What its interval was put around.
        step_time_s = prediction.step_time_s
    powers_w = [
        (e.energy_per_step_j / e.step_time_s, e.disturbance.weight)
        for e in repetitions
        if e.energy_per_step_j is not None and e.step_time_s
    ]
    return _option(
        first.configuration,
        power_w=weighted_median(powers_w) if powers_w else None,
        fingerprint=first.fingerprint,
        time_per_epoch_s=weighted_median(times) if times else None,
        step_time_s=step_time_s,
        ends=_predicted_ends(prediction) or _measured_ends(times or steps),
        basis=Basis.MEASURED,
        measurement_ids=tuple(e.measurement_id for e in repetitions),
        set_aside_ids=set_aside_ids,
        repetition_count=len(times or steps),
        step_time_spread_s=_median(e.step_time_spread_s for e in repetitions),
        spread_s=max(times_s) - min(times_s) if len(times_s) > 1 else None,
        steps_per_epoch=next(
            (e.steps_per_epoch for e in repetitions if e.steps_per_epoch is not None),
            terms.length.step_count,
        ),
        training=training,
        terms=terms,
    )


def predicted_option(
    configuration: Configuration,
    prediction: Prediction,
    training: Learned,
    terms: TrainingTerms,
    *,
    fingerprint: str | None,
) -> Option:
    """Return what is predicted of one configuration; its step time must be known."""
    step_time_s, step_count = prediction.step_time_s, terms.length.step_count
    assert step_time_s is not None
    return _option(
        configuration,
        fingerprint=fingerprint,
        time_per_epoch_s=_epoch_of_steps_s(step_time_s, terms.length.full_steps, terms),
        step_time_s=step_time_s,
        ends=_predicted_ends(prediction),
        basis=prediction.basis,
        measurement_ids=prediction.measurement_ids,
        set_aside_ids=(),
        repetition_count=0,
        step_time_spread_s=None,
        spread_s=None,
        steps_per_epoch=step_count,
        training=training,
        terms=terms,
        speculative_because=prediction.speculative_because,
    )


def _option(
    configuration: Configuration,
    *,
    fingerprint: str | None,
    time_per_epoch_s: float | None,
    step_time_s: float | None,
    ends: _Ends | None,
    basis: Basis,
    measurement_ids: tuple[int, ...],
    set_aside_ids: tuple[int, ...],
    repetition_count: int,
    step_time_spread_s: float | None,
    spread_s: float | None,
    steps_per_epoch: int | None,
    training: Learned,
    terms: TrainingTerms,
    speculative_because: str | None = None,
    power_w: float | None = None,
) -> Option:
    time_s = _product(time_per_epoch_s, training.epoch_count)
    low, high, low80, high80 = ends or (None, None, None, None)
    price = terms.prices_usd_per_hour.get(configuration.instance_type or "")
    usd_per_s = None if price is None else configuration.machine_count * price / 3600
    return Option(
        is_synchronous=configuration.world_size == 1
        or trains_alike(terms.strategies, configuration.strategy),
        strategy=configuration.strategy,
        world_size=configuration.world_size,
        server_count=configuration.server_count,
        instance_type=configuration.instance_type,
        framework=configuration.framework,
        placement=configuration.placement,
        network=configuration.network,
        fingerprint=fingerprint,
        time_per_epoch_s=time_per_epoch_s,
        step_time_s=step_time_s,
        step_time_spread_s=step_time_spread_s,
        spread_s=spread_s,
        low_s=_product(time_per_epoch_s, low),
        high_s=_product(time_per_epoch_s, high),
        low80_s=_product(time_per_epoch_s, low80),
        high80_s=_product(time_per_epoch_s, high80),
        step_low_s=_product(step_time_s, low),
        step_high_s=_product(step_time_s, high),
        step_low80_s=_product(step_time_s, low80),
        step_high80_s=_product(step_time_s, high80),
        steps_per_epoch=steps_per_epoch,
        epoch_count=training.epoch_count,
        accuracy_epochs=training.accuracy_epochs,
        time_s=time_s,
        time_high_s=_product(time_s, high),
        cost_usd=_product(time_s, usd_per_s),
        cost_high_usd=_product(_product(time_s, high), usd_per_s),
        price_usd_per_hour=price,
        power_w=power_w,
        energy_j=_product(time_s, power_w),
        energy_high_j=_product(_product(time_s, high), power_w),
        accuracy=training.accuracy,
        repetition_count=repetition_count,
        basis=basis.value,
        measurement_ids=measurement_ids,
        set_aside_ids=set_aside_ids,
        excluded_because=training.unknown_because,
        unjudged_because=UNKNOWN_ACCURACY
        if training.unknown_because is not None and training.accuracy is None
        else None,
        speculative_because=speculative_because,
    )


def _is_of(prediction: Prediction, repetitions: Iterable[Evidence]) -> bool:
    """Whether it was made from just these; a fit may lack the latest."""
    known_ids = {e.measurement_id for e in repetitions}
    return prediction.basis is Basis.MEASURED and set(prediction.measurement_ids) == known_ids


def _time_per_epoch_s(evidence: Evidence, terms: TrainingTerms) -> float | None:
    """As measured, or its step time for as long as an epoch of its own is, if that is known."""
    if terms.length.is_contradictory:
        return None
    if evidence.time_per_epoch_s is not None:
        return evidence.time_per_epoch_s
    own = evidence.steps_per_epoch
    is_usual = own is None or own == terms.length.step_count
    return _epoch_of_steps_s(
        evidence.step_time_s, terms.length.full_steps if is_usual else own, terms
    )


def _epoch_of_steps_s(
    step_time_s: float | None, step_count: float | None, terms: TrainingTerms
) -> float | None:
    """Return an epoch that stands beside measured ones, which may be longer than their steps."""
    return _product(_product(step_time_s, step_count), terms.ratio.factor)


def _predicted_ends(prediction: Prediction | None) -> _Ends | None:
    if prediction is None or not prediction.step_time_s:
        return None
    ends_s = (prediction.low_s, prediction.high_s, prediction.low80_s, prediction.high80_s)
    low, high, low80, high80 = (_product(e, 1 / prediction.step_time_s) for e in ends_s)
    if low is None or high is None or low80 is None or high80 is None:
        return None
    return low, high, low80, high80


def _measured_ends(weighted: Sequence[tuple[float, float]]) -> _Ends | None:
    """Return the ends over the weighted median of the (time, weight)."""
    times_s, middle_s = [time_s for time_s, _ in weighted], weighted_median(weighted)
    interval = prediction_interval(times_s, coverage_ratio=0.9)
    interval80 = prediction_interval(times_s, coverage_ratio=0.8)
    if interval is None or interval80 is None:
        return None
    return (
        min(interval.low_s / middle_s, 1.0),
        max(interval.high_s / middle_s, 1.0),
        min(interval80.low_s / middle_s, 1.0),
        max(interval80.high_s / middle_s, 1.0),
    )


def _product(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
