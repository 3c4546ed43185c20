"""GET /api/v1/jobs/{id}/series: what one attempt of a job looked like, second by second."""

from __future__ import annotations

from flask import Blueprint, jsonify
from flask.typing import ResponseReturnValue

from farm.core.codec import to_json
from farm.errors import NotFound
from farm.store.jobs import AttemptDetail, JobDetail, job_detail
from farm.store.series import epochs_of, samples_by_rank, steps_of
from web import params
from web.backend import read_session
from web.series import thin_steps

bp = Blueprint("api_series", __name__, url_prefix="/api/v1")

_MAX_POINTS = 2000
_LARGEST_RANK = 4096


@bp.get("/jobs/<job_id>/series")
def get_series(job_id: str) -> ResponseReturnValue:
    """Return samples by rank, and one rank's steps and epochs, of one attempt: the last by default.

    Query: `attempt`, its number from 1; `rank`, for samples of that rank alone, and steps and
    epochs of it instead of rank 0. Samples and steps are thinned to 2000 points each, over all
    ranks together: a sample then stands for the mean from its tick to the next one's. Ticks that
    were lost are missing.
    """
    args = params.query("attempt", "rank")
    number = params.row_id("job", job_id)
    attempt_number = params.optional_id(args, "attempt", expected="an attempt's number, from 1")
    rank = params.whole(args, "rank", low=0, high=_LARGEST_RANK)
    with read_session() as session:
        chosen = _attempt(job_detail(session, number), attempt_number)
        if chosen is None:
            return jsonify(job_id=number, attempt=None, samples=[], steps=[], epochs=[])
        token = chosen.attempt.id
        share = _MAX_POINTS if rank is not None else _MAX_POINTS // max(1, len(chosen.ranks))
        samples = samples_by_rank(session, token, rank=rank, max_points=max(1, share))
        steps = steps_of(session, token, rank=rank or 0)
        epochs = epochs_of(session, token, rank=rank or 0)
    return jsonify(
        job_id=number,
        attempt=chosen.attempt.number,
        samples=[{"rank": r, "samples": to_json(tuple(row))} for r, row in samples.items()],
        steps=to_json(thin_steps(steps, max_points=_MAX_POINTS)),
        epochs=to_json(tuple(epochs)),
    )


def _attempt(detail: JobDetail, number: int | None) -> AttemptDetail | None:
    if number is None:
        return detail.attempts[-1] if detail.attempts else None
    for attempt in detail.attempts:
        if attempt.attempt.number == number:
            return attempt
    raise NotFound(f"attempt {number} of job {detail.job.id}: there is none")
