"""Predicts the step times of given configurations from an origin's measurements. Reads only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from farm.configuration.axes import SETUP_AXES
from farm.configuration.spec import CONDITIONS, OperatorPlacement, TrainingPass
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.configuration import COMPUTE_NAMES, NETWORK_NAMES, Configuration, network_of
from farm.recommend.contracts import Prediction
from farm.recommend.memory_limits import (
    OUT_OF_MEMORY,
    MemoryLimits,
    Workload,
    limits_by_workload,
    workload,
)
from farm.recommend.observations import LoadedObservations, load
from farm.recommend.service import Models, check_origin
from farm.recommend.setup import PLACEMENT, USUAL_SETUP, Setup, published_name

FINGERPRINT = "fingerprint"  # of a query: which kind of hardware is meant

_Kind = tuple[str | None, str | None, str | None]  # fingerprint, model, data set
# Values that need not be given, of names of which several were measured.
_USUAL = (None, USUAL_SETUP, TrainingPass.FORWARD_BACKWARD)
_SETUP_FIELDS = (PLACEMENT, *(axis.field for axis in SETUP_AXES))
_NOT_APPLICABLE = "n/a"  # as some studies print a placement
_MOST_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """`configuration`: the meaning of the query; None if it is ambiguous."""

    configuration: Configuration | None
    prediction: Prediction


def predict_queries(
    session: Session,
    queries: Sequence[Mapping[str, Any]],
    *,
    origin: str,
    cache: RecommenderCache,
    may_wait: bool = True,
) -> list[QueryAnswer]:
    """Return a prediction for each query, in order.

    A query has values by the fields of a configuration, of which world size and global batch size
    must be there, and may have a fingerprint. Without one the kind of hardware answers of which
    most was measured. `may_wait`: for a first model that has to be fitted, see `Fits`.

    Raises:
        NotFound: there is no measurement of that origin.
    """
    loaded = load(session, origin=origin)
    if not loaded:
        check_origin(session, origin)
    kinds = {fingerprint: KnownConfigurations.of(kind) for fingerprint, kind in loaded.items()}
    answered: dict[int, QueryAnswer] = {}
    by_kind: dict[_Kind, list[tuple[int, Configuration]]] = {}
    for index, query in enumerate(queries):
        given = dict(query)
        fingerprint = given.pop(FINGERPRINT, next(iter(kinds), None))
        found = kinds.get(fingerprint, KnownConfigurations()).resolve(given)
        configuration, why = found.configuration, found.unknown_because
        if configuration is None or why is not None:
            answered[index] = QueryAnswer(
                configuration=configuration, prediction=Prediction.unknown(why)
            )
        else:
            kind = (fingerprint, configuration.model, configuration.dataset)
            by_kind.setdefault(kind, []).append((index, configuration))
    for kind, of_kind in by_kind.items():
        found_all = _predict(
            session,
            [c for _, c in of_kind],
            kind,
            origin=origin,
            cache=cache,
            may_wait=may_wait,
        )
        for (index, configuration), prediction in zip(of_kind, found_all, strict=True):
            doubt = kinds[kind[0]].memory_doubt(configuration)
            if doubt and prediction.step_time_s is not None and not prediction.speculative_because:
                prediction = dataclasses.replace(prediction, speculative_because=doubt)
            answered[index] = QueryAnswer(configuration=configuration, prediction=prediction)
    return [answered[index] for index in range(len(queries))]


@dataclass(frozen=True, slots=True)
class KnownConfigurations:
    """What was measured on one kind of hardware, and how those ended that never succeeded."""

    configurations: Sequence[Configuration] = ()
    failed: Mapping[Configuration, str] = field(default_factory=dict)
    limits: Mapping[Workload, MemoryLimits] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: LoadedObservations) -> KnownConfigurations:
        measured = dict.fromkeys(o.configuration for o in kind.observations)
        return cls.of_all(list(measured), [(f.configuration, f.status) for f in kind.failures])

    @classmethod
    def of_all(
        cls, measured: Sequence[Configuration], failures: Sequence[tuple[Configuration, str]]
    ) -> KnownConfigurations:
        """`failures`: configurations with their status."""
        succeeded = {_early(c) for c in measured}
        ended = {_early(c): status for c, status in failures}
        return cls(
            measured,
            {c: status for c, status in ended.items() if c not in succeeded},
            limits_by_workload(failures, measured),
        )

    def resolve(self, given: Mapping[str, Any]) -> ResolvedConfiguration:
        """Return the configuration of a query, or why it cannot be predicted."""
        if not self.configurations:
            return ResolvedConfiguration(
                configuration=None, unknown_because="no step time was measured on such hardware"
            )
        found = resolve(given, self.configurations)
        if found.configuration is None:
            return found
        early = _early(found.configuration)
        status = self.failed.get(early) or self.failed.get(dataclasses.replace(early, network=None))
        if status is None:
            limits = self.limits.get(workload(found.configuration))
            full = limits.exceeded_by(found.configuration) if limits else None
            if full is None:
                return found
            status = f"{OUT_OF_MEMORY} with global_batch_size {full}"
        return dataclasses.replace(found, unknown_because=f"it does not work: {status}")

    def memory_doubt(self, configuration: Configuration) -> str | None:
        limits = self.limits.get(workload(configuration))
        return limits.doubt(configuration) if limits else None


def _early(configuration: Configuration) -> Configuration:
    """Return what is known of an attempt before it begins: not its framework's version."""
    return dataclasses.replace(configuration, framework=None)


