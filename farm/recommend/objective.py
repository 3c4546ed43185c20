"""Rank options by alpha x time + beta x cost within the limits, and choose one of them.

The times of options are assumed to be log-normal with their 90 % intervals, and to have independent
errors. The uncertainty of a score follows from that of its time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from farm.measuring.machine_time import cost_usd
from farm.recommend.contracts import Basis, Objective, Option
from farm.text.plurals import counted

_Z90 = 1.6449  # standard deviations from the middle of a normal distribution to its 95 % quantile
_GRID = 200  # points of the integral, over 6 standard deviations on both sides

# What is not known of an option.
_TIME, _COST = "the time is not known", "the cost is not known"
UNKNOWN_ACCURACY = "the accuracy is not known"


def rank(options: Sequence[Option], objective: Objective) -> list[Option]:
    """Return the options with their scores, best first, those outside the limits last.

    An option whose cost is not known cannot be compared with others once `beta` counts it, so it
    comes after those that can; among themselves such options are in order of time. Where of some
    it is not known how long the training takes, and of all how long a step does, the score is that
    of one step in each epoch.
    """
    by_step = is_compared_by_step(options)
    return sorted((_judged(o, objective, by_step=by_step) for o in options), key=_precedence)


def _judged(option: Option, objective: Objective, *, by_step: bool) -> Option:
    beyond = option.excluded_because or _beyond_a_limit(option, objective)
    unknown, why = (None, None) if beyond else _unknown(option, objective, by_step=by_step)
    return dataclasses.replace(
        option,
        score=_score(option, objective, by_step=by_step),
        excluded_because=beyond or why,
        unjudged_because=option.unjudged_because or unknown,
    )


def is_compared_by_step(options: Sequence[Option]) -> bool:
    """Whether steps are compared, since how long a training takes is not known of all."""
    known = [option for option in options if option.time_s is not None]
    compared = [o for o in options if o.time_s is not None or o.epoch_count is not None]
    return not known or (
        len(known) < len(compared) and all(o.step_time_s is not None for o in compared)
    )


def choose(ranked: Sequence[Option], *, is_accuracy_compared: bool = False) -> Option | None:
    """Return the option to recommend, of options in order; None where all are excluded.

    It is the one with the least expected score, and so the least expected regret, of those that
    were measured or interpolated. An extrapolated one is chosen only where its whole 90 % interval
    is better. A speculative one is chosen only where all are.

    Training that computes other updates than synchronous training is chosen only where all options
    do, or where `is_accuracy_compared`: equal epochs need not give equal accuracy.
    """
    feasible = [option for option in ranked if option.excluded_because is None]
    if not is_accuracy_compared:
        feasible = [option for option in feasible if option.is_synchronous] or feasible
    firm = [option for option in feasible if option.speculative_because is None]
    known = [option for option in firm if option.basis != Basis.EXTRAPOLATED.value]
    if not firm:
        return _least(feasible)
    if not known:
        return _least(firm)
    best = _least(known)
    beyond = [
        option
        for option in firm
        if best is not None and option not in known and _is_surely_better(option, best)
    ]
    return _least(beyond) or best


# Why there is no such option, by the names that `Recommendation` has for them.
UNKNOWN_LEAST: Mapping[str, str] = {
    "fastest": "how long they take is not known",
    "cheapest": "no price of their machines is known",
    "least_energy": "the energy of none was measured",
}


def least_options(
    options: Sequence[Option], *, is_accuracy_compared: bool = False
) -> dict[str, Option | None]:
    """Return what `choose` would if time, cost or energy alone counted, by the names above.

    Of the options within the limits of which that is known: cost and energy are as uncertain as the
    time that they are proportional to.
    """
    rates: Mapping[str, Callable[[Option], float | None]] = {
        "fastest": lambda _: 1.0,
        "cheapest": _usd_per_s,
        "least_energy": lambda option: option.power_w,
    }
    by_step = is_compared_by_step(options)
    found: dict[str, Option | None] = {}
    for name, rate_of in rates.items():
        known = []
        for option in options:
            rate, length_s = rate_of(option), _length_s(option, by_step=by_step)
            if rate is not None and length_s is not None:
                known.append((dataclasses.replace(option, score=rate * length_s), option))
        best = choose([scored for scored, _ in known], is_accuracy_compared=is_accuracy_compared)
        found[name] = next((option for scored, option in known if scored is best), None)
    return found


def may_be_better(option: Option, chosen: Option, objective: Objective, *, by_step: bool) -> bool:
    """Whether an incompletely known option may beat the chosen one, judged by its time.

    Its score is at least that of the low end of its time, for nothing.
    """
    length_s = _length_s(option, by_step=by_step)
    if length_s is None or chosen.score is None:
        return True
    low, _ = option.interval_ratios or (1.0, 1.0)
    _, high = chosen.interval_ratios or (1.0, 1.0)
    return objective.alpha * length_s * low < chosen.score * high


def best_probability(options: Sequence[Option], chosen: Option) -> float | None:
    """Return how likely no feasible option has a smaller score than the chosen one.

    None where it cannot be told, since a score or an interval is not known.
    """
    others = [
        _log_score(option)
        for option in options
        if option.excluded_because is None and option is not chosen
    ]
    own = _log_score(chosen)
    if own is None or any(other is None for other in others):
        return None
    middle, deviation = own
    rivals = [other for other in others if other is not None]
    if deviation == 0:
        return math.prod(_above(middle, *rival) for rival in rivals)
    points = [12 * (i + 0.5) / _GRID - 6 for i in range(_GRID)]
    densities = [math.exp(-z * z / 2) for z in points]
    products = [
        density * math.prod(_above(middle + deviation * z, *rival) for rival in rivals)
        for z, density in zip(points, densities, strict=True)
    ]
    return math.fsum(products) / math.fsum(densities)


def _log_score(option: Option) -> tuple[float, float] | None:
    """Return mean and standard deviation of ln(score)."""
    ratios = option.interval_ratios
    if not option.score or ratios is None:
        return None
    low, high = (math.log(ratio) for ratio in ratios)
    return math.log(option.score) + (low + high) / 2, (high - low) / (2 * _Z90)


def _above(value: float, mean: float, deviation: float) -> float:
    """Return the probability that a normal variable is above a value."""
    if deviation == 0:
        return 1.0 if mean > value else 0.5 if mean == value else 0.0
    return math.erfc((value - mean) / (deviation * math.sqrt(2))) / 2


def _least(options: Sequence[Option]) -> Option | None:
    """Return the option with the least expected score; None without options.

    Where the interval of one is not known, the scores themselves are compared: otherwise the
    option of which less is known would seem the better one.
    """
    scored = [option for option in options if option.score is not None]
    is_mean_known = all(_log_score(option) is not None for option in scored)

    def loss(option: Option) -> float:
        known = _log_score(option) if is_mean_known else None
        if known is not None:
            # Without the digits of rounding, which must not choose among equal options.
            return float(f"{math.exp(known[0] + known[1] ** 2 / 2):.12g}")
        return math.inf if option.score is None else option.score

    return min(options, key=loss, default=None)


def _is_surely_better(option: Option, other: Option) -> bool:
    ends, others = option.interval_ratios, other.interval_ratios or (1.0, 1.0)
    if ends is None or option.score is None or other.score is None:
        return False
    return option.score * ends[1] < other.score * others[0]


def pareto_front(options: Sequence[Option]) -> list[Option]:
    """Return the options that no other beats in time, cost and accuracy together, in order.

    What is not known of every option is left out of the comparison: an unknown cost is neither
    high nor low. An option whose time is not known, where that of others is, cannot be on it.
    """
    by_step = is_compared_by_step(options)
    timed = [option for option in options if _length_s(option, by_step=by_step) is not None]
    compares_cost = all(option.cost_usd is not None for option in timed)
    compares_accuracy = (
        all(option.accuracy is not None for option in timed)
        and len({option.missing_epochs for option in timed}) == 1
    )

    def losses(option: Option) -> tuple[float, ...]:
        cost = (option.cost_usd or 0.0,) if compares_cost else ()
        accuracy = (-(option.accuracy or 0.0),) if compares_accuracy else ()
        return (_length_s(option, by_step=by_step) or 0.0, *cost, *accuracy)

    # In this order nothing is beaten by what comes after it.
    front: list[tuple[float, ...]] = []
    for point in sorted({losses(option) for option in timed}):
        if not any(all(o <= p for o, p in zip(other, point, strict=True)) for other in front):
            front.append(point)
    best = set(front)
    return [option for option in timed if losses(option) in best]


def _length_s(option: Option, *, by_step: bool) -> float | None:
    """Return what is compared: of steps one in each epoch, since epochs have equally many."""
    if by_step and option.step_time_s is not None:
        return option.step_time_s * (option.epoch_count or 1)
    return None if by_step else option.time_s


def _usd_per_s(option: Option) -> float | None:
    return cost_usd(option.machine_count, 1.0, option.price_usd_per_hour)


def _score(option: Option, objective: Objective, *, by_step: bool) -> float | None:
    length_s = _length_s(option, by_step=by_step)
    if length_s is None:
        return None
    if objective.beta == 0:
        return objective.alpha * length_s
    cost_usd = None if by_step else option.cost_usd
    if cost_usd is None:
        usd_per_s = _usd_per_s(option)
        if usd_per_s is None:
            return None
        cost_usd = length_s * usd_per_s
    return objective.alpha * length_s + objective.beta * cost_usd


def _beyond_a_limit(option: Option, objective: Objective) -> str | None:
    """Say which limit an option is known not to keep."""
    machines, deadline_s = objective.max_machine_count, objective.deadline_s
    if machines is not None and option.machine_count > machines:
        return (
            f"needs {counted(option.machine_count, 'machine')}, "
            f"and {counted(machines, 'is', 'are')} at hand"
        )
    if deadline_s is not None and option.time_s is not None and option.time_s > deadline_s:
        return f"takes {option.time_s:.6g} s, longer than deadline_s = {deadline_s:g}"
    budget_usd, least = objective.budget_usd, objective.min_accuracy_ratio
    if budget_usd is not None and option.cost_usd is not None and option.cost_usd > budget_usd:
        return f"costs {option.cost_usd:.6g} USD, more than budget_usd = {budget_usd:g}"
    is_final = not option.missing_epochs  # else it is a lower bound
    if least is not None and option.accuracy is not None and option.accuracy < least and is_final:
        limit = f"min_accuracy_ratio = {least:g}"
        return f"reaches an accuracy of {option.accuracy:.4g}, less than {limit}"
    return None


def _unknown(
    option: Option, objective: Objective, *, by_step: bool
) -> tuple[str | None, str | None]:
    """Say what is not known of an option, and why that excludes it; None: it does not.

    The ends of the intervals of time and cost are held against the limits, too.
    """
    deadline_s, budget_usd = objective.deadline_s, objective.budget_usd
    if _length_s(option, by_step=by_step) is None:
        return _TIME, "how long it takes is not known"
    if deadline_s is not None:
        if option.time_s is None:
            return _TIME, "how long it takes is not known, so it cannot be held against deadline_s"
        high_s = option.time_high_s
        if high_s is not None and high_s > deadline_s:
            why = f"may take up to {high_s:.6g} s, longer than deadline_s = {deadline_s:g}"
            return "whether the time is within deadline_s is not sure", why
    if budget_usd is not None:
        limit, high_usd = f"budget_usd = {budget_usd:g}", option.cost_high_usd
        if option.cost_usd is None:
            return _COST, "its cost is not known, so it cannot be held against budget_usd"
        if high_usd is not None and high_usd > budget_usd:
            why = f"may cost up to {high_usd:.6g} USD, more than {limit}"
            return "whether the cost is within budget_usd is not sure", why
    least = objective.min_accuracy_ratio
    if least is not None and option.accuracy is None:
        why = "its accuracy was not measured"
        if option.accuracy_epochs is not None:
            after = counted(option.accuracy_epochs, "epoch")
            why = f"its accuracy was measured after {after}, not after {option.epoch_count}"
        return UNKNOWN_ACCURACY, why
    if least is not None and (option.accuracy or 0.0) < least:
        return UNKNOWN_ACCURACY, (
            f"reaches an accuracy of {option.accuracy:.4g} in "
            f"{counted(option.accuracy_epochs or 1, 'epoch')}, and was not measured after more"
        )
    if _score(option, objective, by_step=by_step) is None:
        return _COST, None
    return None, None


def _precedence(option: Option) -> tuple[object, ...]:
    """Feasible first, then by score; equally good ones by time, then with fewer machines."""
    return (
        option.excluded_because is not None,
        option.score is None,
        option.score or 0.0,
        option.time_s or 0.0,
        option.step_time_s or 0.0,
        option.machine_count,
        option.strategy or "",
        option.instance_type or "",
        option.measurement_ids,
    )
