"""Computes plans of further measurements in the background, each plan once.

A plan costs seconds of a processor, and follows from what is measured and from what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import sqlalchemy as sa

from farm.configuration.sweep import CASE_OPTIONS
from farm.registry import catalogue
from farm.store.engine import reading
from farm.store.measurements.measurements import MeasurementFilter, measurements_stamp
from farm.values.codec import content_hash
from web.backend import backend, read_session
from web.errors import RefusedRequest

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Planned, Task

DEFAULT_COUNT = 5
DEFAULT_WARMUP_STEPS: int = next(
    option.default for option in CASE_OPTIONS if option.name == "warmup_steps"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A plan and what becomes of it.

    `fingerprints`: the kinds of hardware that were measured, the one that it is for first. `sweep`:
    its sweep file, None where there is nothing to propose. `unregistered`: names that no sweep of
    this farm can have, by the field they stand in.
    """

    planned: Planned
    fingerprints: tuple[str | None, ...]
    sweep: str | None
    unregistered: dict[str, list[str]]


@contextmanager
def needing_maths() -> Iterator[None]:
    """Turn a failed import of numpy in this block into a 503 answer.

    Raises:
        Refused: they are not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        needed = f"planning needs {error.name}: pip install 'benchfarm[ml]'"
        raise RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, needed) from None


def propose(
    task: Task, *, origin: str, fingerprint: str | None = None, patience_s: float | None = None
) -> Proposed | None:
    """Return a plan by what an origin has measured on one kind of hardware; None: not yet.

    `fingerprint`: the first characters of that kind's; None is the one that was measured most.
    `patience_s`: how long this request waits for it, else as the background does.

    Raises:
        NotFound: nothing of an imported origin is there.
        InvalidSpec: no hardware is like that, the task names no grid where nothing is measured, or
            a price is not known and counts.
    """
    with read_session() as session:
        which = MeasurementFilter(
            origin=origin, axes={"model": task.model, "dataset": task.dataset}
        )
        stamp = measurements_stamp(session, which)
    made = backend().background.ask(
        ("plan", stamp, origin, fingerprint, content_hash(task)),
        partial(_propose, backend().engine, task, origin, fingerprint),
        patience_s=patience_s,
    )
    return None if made is None else made.value


def _propose(engine: sa.Engine, task: Task, origin: str, fingerprint: str | None) -> Proposed:
    """Plan; takes seconds, and reads by a snapshot of its own."""
    from farm.recommend.plans.known_origin import read_origin
    from farm.recommend.plans.planning import make_plan
    from farm.recommend.plans.sweep_file import SweepForm, sweep_text, unregistered

    with reading(engine) as session:
        found = read_origin(
            session,
            origin=origin,
            model=task.model,
            dataset=task.dataset,
            fingerprint=fingerprint,
        )
    planned = make_plan(found.known, task, catalogue=catalogue())
    proposals = planned.plan.proposals
    form = SweepForm(
        name=f"plan for {origin}",
        origin=origin,
        step_count=task.step_count,
        warmup_step_count=task.warmup_step_count,
        cost_unit=planned.cost_unit,
    )
    return Proposed(
        planned=planned,
        fingerprints=found.fingerprints,
        sweep=sweep_text(planned.plan, form, catalogue=catalogue()) if proposals else None,
        unregistered=unregistered([p.configuration for p in proposals], catalogue()),
    )
