"""Answer a question from the store's measurements. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from farm.configuration.own_data import find_dataset
from farm.errors import InvalidSpec, NotFound
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.answering.answer import answer_from, nothing, nothing_measured
from farm.recommend.answering.options import options_for
from farm.recommend.cache.fits import Fitted
from farm.recommend.cache.knowledge import Knowledge, RecommenderCache, read_knowledge
from farm.recommend.contracts import Evidence, Objective, Question, Recommendation, StepTimeModel
from farm.recommend.outlier_agents import cannot_tell
from farm.recommend.prices import Prices
from farm.registry import catalogue
from farm.store.measurements.measurements import MeasurementFilter, list_measurements
from farm.store.measurements.scripts import measured_script, others_warning
from farm.text.plurals import counted


def recommend(
    session: Session,
    *,
    question: Question,
    objective: Objective,
    prices: Prices | None = None,
    cache: RecommenderCache | None = None,
    may_wait: bool = True,
    is_predicting: bool = True,
) -> Recommendation:
    """Rank the configurations that compete, best first: measured as asked, or predicted.

    Without a cache, or unless `is_predicting`, only what was measured is compared. `may_wait`: for
    a first model that has to be fitted, see `Fits`. Where nothing fits, `recommended` is None with
    a reason: that is an answer, not an error.

    Raises:
        NotFound: there is no measurement of that origin.
        InvalidSpec: the question leaves open which of several workloads is meant.
    """
    question, about_script = _of_script(session, question)
    question, knowledge = settle(session, question, cache)
    evidence = knowledge.evidence.get(question.training_pass, ())
    outlying = [found.message for one in knowledge.comparisons.values() for found in one.outlying]
    if not evidence:
        return nothing(question, nothing_measured(question), outlying)
    models = Models(knowledge, cache if is_predicting else None, may_wait=may_wait)
    facts = catalogue()
    dataset = find_dataset(question.dataset, facts.datasets)
    found = options_for(
        evidence,
        question,
        examples_count=dataset.train_examples_count if dataset else None,
        prices_usd_per_hour=prices.usd_per_hour if prices else {},
        curves=knowledge.curves,
        models=models.of,
        strategies=facts.strategies,
    )
    used = [fitted for fitted in models.used.values() if fitted.model is not None]
    answer = answer_from(
        dataclasses.replace(found, warnings=(*found.warnings, *models.warnings())),
        question,
        objective,
        evidence,
        predictor=used[0].model.predictor_name if used and used[0].model else None,
        predictor_measurement_count=sum(f.measurement_count for f in used) if used else None,
    )
    return dataclasses.replace(
        answer,
        warnings=(
            *about_script,
            *outlying,
            *answer.warnings,
            *_not_compared(answer, evidence, knowledge),
        ),
        is_preliminary=any(fitted.is_awaited for fitted in models.used.values()),
    )


def _not_compared(
    answer: Recommendation, evidence: Sequence[Evidence], knowledge: Knowledge
) -> list[str]:
    """Say whose measurements the options rest on of whom it cannot be told whether they are off."""
    ids = {i for option in answer.options for i in option.measurement_ids}
    agents = {agent for e in evidence if e.measurement_id in ids for agent in e.agents}
    warning = cannot_tell(knowledge.comparisons.values(), agents)
    return [] if warning is None else [warning]


def _of_script(session: Session, question: Question) -> tuple[Question, tuple[str, ...]]:
    """Return the question with the workload of its script, and what to say of that."""
    if question.script is None:
        return question, ()
    found = measured_script(
        session,
        origin=question.origin,
        script=question.script,
        sha256=question.script_sha256,
        parameters=question.script_parameters,
    )
    warning = others_warning(question.script, found)
    dataset = question.dataset or found.dataset
    settled = dataclasses.replace(
        question,
        script=None,
        script_sha256=None,
        script_parameters=(),
        model=found.model,
        dataset=dataset,
    )
    return settled, () if warning is None else (warning,)


def settle(
    session: Session, question: Question, cache: RecommenderCache | None
) -> tuple[Question, Knowledge]:
    """Return the question with its one workload, and the knowledge of that.

    Raises:
        NotFound: there is no measurement of that origin.
        InvalidSpec: the question leaves open which of several workloads is meant.
    """
    question, _ = _of_script(session, question)
    read: Callable[..., Knowledge] = cache.knowledge if cache else read_knowledge
    knowledge = read(
        session, origin=question.origin, model=question.model, dataset=question.dataset
    )
    if knowledge.is_empty:
        check_origin(session, question.origin)
        return question, knowledge
    if len(knowledge.workloads) == 1:
        [(model, dataset)] = knowledge.workloads
        return dataclasses.replace(question, model=model, dataset=dataset), knowledge
    for field, chosen in (
        ("model", {m for m, _ in knowledge.workloads}),
        ("dataset", {d for _, d in knowledge.workloads}),
    ):
        if len(chosen) > 1:
            names = ", ".join(sorted(name or "unnamed" for name in chosen))
            raise InvalidSpec(field, getattr(question, field), f"one of {names}")
    raise AssertionError("several workloads differ in the model or in the data set")


def check_origin(session: Session, origin: str) -> None:
    """Raise NotFound where nothing of an origin is in the store."""
    if origin != OWN_ORIGIN and not list_measurements(
        session, MeasurementFilter(origin=origin), limit=1
    ):
        raise NotFound(
            f"origin '{origin}': nothing of it is in this store; '{OWN_ORIGIN}' has what was "
            "measured here, and `farm import` brings the published studies"
        )


class Models:
    """The models of one workload's kinds of hardware, and what is to be said of them."""

    def __init__(
        self, knowledge: Knowledge, cache: RecommenderCache | None, *, may_wait: bool
    ) -> None:
        self._knowledge = knowledge
        self._cache = cache
        self._may_wait = may_wait
        self.used: dict[str | None, Fitted] = {}

    def of(self, fingerprint: str | None) -> StepTimeModel | None:
        """Return the model of a kind of hardware; None where there is none."""
        observed = self._knowledge.observed.get(fingerprint)
        if self._cache is None or observed is None or not observed.observations:
            return None
        if fingerprint not in self.used:
            subject = (self._knowledge.origin, self._knowledge.workloads, fingerprint)
            self.used[fingerprint] = self._cache.fits.model_of(
                subject,
                observed.observations,
                digest=observed.digest,
                may_wait=self._may_wait,
            )
        return self.used[fingerprint].model

    def warnings(self) -> list[str]:
        """Return warnings about missing models, and about models of older measurements."""
        sentences = [
            f"only what was measured is compared: {f.lacking_because}"
            for f in self.used.values()
            if f.lacking_because is not None
        ]
        for fingerprint, fitted in self.used.items():
            if not fitted.is_current:
                count = len(self._knowledge.observed[fingerprint].observations)
                sentences.append(
                    f"predictions rest on {counted(fitted.measurement_count, 'measurement')}, "
                    f"of which there are {count} now: they are being renewed"
                )
        return list(dict.fromkeys(sentences))
