"""Answer a question from the store's measurements. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.orm import Session

from farm.core.measurement import OK
from farm.errors import InvalidSpec, NotFound
from farm.recommend.contracts import Evidence, Objective, Question, Recommendation
from farm.recommend.measured import MeasuredOptions, measured_options
from farm.recommend.objective import pareto_front, rank
from farm.registry import catalogue
from farm.store.measurements import Cell, Filter, cells

FARM = "farm"  # the origin of our own measurements, which exists even before the first


def recommend(
    session: Session,
    *,
    question: Question,
    objective: Objective,
    prices_usd_per_hour: Mapping[str, float] | None = None,
) -> Recommendation:
    """Rank what was measured as asked, best first.

    Where nothing fits, `recommended` is None with a reason: that is an answer, not an error.

    Raises:
        NotFound: there is no measurement of that origin.
        InvalidSpec: the question leaves open which of several workloads is meant.
    """
    which = Filter(
        origin=question.origin,
        model=question.model,
        dataset=question.dataset,
        training_pass=question.training_pass.value,
    )
    known = cells(session, which)
    if not known:
        if question.origin != FARM and not cells(session, Filter(origin=question.origin)):
            raise NotFound(
                f"origin '{question.origin}': nothing of it is in this store; '{FARM}' has what "
                "was measured here"
            )
        return _nothing(question, _nothing_at_all(question))
    question = _settle_workload(question, known)
    evidence = [e for cell in known for e in _evidence(cell)]
    dataset = catalogue().datasets.get(question.dataset or "")
    found = measured_options(
        evidence,
        question,
        examples_count=dataset.train_examples_count if dataset else None,
        prices_usd_per_hour=prices_usd_per_hour or {},
    )
    if not found.options:
        return _nothing(question, _nothing_as_asked(question, evidence), found.warnings)
    return _answer(question, objective, found, evidence)


def _answer(
    question: Question,
    objective: Objective,
    found: MeasuredOptions,
    evidence: Sequence[Evidence],
) -> Recommendation:
    ranked = rank(found.options, objective)
    best = ranked[0]
    warnings = list(found.warnings)
    if objective.beta > 0 and any(option.score is None for option in ranked):
        warnings.append("the price of some options is not known: they are ranked by time alone")
    once_count = sum(1 for option in ranked if option.repetition_count == 1)
    if once_count:
        warnings.append(
            f"{once_count} of {len(ranked)} options were measured once: how much they vary "
            "from one repetition to the next is not known"
        )
    if all(option.machine_count == 1 for option in ranked):
        warnings.append(_no_gang(question, evidence))
    return Recommendation(
        model=question.model,
        dataset=question.dataset,
        recommended=None if best.excluded_because else best,
        reason=f"no option is within the limits; the best of them {best.excluded_because}"
        if best.excluded_because
        else None,
        options=tuple(ranked),
        pareto=tuple(pareto_front(ranked)),
        warnings=tuple(warnings),
    )


def _nothing(question: Question, reason: str, warnings: Iterable[str] = ()) -> Recommendation:
    return Recommendation(
        model=question.model,
        dataset=question.dataset,
        recommended=None,
        reason=reason,
        warnings=tuple(warnings),
    )


def _settle_workload(question: Question, known: Sequence[Cell]) -> Question:
    """Fill in the model and the data set where only one pair was measured."""
    workloads = {(c.key.model, c.key.dataset) for c in known}
    if len(workloads) == 1:
        model, dataset = workloads.pop()
        return dataclasses.replace(question, model=model, dataset=dataset)
    for field, chosen in (
        ("model", {m for m, _ in workloads}),
        ("dataset", {d for _, d in workloads}),
    ):
        if len(chosen) > 1:
            names = ", ".join(sorted(name or "unnamed" for name in chosen))
            raise InvalidSpec(field, getattr(question, field), f"one of {names}")
    raise AssertionError("several workloads differ in the model or in the data set")


def _evidence(cell: Cell) -> list[Evidence]:
    names = [f.name for f in dataclasses.fields(Evidence) if f.name != "measurement_id"]
    return [
        Evidence(measurement_id=row.id, **{name: getattr(row, name) for name in names})
        for row in cell.measurements
    ]


def _workload(question: Question) -> str:
    parts = [question.model or "any model", question.dataset or "any data set"]
    return f"{' on '.join(parts)} (origin {question.origin})"


def _nothing_at_all(question: Question) -> str:
    return f"nothing is measured of {_workload(question)}: run a sweep of it first"


def _nothing_as_asked(question: Question, evidence: Sequence[Evidence]) -> str:
    batches = sorted({e.global_batch_size for e in evidence if e.status == OK})
    if question.global_batch_size not in batches:
        known = ", ".join(str(batch) for batch in batches) or "none"
        return (
            f"{_workload(question)} is not measured with global_batch_size "
            f"{question.global_batch_size}; measured: {known}"
        )
    delays = _measured_delays(question, evidence)
    return (
        f"{_workload(question)} with global_batch_size {question.global_batch_size} is not "
        f"measured as asked; gangs were measured at {delays}"
    )


def _no_gang(question: Question, evidence: Sequence[Evidence]) -> str:
    return (
        f"no gang was measured at a one-way delay of {question.one_way_delay_s:g} s with this "
        f"global batch size, only one machine; gangs were measured at "
        f"{_measured_delays(question, evidence)}"
    )


def _measured_delays(question: Question, evidence: Sequence[Evidence]) -> str:
    delays_s = sorted(
        {
            e.one_way_delay_s
            for e in evidence
            if e.status == OK
            and not e.is_one_machine
            and e.global_batch_size == question.global_batch_size
        }
    )
    return ", ".join(f"{delay_s:g} s" for delay_s in delays_s) or "no delay at all"
