"""Builds the options for a question from measurements and predictions.

A measured time is used as it is. If it has too few repetitions for an interval, a model of the step
times gives the interval. Other configurations are predicted from measurements of one origin and one
kind of hardware.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from farm.configuration.catalogue import StrategyFacts
from farm.measuring.measurement import OK
from farm.recommend.answering.candidates import candidates
from farm.recommend.answering.learning import Curves, Learned, learned
from farm.recommend.answering.measured import (
    ConfigurationKey,
    MeasuredOptions,
    attempted,
    choice_of,
    distinguishing_fields,
    measured_as_requested,
    name_of,
)
from farm.recommend.answering.training import (
    EpochRatio,
    TrainingTerms,
    epoch_length,
    epoch_ratio,
    measured_option,
    predicted_option,
    trains_alike,
)
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import (
    WIDE_RATIO,
    Basis,
    Evidence,
    Option,
    Prediction,
    Question,
    StepTimeModel,
)

# Gives the model of a kind of hardware, by its fingerprint; None where there is none.
_ModelOf = Callable[[str | None], StepTimeModel | None]

_MAX_NAMED = 3  # of those of which the same is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    options: tuple[Option, ...]
    warnings: tuple[str, ...]
    cautions: tuple[str, ...] = ()


def options_for(
    evidence: Sequence[Evidence],
    question: Question,
    *,
    examples_count: int | None,
    prices_usd_per_hour: Mapping[str, float],
    curves: Curves | None = None,
    models: _ModelOf = lambda _: None,
    strategies: Mapping[str, StrategyFacts] | None = None,
) -> Options:
    """Turn the measurements of one workload and origin into options for the question.

    `examples_count`: of the training set, None if not known. `prices_usd_per_hour`: of one VM, by
    instance type; a type that is not there has no known cost. `strategies`: what is known of some.
    """
    batch_size = question.global_batch_size
    terms = TrainingTerms(
        question=question,
        length=epoch_length(evidence, global_batch_size=batch_size, examples_count=examples_count),
        ratio=epoch_ratio(evidence, examples_count=examples_count),
        prices_usd_per_hour=prices_usd_per_hour,
        strategies=strategies or {},
    )
    measured = measured_as_requested(evidence, question)
    trained = _TrainedOption(
        [e for e in evidence if e.configuration.global_batch_size == batch_size],
        curves or {},
        terms,
    )
    options: list[Option] = []
    warnings = list(measured.warnings)
    for kind in dict.fromkeys(measured.fingerprints.values()):
        found = _of_kind(evidence, measured, kind, models(kind), terms, trained)
        options += found.options
        warnings += found.warnings
    lacking_count = sum(option.time_per_epoch_s is None for option in options)
    if lacking_count:
        compared = (
            "options are compared by the time of one step"
            if lacking_count == len(options) or all(o.step_time_s is not None for o in options)
            else "options of which only steps were measured cannot be compared with the others"
        )
        why = terms.length.unknown_because or _unlike_steps(terms)
        warnings.append(f"how long an epoch takes is not known, since {why}: {compared}")
    return Options(
        options=tuple(options),
        warnings=tuple(warnings),
        cautions=(*measured.cautions, *_epochs_of_steps(options, evidence, terms)),
    )


def _epochs_of_steps(
    options: Sequence[Option], evidence: Sequence[Evidence], terms: TrainingTerms
) -> Iterable[str]:
    """Say what is done where steps were measured or predicted, and epochs take another time."""
    with_epochs = {e.measurement_id for e in evidence if e.time_per_epoch_s is not None}
    is_made = any(
        o.basis != Basis.MEASURED.value or with_epochs.isdisjoint(o.measurement_ids)
        for o in options
    )
    if terms.ratio == EpochRatio() or terms.length.full_steps is None or not is_made:
        return
    if terms.ratio.factor is None:
        yield f"{_unlike_steps(terms)}, so those that were not measured are not known"
    else:
        yield f"{_unlike_steps(terms)}: those that were not measured are scaled by that"


def _unlike_steps(terms: TrainingTerms) -> str:
    if terms.ratio.factor is not None:
        return f"measured epochs take {terms.ratio.factor:.3g} times as long as their steps"
    return (
        f"measured epochs take {terms.ratio.least:.3g} to {terms.ratio.most:.3g} times as long as "
        "their steps"
    )


@dataclass(frozen=True, slots=True)
class _TrainedOption:
    """The measurements with the global batch size asked about, and their accuracies by epoch."""

    evidence: Sequence[Evidence]
    curves: Curves
    terms: TrainingTerms

    def of(self, own: Sequence[Evidence], configuration: Configuration) -> Learned:
        """Return the learning of a configuration; asynchronous replicas learn differently."""
        way = configuration.setup.of_learning
        others = [
            e
            for e in self.evidence
            if self._is_synchronous(e.configuration.strategy)
            and e.configuration.setup.of_learning == way
        ]
        return learned(
            own,
            others if self._is_synchronous(configuration.strategy) else [],
            self.curves,
            epochs=self.terms.question.epochs,
            target_accuracy_ratio=self.terms.question.target_accuracy_ratio,
        )

    def alike(self, configuration: Configuration) -> list[Evidence]:
        """Return the measurements trained like this, over any network."""
        return [
            e
            for e in self.evidence
            if attempted(e.configuration)[:-1] == attempted(configuration)[:-1]
        ]

    def _is_synchronous(self, strategy: str | None) -> bool:
        return trains_alike(self.terms.strategies, strategy)


def _of_kind(
    evidence: Sequence[Evidence],
    measured: MeasuredOptions,
    kind: str | None,
    model: StepTimeModel | None,
    terms: TrainingTerms,
    trained: _TrainedOption,
) -> Options:
    """Return the options on one kind of hardware. Without a model only what was measured."""
    groups = [g for g in measured.successes.values() if g[0].fingerprint == kind]
    configurations = [g[0].configuration for g in groups]
    competing, warnings = _not_measured(evidence, measured, kind, terms) if model else ([], [])
    predictions: list[Prediction] | list[None] = (
        model.predict([*configurations, *competing]) if model else [None] * len(configurations)
    )
    options = [
        option
        for group, prediction in zip(groups, predictions, strict=False)
        if (
            option := measured_option(
                group, prediction, trained.of(group, group[0].configuration), terms
            )
        )
    ]
    succeeded = [e.configuration for e in evidence if e.status == OK and e.fingerprint == kind]
    tried = {choice_of(c) for c in succeeded}
    with_gangs = {c.instance_type for c in succeeded if not c.is_one_machine}
    by = distinguishing_fields([*configurations, *competing])
    unknown: dict[str, list[str]] = {}
    for configuration, prediction in zip(competing, predictions[len(groups) :], strict=True):
        assert prediction is not None
        if prediction.step_time_s is None:
            unknown.setdefault(prediction.unknown_because or "", []).append(
                name_of(configuration, by)
            )
        else:
            training = trained.of(trained.alike(configuration), configuration)
            is_tried = choice_of(configuration) in tried
            why = _speculative_because(prediction, is_tried=is_tried)
            own_type = configuration.instance_type
            if own_type and not configuration.is_one_machine and own_type not in with_gangs:
                why = f"no gang of {own_type} was measured"
            prediction = dataclasses.replace(prediction, speculative_because=why)
            options.append(
                predicted_option(configuration, prediction, training, terms, fingerprint=kind)
            )
    warnings += _suspicions(model, options)
    warnings += [f"nothing is known of {_listed(names)}: {why}" for why, names in unknown.items()]
    return Options(options=tuple(options), warnings=tuple(warnings))


def _speculative_because(prediction: Prediction, *, is_tried: bool) -> str | None:
    """Say why a prediction is a guess. `is_tried`: measured under other conditions at least."""
    if prediction.speculative_because or prediction.basis is not Basis.EXTRAPOLATED:
        return prediction.speculative_because
    if not is_tried:
        return "it lies beyond everything that was measured"
    if prediction.low_s and prediction.high_s and prediction.high_s > WIDE_RATIO * prediction.low_s:
        return "it is extrapolated, and its 90 % interval is wider than a factor of two"
    return None


def _not_measured(
    evidence: Sequence[Evidence], measured: MeasuredOptions, kind: str | None, terms: TrainingTerms
) -> tuple[list[Configuration], list[str]]:
    """Return what competes and was neither measured as asked nor seen to fail."""
    types = {t for t, fingerprint in measured.fingerprints.items() if fingerprint == kind}
    alike = [e for e in evidence if e.fingerprint == kind]
    own = [e for e in alike if e.configuration.instance_type in types]
    others = [e for e in alike if e.configuration.instance_type not in types]
    found = candidates(own, terms.question, others=others, strategies=terms.strategies)
    known: Iterable[ConfigurationKey] = measured.successes.keys()
    return [
        c
        for c in found.configurations
        if choice_of(c) not in known and attempted(c) not in measured.failed
    ], [*found.warnings, *_without_gangs(evidence, alike, types)]


def _without_gangs(
    evidence: Sequence[Evidence], alike: Sequence[Evidence], types: Iterable[str | None]
) -> Iterable[str]:
    """Say of which instance types no gang can be predicted. `alike`: on their kind of hardware."""
    if any(e.status == OK and not e.configuration.is_one_machine for e in alike):
        return
    elsewhere = {
        e.configuration.instance_type
        for e in evidence
        if e.status == OK and not e.configuration.is_one_machine
    }
    for name in sorted(t for t in types if t is not None and elsewhere - {t}):
        yield (
            f"only one machine of {name} was measured, and other kinds of hardware say nothing of "
            "its gangs: measure one to compare them"
        )


def _suspicions(model: StepTimeModel | None, options: Sequence[Option]) -> list[str]:
    """Say which measured times are hard to believe; they count as measured all the same."""
    measured = [o for o in options if o.basis == Basis.MEASURED.value]
    by = distinguishing_fields(options)
    return [
        f"{name_of(option, by)}: measurement {suspicion.measurement_id} is hard to believe, "
        f"{suspicion.message}"
        for suspicion in (model.suspicions if model else ())
        for option in measured
        if suspicion.measurement_id in option.measurement_ids
    ]


def _listed(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    rest = len(unique) - _MAX_NAMED
    shown = ", ".join(unique[:_MAX_NAMED])
    return f"{shown} and {rest} others" if rest > 0 else shown
