"""Turns stored measurements into observations for predictors. Reads only.

This module alone decides which measurement counts as an observation of a step time:

- It has the status ok and a step time. Failures of a configuration are returned separately: it is
  known not to work. Failures of a machine say nothing.
- Values that an importer flagged as impossible or contradictory are not stored, so they never
  count.
- A measurement that was disturbed counts with the weight of `farm.measuring.noise.disturbance_of`,
  and only where its configuration has no undisturbed measurement.
- Kinds of hardware stay apart, as origins do.
- Measurements of an agent that is far off from others of its kind do not count, see
  `farm.recommend.outlier_agents`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES, SETUP_AXES
from farm.configuration.axis import Axis, AxisKind
from farm.configuration.spec import TrainingPass
from farm.measuring.measurement import OK
from farm.measuring.noise import UNDISTURBED, Disturbance, disturbance_of, undisturbed_first
from farm.recommend.configuration import Configuration, Observation, network_of
from farm.recommend.contracts import MACHINE_STATUSES
from farm.recommend.outlier_agents import AgentComparison, TimedMeasurement, compare_agents
from farm.recommend.setup import Setup, farm_placement
from farm.store.measurements.measurements import MeasurementFilter, observed_rows

# Axes that a configuration has as they are; how a strategy is set up is one value.
_AXES = tuple(
    axis
    for axis in AXES
    if axis.kind not in (AxisKind.SETUP, AxisKind.LINK) and axis.field != "training_pass"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedConfiguration:
    """A configuration that did not work, and how that is called: `out_of_memory`, ..."""

    measurement_id: int
    configuration: Configuration
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedObservations:
    """The observations and failures on one kind of hardware.

    Repetitions of a configuration are observations of their own. `comparison` of the agents: what
    those measured that are far off is left out of all.
    """

    fingerprint: str | None
    observations: tuple[Observation, ...]
    failures: tuple[FailedConfiguration, ...]
    comparison: AgentComparison


def load(
    session: Session,
    *,
    origin: str,
    model: str | None = None,
    dataset: str | None = None,
    training_pass: TrainingPass | None = None,
) -> dict[str | None, LoadedObservations]:
    """Return an origin's observations by fingerprint of the hardware; None: not named.

    None leaves model, data set or pass open. The kind with the most observations comes first.
    """
    which = MeasurementFilter(
        origin=origin,
        axes={
            "model": model,
            "dataset": dataset,
            "training_pass": training_pass.value if training_pass else None,
        },
    )
    return by_hardware(observed_rows(session, which))


def load_sweep(session: Session, sweep_id: int) -> dict[str | None, LoadedObservations]:
    """Return the observations of a sweep's jobs, as `load` does."""
    return by_hardware(observed_rows(session, MeasurementFilter(sweep_id=sweep_id)))


def by_hardware(rows: Iterable[Row[Any]]) -> dict[str | None, LoadedObservations]:
    """Return the observations in rows of `observed_rows` by fingerprint, as `load` does."""
    groups: dict[str | None, list[Row[Any]]] = {}
    for row in rows:
        groups.setdefault(row.fingerprint, []).append(row)
    loaded = [_loaded(fingerprint, group) for fingerprint, group in groups.items()]
    loaded.sort(key=lambda kind: (-len(kind.observations), kind.fingerprint or ""))
    return {kind.fingerprint: kind for kind in loaded}


def _loaded(fingerprint: str | None, rows: Sequence[Row[Any]]) -> LoadedObservations:
    observations: list[tuple[Observation, Disturbance]] = []
    failures = []
    comparison = compare_agents(
        _timed(row) for row in rows if row.agents and row.status not in MACHINE_STATUSES
    )
    set_aside_ids = comparison.set_aside_ids
    for row in rows:
        if row.id in set_aside_ids:
            continue
        configuration = configuration_of(row)
        if row.status in MACHINE_STATUSES:
            continue
        if row.status != OK:
            failures.append(
                FailedConfiguration(
                    measurement_id=row.id, configuration=configuration, status=row.status
                )
            )
            continue
        step_time_s = _step_time_s(row)
        if step_time_s is not None:
            disturbance = disturbance_of(row.flags)
            observation = Observation(
                measurement_id=row.id,
                configuration=configuration,
                step_time_s=step_time_s,
                weight=disturbance.weight,
            )
            observations.append((observation, disturbance))
    kept = undisturbed_first(
        observations, operator.itemgetter(1), cell=lambda one: one[0].configuration
    )
    return LoadedObservations(
        fingerprint=fingerprint,
        observations=tuple(observation for observation, _ in kept),
        failures=tuple(failures),
        comparison=comparison,
    )


def _timed(row: Row[Any]) -> TimedMeasurement:
    return TimedMeasurement(
        measurement_id=row.id,
        cell=configuration_of(row),
        agents=tuple(row.agents),
        times_s=(row.step_time_s, row.time_per_epoch_s) if row.status == OK else (None, None),
        is_disturbed=disturbance_of(row.flags) != UNDISTURBED,
    )


def configuration_of(row: Row[Any]) -> Configuration:
    """Return what a stored measurement was of; one machine has no network, whatever it says."""
    configuration = Configuration(
        **{axis.field: _value(row, axis) for axis in _AXES},
        training_pass=TrainingPass(row.training_pass),
        framework=row.framework,
        setup=Setup.of(
            # Of our own, which have an attempt.
            row.placement if row.attempt_id is None else farm_placement(row.placement),
            {axis.field: getattr(row, axis.stored) for axis in SETUP_AXES},
        ),
        network=network_of(row.network),
        instance_type=row.instance_type,
        server_count=row.server_count,
    )
    return configuration if configuration.has_network else configuration.without_network()


def _value(row: Row[Any], axis: Axis) -> Any:
    """Return the value of an axis, the default where the measurement does not say it."""
    value = getattr(row, axis.stored)
    return axis.absent if value is None else value


def _step_time_s(row: Row[Any]) -> float | None:
    time_s: float | None = row.step_time_s
    if time_s is None and row.time_per_epoch_s and row.steps_per_epoch:
        return float(row.time_per_epoch_s / row.steps_per_epoch)
    return time_s if time_s and time_s > 0 else None
