"""Computes plans of further measurements in the background, each plan once.

A plan takes seconds of processor time. It depends only on the measurements and on the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from farm.store.measurements.measurements import MeasurementFilter, measurements_stamp
from farm.values.codec import content_hash
from web.backend import backend, read_session
from web.errors import RefusedRequest

if TYPE_CHECKING:
    from farm.recommend.plans.planning import Task
    from farm.recommend.plans.proposed import Proposed


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
    """Return a plan from an origin's measurements on one kind of hardware; None: not ready yet.

    `fingerprint`: the first characters of that kind's; None is the one that was measured most.
    `patience_s`: how long this request waits for it; by default as long as `Background` does.

    Raises:
        NotFound: nothing of an imported origin is there.
        InvalidSpec: as `farm.recommend.plans.proposed.propose`.
    """
    from farm.recommend.plans.proposed import propose as propose_now

    with read_session() as session:
        which = MeasurementFilter(
            origin=origin, axes={"model": task.model, "dataset": task.dataset}
        )
        stamp = measurements_stamp(session, which)
    made = backend().background.ask(
        ("plan", stamp, origin, fingerprint, content_hash(task)),
        partial(propose_now, backend().engine, task, origin=origin, fingerprint=fingerprint),
        patience_s=patience_s,
    )
    return None if made is None else made.value
