"""Time, cost and accuracy of a whole training from the time of a step.

Studies define epochs differently; in one published study an epoch has 70 steps at every batch size.
So the number of steps in an epoch is measured, or computed from the data set's size.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from farm.configuration.catalogue import StrategyFacts
from farm.measuring.aggregate import aggregate
from farm.measuring.machine_time import cost_usd
from farm.measuring.measurement import OK, steps_in_epoch
from farm.measuring.noise import undisturbed_first
from farm.measuring.precision import measured_repetition
from farm.measuring.quantities import EVIDENT
from farm.recommend.answering.learning import Learned
from farm.recommend.calibrated.intervals import prediction_interval
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Basis, Evidence, Option, Prediction, Question
from farm.recommend.objective import UNKNOWN_ACCURACY

# Of strategies that a table names and the farm does not have.
_OTHER_UPDATES = re.compile(
    r"async|(?<![a-z])(a-?sgd|local[ _-]?sgd|gossip|hogwild|stale|ssp|easgd|diloco|fedavg"
    r"|federated)"
)
# Beyond this factor epochs are not of the same data. One of the published studies has 50 steps in
# an epoch of some rows and 70 in that of others, and compares their times.
_MOST_LONGER = 1.5
# Up to this factor a measured epoch is its steps. Beyond it there is more in it, such as
# evaluation, or less.
_ALIKE = 1.1


_OF_EVIDENCE = {one.name for one in fields(Evidence)}
_MEASURED = tuple(one for one in EVIDENT if one.name in _OF_EVIDENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLength:
    """`step_count` None goes with the reason.

    `full_steps`: how many times of a full step the epoch takes, its partial step counted as what it
    is where the number of examples is known. `is_contradictory`: measurements with one global batch
    size have epochs of different lengths, so that their times per epoch cannot be compared.
    """

    step_count: int | None
    full_steps: float | None = None
    unknown_because: str | None = None
    is_contradictory: bool = False


def epoch_length(
    evidence: Sequence[Evidence], *, global_batch_size: int, examples_count: int | None
) -> EpochLength:
    """Return the steps of an epoch at a global batch size, which need not have been measured.

    What was measured with that batch size answers, by majority. Between other batch sizes the rule
    is ceil(N / B), with a number of examples N that explains every measured length, or a fixed
    number of steps where only that does. `examples_count`: of the data set, if it is known here.
    """
    counts = _counts(evidence)
    own = counts.get(global_batch_size)
    if own and max(own) > min(own) * _MOST_LONGER:
        return EpochLength(
            step_count=None,
            unknown_because=f"measurements with global_batch_size {global_batch_size} have epochs "
            f"of {min(own)} to {max(own)} steps",
            is_contradictory=True,
        )
    # Of equally usual lengths the larger one.
    known = {b: max(steps, key=lambda s: (steps[s], s)) for b, steps in counts.items()}
    if global_batch_size in known:
        return _known(known[global_batch_size], examples_count, global_batch_size)
    if not known:
        if examples_count is None:
            return _unknown("no measurement says how many steps an epoch has")
        step_count = math.ceil(examples_count / global_batch_size)
        return _known(step_count, examples_count, global_batch_size)
    # ceil(N / B) = s for every N above (s - 1) B and up to s B.
    least = max((s - 1) * b for b, s in known.items()) + 1
    most = min(s * b for b, s in known.items())
    if examples_count is not None and least <= examples_count <= most:
        least = most = examples_count
    if least > most:
        if len(set(known.values())) == 1:
            return _known(next(iter(known.values())), None, global_batch_size)
        return _unknown("the measured epochs fit neither a data set nor a fixed number of steps")
    shortest, longest = (math.ceil(n / global_batch_size) for n in (least, most))
    if shortest != longest:
        return _unknown(f"by the measurements an epoch has {shortest} to {longest} steps")
    return _known(shortest, least if least == most else None, global_batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRatio:
    """How many times as long as all its steps a measured epoch takes, from `least` to `most`.

    `factor`: of an epoch that is made from its steps; None where the ratio is not one and the same.
    """

    least: float = 1.0
    most: float = 1.0
    factor: float | None = 1.0


def epoch_ratio(evidence: Sequence[Evidence], *, examples_count: int | None) -> EpochRatio:
    """Compare the measured epochs of a workload with their steps, of which the last is partial."""
    timed = [e for e in evidence if e.status == OK and e.step_time_s and e.time_per_epoch_s]
    batches = {e.configuration.global_batch_size for e in timed}
    usual = {
        b: epoch_length(evidence, global_batch_size=b, examples_count=examples_count).step_count
        for b in batches
    }
    ratios = []
    for e in undisturbed_first(timed, lambda e: e.disturbance):
        step_count = e.steps_per_epoch or usual[e.configuration.global_batch_size]
        if e.step_time_s and e.time_per_epoch_s and step_count:
            steps = e.time_per_epoch_s / e.step_time_s
            ratios.append(steps / min(max(steps, step_count - 1), step_count))
    if not ratios or all(1 / _ALIKE <= ratio <= _ALIKE for ratio in ratios):
        return EpochRatio()
    middle = statistics.median(ratios)
    is_consistent = all(middle / _ALIKE <= ratio <= middle * _ALIKE for ratio in ratios)
    return EpochRatio(least=min(ratios), most=max(ratios), factor=middle if is_consistent else None)


def _known(step_count: int, examples_count: int | None, global_batch_size: int) -> EpochLength:
    """Return a length; only a number of examples that makes so many steps tells the partial one."""
    full_steps = float(step_count)
    if examples_count is not None and math.ceil(examples_count / global_batch_size) == step_count:
        full_steps = steps_in_epoch(examples_count, global_batch_size)
    return EpochLength(step_count=step_count, full_steps=full_steps)


def _counts(evidence: Sequence[Evidence]) -> Mapping[int, Counter[int]]:
    """Return by global batch size how often epochs of so many steps were measured."""
    counts: dict[int, Counter[int]] = {}
    for item in evidence:
        if item.status == OK and item.steps_per_epoch is not None:
            counts.setdefault(item.configuration.global_batch_size, Counter())[
                item.steps_per_epoch
            ] += 1
    return counts


def _unknown(reason: str) -> EpochLength:
    return EpochLength(step_count=None, unknown_because=reason)


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
    """The terms common to all options of a question. Prices are of one VM, by instance type."""

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
    """Return the option of a measured configuration; None without a single time.

    A time per epoch counts as it was measured, even where it is not the steps' times their number;
    where none was, it is made from the step time.
    """
    found = aggregate(
        repetitions, lambda e: measured_repetition(e.measurement_id, e), quantities=_MEASURED
    )
    known, first = found.medians, found.counted[0]
    counts = [e.steps_per_epoch for e in found.counted if e.steps_per_epoch is not None]
    step_count = counts[0] if counts else terms.length.step_count
    step_time_s, energy_j = known["step_time_s"], known["energy_per_step_j"]
    has_epochs = known["time_per_epoch_s"] is not None and not terms.length.is_contradictory
    timed = "time_per_epoch_s" if has_epochs else "step_time_s"
    middle_s = known[timed]
    if middle_s is None:
        return None
    time_per_epoch_s: float | None = middle_s
    if not has_epochs:
        time_per_epoch_s = _epoch_of_steps_s(middle_s, _full_steps(step_count, terms), terms)
    times_s = [time_s for e in found.counted if (time_s := getattr(e, timed)) is not None]
    spread_s = None
    if time_per_epoch_s is not None and len(times_s) > 1:
        spread_s = (max(times_s) - min(times_s)) * (time_per_epoch_s / middle_s)
    return _option(
        first.configuration,
        power_w=energy_j / step_time_s if energy_j is not None and step_time_s else None,
        fingerprint=first.fingerprint,
        time_per_epoch_s=time_per_epoch_s,
        step_time_s=step_time_s,
        ends=_predicted_ends(prediction) or _measured_ends(times_s, middle_s),
        basis=Basis.MEASURED,
        measurement_ids=tuple(e.measurement_id for e in found.counted),
        set_aside_ids=tuple(e.measurement_id for e in found.set_aside),
        repetition_count=len(found.counted),
        step_time_spread_s=known["step_time_spread_s"],
        spread_s=spread_s,
        steps_per_epoch=step_count,
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
    """Return the option of a predicted configuration; its step time must be known."""
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
    usd_per_s = cost_usd(configuration.machine_count, 1.0, price)
    return Option(
        is_synchronous=configuration.world_size == 1
        or trains_alike(terms.strategies, configuration.strategy),
        strategy=configuration.strategy,
        world_size=configuration.world_size,
        server_count=configuration.server_count,
        instance_type=configuration.instance_type,
        framework=configuration.framework,
        setup=configuration.setup,
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


def _full_steps(step_count: int | None, terms: TrainingTerms) -> float | None:
    """Return how many times of a full step an epoch of so many steps takes."""
    if terms.length.is_contradictory:
        return None
    return terms.length.full_steps if step_count == terms.length.step_count else step_count


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


def _measured_ends(times_s: Sequence[float], middle_s: float) -> _Ends | None:
    """Return the ends over the median of the times."""
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
