"""Rank options by alpha x time + beta x cost within the limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from farm.recommend.contracts import Objective, Option


def rank(options: Sequence[Option], objective: Objective) -> list[Option]:
    """Return the options with their scores, best first, those outside the limits last.

    An option whose cost is not known cannot be compared with others once `beta` counts it, so it
    comes after those that can; among themselves such options are in order of time.
    """
    scored = [
        dataclasses.replace(
            option,
            score=_score(option, objective),
            excluded_because=_excluded_because(option, objective),
        )
        for option in options
    ]
    return sorted(scored, key=_precedence)


def pareto_front(options: Sequence[Option]) -> list[Option]:
    """Return the options that no other beats in time, cost and accuracy together, in order.

    What is not known of every option is left out of the comparison: an unknown cost is neither
    high nor low.
    """
    compares_cost = all(option.cost_usd is not None for option in options)
    compares_accuracy = all(option.accuracy is not None for option in options)

    def losses(option: Option) -> tuple[float, ...]:
        cost = (option.cost_usd or 0.0,) if compares_cost else ()
        accuracy = (-(option.accuracy or 0.0),) if compares_accuracy else ()
        return (option.time_s, *cost, *accuracy)

    points = [losses(option) for option in options]
    return [
        option
        for option, point in zip(options, points, strict=True)
        if not any(
            other != point and all(o <= p for o, p in zip(other, point, strict=True))
            for other in points
        )
    ]


def _score(option: Option, objective: Objective) -> float | None:
    if objective.beta == 0:
        return objective.alpha * option.time_s
    if option.cost_usd is None:
        return None
    return objective.alpha * option.time_s + objective.beta * option.cost_usd


def _excluded_because(option: Option, objective: Objective) -> str | None:
    if objective.deadline_s is not None and option.time_s > objective.deadline_s:
        return f"takes {option.time_s:.6g} s, longer than deadline_s = {objective.deadline_s:g}"
    if objective.budget_usd is not None:
        if option.cost_usd is None:
            return "its cost is not known, so it cannot be held against budget_usd"
        if option.cost_usd > objective.budget_usd:
            limit = f"budget_usd = {objective.budget_usd:g}"
            return f"costs {option.cost_usd:.6g} USD, more than {limit}"
    if objective.min_accuracy_ratio is not None:
        if option.accuracy is None:
            return "its accuracy was not measured"
        if option.accuracy < objective.min_accuracy_ratio:
            limit = f"min_accuracy_ratio = {objective.min_accuracy_ratio:g}"
            return f"reaches an accuracy of {option.accuracy:.4g}, less than {limit}"
    return None


def _precedence(option: Option) -> tuple[object, ...]:
    """Feasible first, then by score; equally good ones by time, then with fewer machines."""
    return (
        option.excluded_because is not None,
        option.score is None,
        option.score or 0.0,
        option.time_s,
        option.machine_count,
        option.strategy or "",
        option.instance_type or "",
        option.measurement_ids,
    )
