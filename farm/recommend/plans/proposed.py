"""Proposes further measurements of one origin and kind of hardware, with a sweep file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from farm.errors import InvalidSpec
from farm.measuring.measurement import OWN_ORIGIN
from farm.recommend.observations import load
from farm.recommend.plans.planning import KnownMeasurements, Planned, Task, make_plan
from farm.recommend.plans.sweep_file import SweepForm, sweep_text, unregistered
from farm.registry import catalogue
from farm.store.engine import reading
from farm.store.measurements.measurements import no_measurement_of
from farm.text.display import short_fingerprint
from farm.values.codec import to_json

if TYPE_CHECKING:
    import sqlalchemy as sa
    from sqlalchemy.orm import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A plan and what becomes of it.

    `fingerprints`: the kinds of hardware that were measured, the one that it is for first; None
    among them: hardware that is not named. `sweep`: its sweep file, None where there is nothing to
    propose. `unregistered`: names that no sweep of this farm can have, by the field they stand in.
    """

    origin: str
    planned: Planned
    fingerprints: tuple[str | None, ...]
    sweep: str | None
    unregistered: dict[str, list[str]]

    def to_json(self) -> dict[str, object]:
        """Return what GET /api/v1/plan answers."""
        chosen = self.planned.plan
        return {
            "origin": self.origin,
            "fingerprints": list(self.fingerprints),
            "proposals": to_json(chosen.proposals),
            "question_count": chosen.choice_count,
            "regret_before_ratio": chosen.regret_before_ratio,
            "regret_after_ratio": chosen.regret_after_ratio,
            "cost": chosen.cost,
            "cost_unit": self.planned.cost_unit,
            "stopped_because": chosen.stopped_because,
            "considered_count": self.planned.considered_count,
            "grid_count": self.planned.grid_count,
            "sweep": self.sweep,
        }


def propose(
    engine: sa.Engine, task: Task, *, origin: str, fingerprint: str | None = None
) -> Proposed:
    """Plan for one kind of hardware; takes seconds, and reads by a snapshot of its own.

    `fingerprint`: the first characters of that kind's; None is the one that was measured most.

    Raises:
        NotFound: nothing of an imported origin is there.
        InvalidSpec: no hardware is like that, the task names no grid where nothing is measured, or
            a price is not known and counts.
    """
    with reading(engine) as session:
        known, fingerprints = _known(session, task, origin=origin, fingerprint=fingerprint)
    planned = make_plan(known, task, catalogue=catalogue())
    proposals = planned.plan.proposals
    form = SweepForm(
        name=f"plan for {origin}",
        origin=origin,
        step_count=task.step_count,
        warmup_step_count=task.warmup_step_count,
        cost_unit=planned.cost_unit,
    )
    return Proposed(
        origin=origin,
        planned=planned,
        fingerprints=fingerprints,
        sweep=sweep_text(planned.plan, form, catalogue=catalogue()) if proposals else None,
        unregistered=unregistered([p.configuration for p in proposals], catalogue()),
    )


def _known(
    session: Session, task: Task, *, origin: str, fingerprint: str | None
) -> tuple[KnownMeasurements, tuple[str | None, ...]]:
    """Read what is known of one kind of hardware, and return all kinds, that one first."""
    kinds = load(session, origin=origin, model=task.model, dataset=task.dataset)
    if not kinds and origin != OWN_ORIGIN:
        raise no_measurement_of(origin)
    fitting = {
        key: kind for key, kind in kinds.items() if (key or "").startswith(fingerprint or "")
    }
    if not fitting:
        if fingerprint:
            shown = ", ".join(short_fingerprint(key or "none") for key in kinds) or "none"
            raise InvalidSpec("fingerprint", fingerprint, f"the beginning of one of {shown}")
        return KnownMeasurements(observations=()), ()
    chosen = next(iter(fitting.values()))
    known = KnownMeasurements(
        observations=chosen.observations,
        failures=[(failure.configuration, failure.status) for failure in chosen.failures],
    )
    return known, tuple(fitting)
