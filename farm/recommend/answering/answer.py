"""Chooses the best option within the limits, and says how sure the choice is. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from farm.configuration.spec import CONDITIONS
from farm.configuration.words import network_words
from farm.measuring.measurement import OK
from farm.measuring.noise import UNDISTURBED, disturbed_by
from farm.recommend.answering.headline import headline_of
from farm.recommend.answering.measured import (
    DistinguishingFields,
    answers,
    attempted,
    distinguishing_fields,
    name_of,
)
from farm.recommend.answering.options import Options
from farm.recommend.calibrated.intervals import MIN_REPETITIONS
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import (
    MACHINE_STATUSES,
    Basis,
    Evidence,
    Objective,
    Option,
    Question,
    Recommendation,
)
from farm.recommend.memory_limits import OUT_OF_MEMORY, MemoryLimits
from farm.recommend.objective import (
    UNKNOWN_LEAST,
    best_probability,
    choose,
    is_compared_by_step,
    least_options,
    may_be_better,
    pareto_front,
    rank,
)
from farm.text.display import decimal, duration, percent
from farm.text.plurals import counted

_MOST_WORTH_MEASURING = 3
_CLEARLY_LESS_ACCURATE = 0.1  # repetitions of one configuration differ by less
_TOO_FAST_RATIO = 3.0  # for each machine; caches make a gang up to twice as fast as its machines
_MOST_FAILING = 0.25  # of the measurements of one configuration


def answer_from(
    found: Options,
    question: Question,
    objective: Objective,
    evidence: Sequence[Evidence],
    *,
    predictor: str | None = None,
    predictor_measurement_count: int | None = None,
) -> Recommendation:
    """Rank the options, with warnings. `evidence`: all measurements of the workload."""
    if not found.options:
        return nothing(question, not_measured_as_requested(question, evidence), found.warnings)
    known = {e.measurement_id: e for e in evidence}
    ranked = rank([_with_disturbances(option, known) for option in found.options], objective)
    is_accuracy_compared = (
        question.target_accuracy_ratio is not None or objective.min_accuracy_ratio is not None
    )
    best = choose(ranked, is_accuracy_compared=is_accuracy_compared)
    if best is not None:
        ranked = [best, *(option for option in ranked if option is not best)]
    least = least_options(ranked, is_accuracy_compared=is_accuracy_compared)
    warnings = [*_disturbed(ranked, known), *found.warnings, *_doubts(ranked, objective)]
    if not is_accuracy_compared:
        warnings += _unequal(ranked)
    if all(option.machine_count == 1 for option in ranked):
        warnings.append(_no_gang(question, evidence))
    not_compared = [
        *_not_compared(ranked, question),
        *(_not_judged(ranked, best, objective) if best else ()),
    ]
    return _with_headline(
        Recommendation(
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
            rests_on_count=len(_rests_on(ranked)),
            disturbed_count=len(_disturbed_ids(ranked)),
            cautions=(
                *_cautions(ranked, known, is_accuracy_compared=is_accuracy_compared),
                *not_compared,
                *found.cautions,
                *_failing(best, question, evidence),
                *_out_of_memory(best, question, evidence),
            )
            if best
            else (),
            best_probability=best_probability(ranked, best) if best and not not_compared else None,
            worth_measuring=tuple(_worth_measuring(ranked)) if best else (),
            fastest=least["fastest"],
            cheapest=least["cheapest"],
            least_energy=least["least_energy"],
            least_unknown_because={
                name: why if best else "no option is within the limits"
                for name, why in UNKNOWN_LEAST.items()
                if least[name] is None
            },
            predictor=predictor,
            predictor_measurement_count=predictor_measurement_count,
        )
    )


def nothing(question: Question, reason: str, warnings: Iterable[str] = ()) -> Recommendation:
    """Answer that nothing can be recommended."""
    return _with_headline(
        Recommendation(
            model=question.model,
            dataset=question.dataset,
            recommended=None,
            reason=reason,
            warnings=tuple(warnings),
        )
    )


def _with_headline(answer: Recommendation) -> Recommendation:
    return dataclasses.replace(answer, headline=headline_of(answer))


def nothing_measured(question: Question) -> str:
    """Return a message that the workload is not known."""
    return f"nothing is measured of {_workload(question)}: run a sweep of it first"


def not_measured_as_requested(question: Question, evidence: Sequence[Evidence]) -> str:
    """Say what of the workload is known instead of what was asked."""
    if name := _unmeasured_name(question, evidence):
        return f"{_workload(question)} is not measured with {name}"
    batches = sorted({e.configuration.global_batch_size for e in evidence if e.status == OK})
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


def _with_disturbances(option: Option, known: Mapping[int, Evidence]) -> Option:
    """Say which of the measurements behind an option were disturbed, and by what."""
    ids = [i for i in option.measurement_ids if i in known and known[i].disturbance != UNDISTURBED]
    kinds = [
        kind.value
        for i in (*ids, *option.set_aside_ids)
        if i in known
        for kind in known[i].disturbance.kinds
    ]
    return dataclasses.replace(
        option, disturbed_ids=tuple(ids), disturbed_by=tuple(dict.fromkeys(kinds))
    )


def _rests_on(options: Sequence[Option]) -> set[int]:
    return {i for o in options for i in (*o.measurement_ids, *o.set_aside_ids)}


def _disturbed_ids(options: Sequence[Option]) -> set[int]:
    return {i for o in options for i in (*o.disturbed_ids, *o.set_aside_ids)}


def _disturbed(ranked: Sequence[Option], known: Mapping[int, Evidence]) -> Iterable[str]:
    """Say how many of the measurements were disturbed, by what, and how they count."""
    ids = _disturbed_ids(ranked)
    if not ids:
        return
    by = disturbed_by(known[i].disturbance for i in sorted(ids) if i in known)
    yield (
        f"{len(ids)} of the {counted(len(_rests_on(ranked)), 'measurement')} behind the options "
        f"{'was' if len(ids) == 1 else 'were'} disturbed by {by}: they count less, "
        "and not at all where the same configuration has an undisturbed one"
    )


def _cautions(
    ranked: Sequence[Option], known: Mapping[int, Evidence], *, is_accuracy_compared: bool
) -> Iterable[str]:
    """Say why the first option, which is recommended, may not be relied on."""
    best, *others = [option for option in ranked if option.excluded_because is None]
    if best.disturbed_ids:
        by = disturbed_by(known[i].disturbance for i in best.disturbed_ids)
        count, all_count = len(best.disturbed_ids), len(best.measurement_ids)
        if count == all_count:
            yield f"only disturbed measurements, {count} of {all_count}, by {by}"
        else:
            was = "was" if count == 1 else "were"
            yield f"{count} of the {all_count} measurements it rests on {was} disturbed, by {by}"
    if best.speculative_because:
        yield f"only a guess, since {best.speculative_because}"
    elif best.basis == Basis.EXTRAPOLATED.value:
        yield "extrapolated beyond the measured conditions"
    if not best.is_synchronous and not is_accuracy_compared:
        yield f"{best.strategy} computes other updates than synchronous training"
    if best.is_wide and not best.speculative_because:
        yield "its 90 % interval is wider than a factor of two"
    if not is_accuracy_compared:
        yield from _less_accurate(best, others, by=distinguishing_fields(ranked))
    yield from _too_fast(best, others)
    bare_count = sum(option.interval_ratios is None for option in others)
    if bare_count and best.interval_ratios is not None:
        of = counted(bare_count, "option")
        yield f"how much {of} {'varies' if bare_count == 1 else 'vary'} is not known"
    if not best.disturbed_ids:
        yield from _disturbed_rivals(others, known)


def _disturbed_rivals(others: Sequence[Option], known: Mapping[int, Evidence]) -> Iterable[str]:
    """Say which options may be better than their measurements, since all of these were disturbed.

    A predicted one has those of its strategy and size under other conditions.
    """
    is_quiet: dict[tuple[object, ...], bool] = {}
    for e in known.values():
        if e.status == OK:
            key = (attempted(e.configuration), e.fingerprint)
            is_quiet[key] = is_quiet.get(key, False) or e.disturbance == UNDISTURBED
    rivals, disturbed, predicted_count = 0, 0, 0
    for option in others:
        if option.basis == Basis.MEASURED.value:
            rivals += 1
            disturbed += (
                bool(option.disturbed_ids) and option.disturbed_ids == option.measurement_ids
            )
        elif (key := (attempted(option), option.fingerprint)) in is_quiet and not is_quiet[key]:
            predicted_count += 1
    if disturbed:
        only = rivals == 1
        which = (
            "the only measured option" if only else f"{disturbed} of the {rivals} measured options"
        )
        yield (
            f"{which} it is compared with {'has' if only else 'have'} only disturbed measurements"
        )
    if predicted_count:
        was = "was" if predicted_count == 1 else "were"
        yield (
            f"{counted(predicted_count, 'option')} it is compared with {was} predicted, from "
            "disturbed measurements only"
        )


def _less_accurate(
    best: Option, others: Sequence[Option], *, by: DistinguishingFields
) -> Iterable[str]:
    """Say that the first option reaches clearly less in as many epochs as another one."""
    known = [
        option
        for option in others
        if option.accuracy is not None and option.missing_epochs == best.missing_epochs
    ]
    other = max(known, key=lambda option: option.accuracy or 0.0, default=None)
    if best.accuracy is None or other is None or other.accuracy is None:
        return
    if other.accuracy - best.accuracy >= _CLEARLY_LESS_ACCURATE:
        yield (
            f"its accuracy is {percent(best.accuracy)}, and that of {name_of(other, by)} "
            f"{percent(other.accuracy)}: --min-accuracy leaves out what learns too little"
        )


def _too_fast(best: Option, others: Sequence[Option]) -> Iterable[str]:
    """Say that a gang is faster than its machines can make it.

    Several ranks on one machine may use cores that one rank alone leaves idle, so each counts.
    """
    alone = [option for option in others if option.is_one_machine]
    ratios = [
        time_s / own_s
        for option in alone
        for time_s, own_s in (
            (option.step_time_s, best.step_time_s),
            (option.time_per_epoch_s, best.time_per_epoch_s),
        )
        if time_s and own_s
    ]
    size = best.world_size + best.serving_machine_count
    if ratios and min(ratios) > _TOO_FAST_RATIO * size:
        which = counted(size, "machine" if size == best.machine_count else "rank")
        yield (
            f"{which} would be {min(ratios):,.1f} times as fast as one: see whether all times "
            "have the same unit"
        )


def _not_compared(ranked: Sequence[Option], question: Question) -> list[str]:
    """Say what the first option was not compared with, though the answer is about it."""
    sentences = []
    if len(ranked) == 1:
        sentences.append("it is the only option that is known, so it was compared with no other")
    elif all(option.machine_count == 1 for option in ranked):
        sentences.append("no gang is known, so one machine was compared with none")
    for what, names, known in (
        ("world size", question.world_sizes, {option.world_size for option in ranked}),
        ("strategy", question.strategies, {option.strategy for option in ranked}),
        ("instance type", question.instance_types, {option.instance_type for option in ranked}),
    ):
        unknown = [str(name) for name in names if name not in known]
        if unknown:
            sentences.append(
                f"nothing is known of {what} {' and '.join(unknown)}, which was asked for"
            )
    return sentences


def _not_judged(ranked: Sequence[Option], best: Option, objective: Objective) -> Iterable[str]:
    """Say how many options may be better, for all that is known, and were not compared."""
    by_step = is_compared_by_step(ranked)
    whys = Counter(
        option.unjudged_because
        for option in ranked
        if option.unjudged_because is not None
        and option is not best
        and may_be_better(option, best, objective, by_step=by_step)
    )
    for why, count in whys.items():
        was = "was" if count == 1 else "were"
        yield f"{counted(count, 'option')} that may be better {was} not compared, since {why}"


def _failing(best: Option, question: Question, evidence: Sequence[Evidence]) -> Iterable[str]:
    """Say that the recommended configuration fails too often by itself to be relied on.

    Where it was not measured as asked, it did so at the nearest conditions that were measured.
    """
    own = [
        e
        for e in evidence
        if e.status not in MACHINE_STATUSES and attempted(e.configuration) == attempted(best)
    ]
    tried, where = [e for e in own if answers(e, question)], ""
    if not any(e.status == OK for e in tried):
        tried, where = _nearest(own, question), " at the nearest measured conditions"
    failed = [e.status for e in tried if e.status != OK]
    if len(failed) > _MOST_FAILING * len(tried):
        reasons = ", ".join(sorted(set(failed)))
        of = f"{counted(len(tried), 'measurement')}{where}"
        yield f"it failed in {len(failed)} of {of}: {reasons}"


def _nearest(own: Sequence[Evidence], question: Question) -> list[Evidence]:
    """Return what was measured next to the conditions asked about, on both sides of each.

    What ran out of memory with a larger batch says nothing of a smaller one.
    """
    near = [
        e
        for e in own
        if e.status != OUT_OF_MEMORY
        or e.configuration.global_batch_size <= question.global_batch_size
    ]
    for name in ("global_batch_size", *CONDITIONS):
        # One machine has no conditions, and without a limit the bandwidth is endless.
        values = {e.measurement_id: _number(e.configuration, name) for e in near}
        value = _number(question, name)
        sides = (
            max((v for v in values.values() if v <= value), default=None),
            min((v for v in values.values() if v >= value), default=None),
        )
        near = [e for e in near if values[e.measurement_id] in sides]
    return near


def _number(conditions: Configuration | Question, name: str) -> float:
    value: float | None = getattr(conditions, name)
    return math.inf if value is None else value


def _out_of_memory(best: Option, question: Question, evidence: Sequence[Evidence]) -> Iterable[str]:
    """Say that others ran out of memory with no more examples for each replica."""
    if best.basis == Basis.MEASURED.value:
        return
    configuration = Configuration(
        strategy=best.strategy,
        setup=best.setup,
        instance_type=best.instance_type,
        world_size=best.world_size,
        server_count=best.server_count,
        global_batch_size=question.global_batch_size,
    )
    # What failed early may not know its hardware.
    alike = [e for e in evidence if e.fingerprint in (best.fingerprint, None)]
    limits = MemoryLimits.of(
        [e.configuration for e in alike if e.status == OUT_OF_MEMORY],
        [e.configuration for e in alike if e.status == OK],
    )
    if doubt := limits.doubt(configuration):
        yield doubt


def _unequal(ranked: Sequence[Option]) -> Iterable[str]:
    """Say which strategies compute other updates, and which options of training differ."""
    ways = dict.fromkeys(o.setup.of_learning for o in ranked if o.is_synchronous)
    if len(ways) > 1:
        named = " and ".join(way.text or "the usual ones" for way in ways)
        yield (
            f"options of training differ, {named}, so equal epochs need not give equal accuracy. "
            "Give a target accuracy (--target-accuracy) to compare all by the time to that accuracy"
        )
    other = dict.fromkeys(o.strategy or "" for o in ranked if not o.is_synchronous)
    if other:
        yield (
            f"{', '.join(other)}: the updates are not those of synchronous training, so equal "
            "epochs need not give equal accuracy; synchronous options are recommended first. Give "
            "a target accuracy (--target-accuracy) to compare all by the time to that accuracy"
        )


def _worth_measuring(ranked: Sequence[Option]) -> list[Option]:
    """Return the guesses that may be better than the first option, the best of them first."""
    best, *others = ranked
    better = [
        option
        for option in others
        if option.excluded_because is None
        and option.basis != Basis.MEASURED.value
        and (option.score or 0.0) < (best.score or 0.0)
        and (option.speculative_because or option.basis == Basis.EXTRAPOLATED.value)
    ]
    return better[:_MOST_WORTH_MEASURING]


def _doubts(ranked: Sequence[Option], objective: Objective) -> Iterable[str]:
    if objective.beta > 0 and any(option.score is None for option in ranked):
        yield "the price of some options is not known: they are ranked by time alone"
    bare_count = sum(o.interval_ratios is None for o in ranked)
    if bare_count:
        yield (
            f"{bare_count} of {counted(len(ranked), 'option')} "
            f"{'has' if bare_count == 1 else 'have'} no interval: how much they vary from one "
            f"repetition to the next takes {MIN_REPETITIONS} repetitions with different times"
        )
    feasible = [option for option in ranked if option.excluded_because is None]
    if not feasible:
        return
    best, *others = feasible
    if best.accuracy is not None and best.missing_epochs and objective.min_accuracy_ratio:
        yield (
            f"the accuracy of the recommended configuration was measured after "
            f"{counted(best.accuracy_epochs or 0, 'epoch')}: it is taken for a lower bound of that "
            f"after {best.epoch_count}"
        )
    if best.basis != Basis.MEASURED.value:
        yield f"the recommended configuration was not measured: its time is {best.basis}"
    if others:
        yield from _overlap(best, others[0], objective, by=distinguishing_fields(ranked))


def _overlap(
    best: Option, runner_up: Option, objective: Objective, *, by: DistinguishingFields
) -> Iterable[str]:
    """Compare scores, of which the intervals are as wide as those of the times."""
    if best.score is None or runner_up.score is None:
        return
    ends, runner_up_ends = best.interval_ratios, runner_up.interval_ratios
    if ends is None or runner_up_ends is None:
        return
    by_step = is_compared_by_step([best, runner_up])
    recommended = _shown(best, ends, objective, by, by_step=by_step)
    other = _shown(runner_up, runner_up_ends, objective, by, by_step=by_step)
    if runner_up.score * runner_up_ends[1] < best.score * ends[0]:
        if best.is_synchronous and not runner_up.is_synchronous:
            yield (
                f"{other} is faster than the recommended {recommended}, and computes other updates "
                "than synchronous training"
            )
    elif best.score * ends[1] >= runner_up.score * runner_up_ends[0]:
        yield (
            f"the 90 % interval of the recommended {recommended} overlaps that of the runner-up, "
            f"{other}: which is better is not sure"
        )


def _shown(
    option: Option,
    ends: tuple[float, float],
    objective: Objective,
    by: DistinguishingFields,
    *,
    by_step: bool,
) -> str:
    """Show what was compared: times, or sums where cost counts, which times need not go with."""
    value, what = option.time_per_epoch_s, "an epoch"
    if objective.beta > 0:
        value, what = option.score, "as alpha x time + beta x cost"
    elif by_step:
        value, what = option.step_time_s, "a step"
    write = decimal if objective.beta > 0 else duration
    low, high = (write((value or 0.0) * end) for end in ends)
    return f"{name_of(option, by)} ({low} to {high} {what})"


def _workload(question: Question) -> str:
    parts = [question.model or "any model", question.dataset or "any data set"]
    return f"{' on '.join(parts)} (origin {question.origin})"


def _no_gang(question: Question, evidence: Sequence[Evidence]) -> str:
    name = _unmeasured_name(question, evidence)
    why = f"nothing is measured with {name}" if name else "no gang is measured as asked"
    return f"only one machine is compared, since {why}{_elsewhere(question, evidence)}"


def _unmeasured_name(question: Question, evidence: Sequence[Evidence]) -> str | None:
    """Name the first choice of the question that was never measured, and what was."""
    for field, wanted in (
        ("strategy", question.strategies),
        ("network", question.networks),
        ("instance_type", question.instance_types),
    ):
        known = {
            getattr(e.configuration, field)
            for e in evidence
            if field != "network" or not e.configuration.is_one_machine
        }
        accepted = question.known_networks if field == "network" else wanted
        if wanted and known and not known.intersection(accepted):
            names = ", ".join(sorted(name or "unnamed" for name in known))
            return f"{field} {' or '.join(map(repr, wanted))}, but with {names}"
    return None


def _elsewhere(question: Question, evidence: Sequence[Evidence]) -> str:
    """Say on which networks gangs were measured with the global batch size, if on any."""
    networks = {
        e.configuration.conditions: network_words(e.configuration.by_field)
        for e in evidence
        if e.status == OK
        and not e.configuration.is_one_machine
        and e.configuration.global_batch_size == question.global_batch_size
    }
    if not networks:
        return "; no gang was measured with this global batch size"
    slowest_last = sorted(networks, key=lambda one: [math.inf if v is None else v for v in one])
    listed = "; ".join(networks[conditions] for conditions in slowest_last)
    return f"; networks of the gangs that were measured: {listed}"
