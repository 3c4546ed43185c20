"""Recommends a configuration for each workload, batch size and network of a sweep.

Answers use all measurements of the farm under these conditions, including those of other sweeps,
and state how many are of this sweep. Only measured configurations are compared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.axes import CONDITION_AXES
from farm.configuration.scripts import workload_text
from farm.configuration.spec import TrainingPass
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.contracts import Objective, Option, Question, Recommendation
from farm.recommend.service import recommend
from farm.store.measurements.cell_rows import measured_conditions
from farm.store.measurements.measurements import ids_within
from farm.text.plurals import counted
from farm.values.codec import to_json

MOST_ANSWERS = 8  # that commands and reports have of one sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepShare:
    """How many of some measurements are of a sweep, and how many of other sweeps."""

    own_count: int
    other_count: int

    @property
    def words(self) -> str:
        """Describe the evidence of an answer, beside the sweep's name."""
        count = self.own_count + self.other_count
        text = f"rests on {counted(count, 'measurement')}"
        if not self.own_count:
            return f"{text} of other sweeps, and on none of this one"
        if self.other_count:
            return f"{text}: {self.own_count} of this sweep, {self.other_count} of other sweeps"
        return f"{text}{'' if count == 1 else ', all'} of this sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswer:
    """`own_ids`: of the measurements behind its options, those of the sweep."""

    question: Question
    answer: Recommendation
    own_ids: Collection[int]

    def share_of(self, *options: Option) -> SweepShare:
        """Return how much of what these options rest on is of the sweep."""
        ids = {one for option in options for one in option.measurement_ids}
        own_count = len(ids.intersection(self.own_ids))
        return SweepShare(own_count=own_count, other_count=len(ids) - own_count)

    @property
    def sentence(self) -> str:
        """Say what is recommended for what, and how much of its evidence is of other sweeps."""
        best, question = self.answer.recommended, self.question
        rests = "" if best is None else f"; it {self.share_of(best).words}"
        values = zip(CONDITION_AXES, question.conditions, strict=True)
        network = [axis.phrase_of(value) for axis, value in values if value != axis.absent]
        workload = workload_text(question.model, question.dataset)
        task = ", ".join([workload, f"batch {question.global_batch_size}", *network])
        return f"Recommended for {task}: {self.answer.headline}{rests}"

    def to_json(self) -> Mapping[str, object]:
        """Return the question, the recommendation, and the sweep's share of its evidence."""
        best, question = self.answer.recommended, self.question
        share = None if best is None else self.share_of(best)
        return {
            **question.task,
            "training_pass": question.training_pass.value,
            "recommended": None if best is None else to_json(best),
            "reason": self.answer.reason,
            "cautions": list(self.answer.cautions),
            "warnings": list(self.answer.warnings),
            "own_measurement_count": share.own_count if share else 0,
            "other_measurement_count": share.other_count if share else 0,
        }


def answers_for(
    session: Session,
    sweep_id: int,
    *,
    cache: RecommenderCache | None = None,
    most: int | None = None,
) -> list[OwnAnswer]:
    """Answer for the conditions of the sweep's measurements, at most `most` of them."""
    answers = []
    for question in _questions(measured_conditions(session, sweep_id))[:most]:
        answer = recommend(
            session,
            question=question,
            objective=Objective(),
            cache=cache,
            is_predicting=False,
        )
        ids = {one for option in answer.options for one in option.measurement_ids}
        own_ids = ids_within(session, sweep_id, ids)
        answers.append(OwnAnswer(question=question, answer=answer, own_ids=own_ids))
    return answers


def _questions(conditions: Sequence[Any]) -> list[Question]:
    """Return each condition once. One machine fits every network, so gangs set the networks."""
    usable = [row for row in conditions if row.model and row.dataset]
    of_gangs = {_work(row) for row in usable if row.is_gang}
    questions = {_question(row) for row in usable if row.is_gang or _work(row) not in of_gangs}
    return sorted(questions, key=_order)


def _work(row: Any) -> tuple[str | None, str | None, str, int]:
    return row.model, row.dataset, row.training_pass, row.global_batch_size


def _question(row: Any) -> Question:
    return Question(
        origin=row.origin,
        model=row.model,
        dataset=row.dataset,
        training_pass=TrainingPass(row.training_pass),
        global_batch_size=row.global_batch_size,
        **{
            axis.field: axis.absent if (value := getattr(row, axis.field)) is None else value
            for axis in CONDITION_AXES
        },
    )


def _order(question: Question) -> tuple[str | int | float, ...]:
    return (
        question.model or "",
        question.dataset or "",
        question.training_pass.value,
        question.global_batch_size,
        *(math.inf if value is None else value for value in question.conditions),
    )
