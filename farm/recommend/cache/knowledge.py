"""The caches of a process that answers questions: measurements, and the models fitted to them.

Reads only. Which measurement counts as an observation is decided in `observations`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from farm.configuration.spec import TrainingPass
from farm.measuring.noise import disturbance_of
from farm.processes.cache import Cache
from farm.processes.subprocess_call import in_subprocess
from farm.recommend.answering.learning import Curves
from farm.recommend.cache.fit_files import digest_of
from farm.recommend.cache.fits import Fits
from farm.recommend.configuration import Observation
from farm.recommend.contracts import Evidence, StepTimeModel
from farm.recommend.observations import by_hardware, configuration_of
from farm.recommend.outlier_agents import AgentComparison
from farm.store.measurements.measurements import (
    MeasurementFilter,
    measurements_stamp,
    observed_rows,
)
from farm.store.measurements.trained_cells import accuracy_curves

FITS_FOLDER = "fits"  # in FARM_HOME
_MOST_KEPT = 32
_COPIED = [
    f.name
    for f in dataclasses.fields(Evidence)
    if f.name not in ("measurement_id", "configuration", "disturbance", "agents")
]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a model is fitted to."""

    observations: tuple[Observation, ...]

    @functools.cached_property  # kept with them, hence no slots; many answers need no model
    def digest(self) -> str:
        """The hash of all that a model of them follows from."""
        return digest_of(self.observations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The measurements of a model on a data set, or of all there are where these were left open.

    `evidence` by pass, of all kinds of hardware; `observed` by fingerprint, of all passes, since
    one teaches a predictor about the other. `curves`: accuracy after each epoch, by measurement.
    `comparisons` of the agents, by fingerprint: what those measured that are far off is neither
    evidence nor observed.
    """

    origin: str
    workloads: tuple[tuple[str | None, str | None], ...]  # model, data set
    evidence: Mapping[TrainingPass, tuple[Evidence, ...]]
    curves: Curves
    observed: Mapping[str | None, Observed]
    comparisons: Mapping[str | None, AgentComparison]

    @property
    def is_empty(self) -> bool:
        """Whether there is not even a failed measurement."""
        return not self.workloads


def read_knowledge(
    session: Session, *, origin: str, model: str | None, dataset: str | None
) -> Knowledge:
    """Read what is known. Which workload is meant has to be settled where there are several."""
    axes = {"model": model, "dataset": dataset}
    rows = observed_rows(session, MeasurementFilter(origin=origin, axes=axes))
    workloads = tuple(dict.fromkeys((row.model, row.dataset) for row in rows))
    # Of several workloads none is asked yet.
    kinds = by_hardware(rows) if len(workloads) == 1 else {}
    comparisons = {fingerprint: known.comparison for fingerprint, known in kinds.items()}
    set_aside_ids = {i for one in comparisons.values() for i in one.set_aside_ids}
    rows = [row for row in rows if row.id not in set_aside_ids]
    evidence: dict[TrainingPass, list[Evidence]] = {}
    for row in rows:
        evidence.setdefault(TrainingPass(row.training_pass), []).append(_evidence(row))
    by_attempt = accuracy_curves(
        session, {row.attempt_id for row in rows if row.attempt_id is not None and row.epochs}
    )
    return Knowledge(
        origin=origin,
        workloads=workloads,
        evidence={training_pass: tuple(items) for training_pass, items in evidence.items()},
        curves={row.id: by_attempt[row.attempt_id] for row in rows if row.attempt_id in by_attempt},
        observed={
            fingerprint: Observed(observations=known.observations)
            for fingerprint, known in kinds.items()
        },
        comparisons=comparisons,
    )


def _evidence(row: Row[Any]) -> Evidence:
    return Evidence(
        measurement_id=row.id,
        configuration=configuration_of(row),
        disturbance=disturbance_of(row.flags),
        agents=tuple(row.agents or ()),
        **{name: getattr(row, name) for name in _COPIED},
    )


@dataclass(frozen=True, slots=True)
class RecommenderCache:
    """Measurements as they were read, and the models fitted to them.

    Threads share it; it serves one store.
    """

    fits: Fits
    _read: Cache = field(default_factory=lambda: Cache(most=_MOST_KEPT))

    @classmethod
    def of_server(cls, home: Path) -> RecommenderCache:
        """Return a cache that fits in another process and shares its models with commands."""
        return cls(Fits(in_subprocess(fit_default), folder=home / FITS_FOLDER, in_background=True))

    def knowledge(
        self, session: Session, *, origin: str, model: str | None, dataset: str | None
    ) -> Knowledge:
        """Return the knowledge from the measurements that the session sees."""
        # Of these alone: what the farm measures all day says nothing new about an imported study.
        which = MeasurementFilter(origin=origin, axes={"model": model, "dataset": dataset})
        stamp = measurements_stamp(session, which)

        def read(before: tuple[Hashable, Knowledge] | None) -> tuple[Hashable, Knowledge]:
            return stamp, read_knowledge(session, origin=origin, model=model, dataset=dataset)

        key = (origin, model, dataset)
        return self._read.get(key, read, is_good=lambda made: made.value[0] == stamp)[1]


def fit_default(observations: Sequence[Observation]) -> StepTimeModel:
    """Fit the model of step times that answers unless somebody compares predictors."""
    # Imported here: what it needs costs a command's start, and models from disk need less of it.
    from farm.recommend.calibrated.step_time_model import fit_step_time_model

    return fit_step_time_model(observations)