def _predict(
    session: Session,
    configurations: Sequence[Configuration],
    kind: _Kind,
    *,
    origin: str,
    cache: RecommenderCache,
    may_wait: bool,
) -> list[Prediction]:
    fingerprint, model, dataset = kind
    knowledge = cache.knowledge(session, origin=origin, model=model, dataset=dataset)
    if (model, dataset) not in knowledge.workloads:
        why = f"nothing is measured of {model or 'no model'} on {dataset or 'no data set'}"
        return [Prediction.unknown(why)] * len(configurations)
    models = Models(knowledge, cache, may_wait=may_wait)
    fitted = models.of(fingerprint)
    if fitted is None:
        lacking = models.used[fingerprint].lacking_because if fingerprint in models.used else None
        return [Prediction.unknown(lacking or "no step time was measured on such hardware")] * len(
            configurations
        )
    return fitted.predict(configurations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedConfiguration:
    """`configuration` None goes with the reason; with a reason it is one that does not work."""

    configuration: Configuration | None
    unknown_because: str | None = None


def resolve(given: Mapping[str, Any], known: Sequence[Configuration]) -> ResolvedConfiguration:
    """Return the configuration that a query means.

    What it does not name is what the measurements have in common. Where they differ, a guess could
    be of another strategy or network altogether, so the query has to say it.

    `given`: values by the fields of a configuration; instead of its set-up, those of SETUP_AXES
    and a `placement`, which may be the text of a whole set-up. `known`: what was measured.

    A pass that is not given is a whole training step, unless only the other was measured.
    """
    values = dict(given)
    fields = [field for field in _SETUP_FIELDS if field in values]
    settings = {field: values.pop(field) for field in fields}
    if values.get("training_pass") is not None:
        values["training_pass"] = TrainingPass(values["training_pass"])
    if settings:
        values["setup"] = Setup.of(settings.get(PLACEMENT), settings)
    # One machine has no network, and a gang is no guide to it.
    is_one_machine = values["world_size"] == 1 and not values.get("server_count")
    fitting = [c for c in known if c.is_one_machine is is_one_machine] or list(known)
    # A name that is not given is looked for among the measurements that fit those before it.
    for name in (*COMPUTE_NAMES, *NETWORK_NAMES):
        if name == "network" and is_one_machine:
            values.pop(name, None)
            continue
        chosen = {getattr(c, name) for c in fitting}
        if name in values:
            values[name] = _as_known(name, values[name], chosen)
        elif len(chosen) > 1 and chosen.isdisjoint(_USUAL):
            return ResolvedConfiguration(
                configuration=None, unknown_because=_ambiguous(name, chosen)
            )
        else:
            values[name] = _usual(chosen)
        fitting = [c for c in fitting if getattr(c, name) == values[name]] or fitting
    for name in CONDITIONS:
        common = {getattr(c, name) for c in fitting if not c.is_one_machine}
        if name not in values and len(common) == 1:
            values[name] = next(iter(common))
    if values["training_pass"] is None:
        values["training_pass"] = TrainingPass.FORWARD_BACKWARD
    configuration = Configuration(**values)
    if not configuration.setup.fills_machines(configuration.world_size):
        why = f"world_size {configuration.world_size} does not fit {configuration.setup}"
        return ResolvedConfiguration(configuration=None, unknown_because=why)
    if not configuration.has_network:
        configuration = configuration.without_network()
    return ResolvedConfiguration(configuration=configuration)


def _as_known(name: str, value: object, chosen: set[object]) -> object:
    if name == "network" and isinstance(value, str):
        value = network_of(value)
    if value in chosen:
        return value
    if isinstance(value, Setup):
        placement, others = value.get(PLACEMENT), value.without(PLACEMENT)
        # Of the farm's own configurations soft is the usual placement, and is not said.
        is_own = placement == OperatorPlacement.SOFT.value and others in chosen
        return others if is_own or placement == _NOT_APPLICABLE else value
    return None if value == _NOT_APPLICABLE else value


def _usual(chosen: set[object]) -> object:
    usual = next((value for value in _USUAL if value in chosen), None)
    return next(iter(chosen)) if len(chosen) == 1 else usual


def _ambiguous(name: str, chosen: set[object]) -> str:
    texts = sorted(str(getattr(value, "value", value)) for value in chosen)
    shown = ", ".join(texts[:_MOST_SHOWN]) + (", ..." if len(texts) > _MOST_SHOWN else "")
    column = "pass" if name == "training_pass" else published_name(name)
    return f"{column}: not given, and measured with {shown}"
