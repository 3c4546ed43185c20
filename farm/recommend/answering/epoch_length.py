"""Number of steps in an epoch, measured or computed from the data set's size.

Studies count epochs in their own way: one of the published ones runs 70 steps at every batch size.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farm.measuring.measurement import OK, steps_in_epoch
from farm.measuring.noise import undisturbed_first
from farm.recommend.contracts import Evidence

# Beyond this factor epochs are not of the same data. One of the published studies has 50 steps in
# an epoch of some rows and 70 in that of others, and compares their times.
_MOST_LONGER = 1.5
# Up to this factor a measured epoch is its steps. Beyond it there is more in it, such as
# evaluation, or less.
_ALIKE = 1.1


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
