"""From options to an answer: which is best within the limits, and how sure that is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farm.core.measurement import OK
from farm.recommend.answering.measured import name_of
from farm.recommend.answering.options import Options
from farm.recommend.contracts import Evidence, Objective, Option, Question, Recommendation
from farm.recommend.objective import pareto_front, rank
from farm.recommend.prediction import Basis


def answer_from(
    found: Options,
    question: Question,
    objective: Objective,
    evidence: Sequence[Evidence],
    *,
    predictor: str | None = None,
    predictor_measurement_count: int | None = None,
) -> Recommendation:
    """Rank the options and say what is doubtful. `evidence`: all that is known of the workload."""
    if not found.options:
        return nothing(question, nothing_as_asked(question, evidence), found.warnings)
    ranked = rank(found.options, objective)
    best = ranked[0] if ranked[0].excluded_because is None else None
    warnings = [*found.warnings, *_doubts(ranked, objective)]
    if all(option.machine_count == 1 for option in ranked):
        warnings.append(_no_gang(question, evidence))
    return Recommendation(
        model=question.model,
        dataset=question.dataset,
        recommended=best,
        reason=None
        if best
        else f"no option is within the limits; the best of them {ranked[0].excluded_because}",
        options=tuple(ranked),
        pareto=tuple(pareto_front(ranked)),
        warnings=tuple(dict.fromkeys(warnings)),
        measurement_count=len(evidence),
        predictor=predictor,
        predictor_measurement_count=predictor_measurement_count,
    )


def nothing(question: Question, reason: str, warnings: Iterable[str] = ()) -> Recommendation:
    """Answer that nothing can be recommended."""
    return Recommendation(
        model=question.model,
        dataset=question.dataset,
        recommended=None,
        reason=reason,
        warnings=tuple(warnings),
    )


def nothing_at_all(question: Question) -> str:
    """Say that the workload is not known."""
    return f"nothing is measured of {_workload(question)}: run a sweep of it first"


def nothing_as_asked(question: Question, evidence: Sequence[Evidence]) -> str:
    """Say what of the workload is known instead of what was asked."""
    if name := _unmeasured_name(question, evidence):
        return f"{_workload(question)} is not measured with {name}"
    batches = sorted({e.global_batch_size for e in evidence if e.status == OK})
    if not batches:
        failed = ", ".join(sorted({e.status for e in evidence}))
        return f"every measurement of {_workload(question)} failed: {failed}"
    if question.global_batch_size not in batches:
        known = ", ".join(map(str, batches))
        return (
            f"{_workload(question)} is not measured with global_batch_size "
            f"{question.global_batch_size}; measured: {known}"
        )
    return (
        f"{_workload(question)} with global_batch_size {question.global_batch_size} is not "
        f"measured as asked{_elsewhere(question, evidence)}"
    )


def _doubts(ranked: Sequence[Option], objective: Objective) -> Iterable[str]:
    if objective.beta > 0 and any(option.score is None for option in ranked):
        yield "the price of some options is not known: they are ranked by time alone"
    bare_count = sum(1 for o in ranked if o.repetition_count == 1 and o.step_low_s is None)
    if bare_count:
        yield (
            f"{bare_count} of {len(ranked)} options were measured once: how much they vary "
            "from one repetition to the next is not known"
        )
    feasible = [option for option in ranked if option.excluded_because is None]
    if not feasible:
        return
    best, *others = feasible
    if best.basis != Basis.MEASURED.value:
        yield f"the recommended configuration was not measured: its time is {best.basis}"
    if (
        objective.deadline_s is not None
        and best.time_high_s is not None
        and best.time_high_s > objective.deadline_s
    ):
        yield (
            f"the training may take up to {best.time_high_s:.4g} s (90 %), longer than "
            f"deadline_s = {objective.deadline_s:g}"
        )
    if others:
        yield from _overlap(best, others[0], objective)


def _overlap(best: Option, runner_up: Option, objective: Objective) -> Iterable[str]:
    """Compare scores, of which the intervals are as wide as those of the times."""
    if best.score is None or runner_up.score is None:
        return
    ends, runner_up_ends = _ends(best), _ends(runner_up)
    if ends is None or runner_up_ends is None:
        return
    if best.score * ends[1] >= runner_up.score * runner_up_ends[0]:
        yield (
            f"the 90 % interval of the recommended {_shown(best, ends, objective)} overlaps that "
            f"of the runner-up, {_shown(runner_up, runner_up_ends, objective)}: which is better "
            "is not sure"
        )


def _ends(option: Option) -> tuple[float, float] | None:
    """Return the ends of the 90 % interval over the expected time."""
    time_s = option.step_time_s or option.time_per_epoch_s
    low_s, high_s = (
        (option.step_low_s, option.step_high_s)
        if option.step_time_s
        else (option.low_s, option.high_s)
    )
    return (low_s / time_s, high_s / time_s) if time_s and low_s and high_s else None


def _shown(option: Option, ends: tuple[float, float], objective: Objective) -> str:
    """Show what was compared: times, or sums where cost counts, which times need not go with."""
    value, what = option.time_per_epoch_s, "s an epoch"
    if objective.beta > 0:
        value, what = option.score, "as alpha x time + beta x cost"
    elif value is None:
        value, what = option.step_time_s, "s a step"
    low, high = ((value or 0.0) * end for end in ends)
    return f"{name_of(option)} ({low:.4g} to {high:.4g} {what})"


def _workload(question: Question) -> str:
    parts = [question.model or "any model", question.dataset or "any data set"]
    return f"{' on '.join(parts)} (origin {question.origin})"


def _no_gang(question: Question, evidence: Sequence[Evidence]) -> str:
    name = _unmeasured_name(question, evidence)
    why = f"nothing is measured with {name}" if name else "no gang is measured as asked"
    return f"only one machine is compared, since {why}{_elsewhere(question, evidence)}"


def _unmeasured_name(question: Question, evidence: Sequence[Evidence]) -> str | None:
    """Name the first choice of the question that was never measured, and what was."""
    for field, asked in (
        ("strategy", question.strategies),
        ("network", question.networks),
        ("instance_type", question.instance_types),
    ):
        known = {getattr(e, field) for e in evidence}
        if asked and not known.intersection(asked):
            names = ", ".join(sorted(name or "unnamed" for name in known))
            return f"{field} {' or '.join(map(repr, asked))}, but with {names}"
    return None


def _elsewhere(question: Question, evidence: Sequence[Evidence]) -> str:
    """Say at which delays gangs were measured with the global batch size, if at any."""
    delays_s = sorted(
        {
            e.one_way_delay_s
            for e in evidence
            if e.status == OK
            and not e.is_one_machine
            and e.global_batch_size == question.global_batch_size
        }
    )
    if not delays_s:
        return "; no gang was measured with this global batch size"
    listed = ", ".join(f"{delay_s:g} s" for delay_s in delays_s)
    return f"; gangs were measured at one-way delays of {listed}"
