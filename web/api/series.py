"""GET /api/v1/jobs/{id}/series: samples of one attempt of a job, second by second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from apiflask import APIBlueprint
from flask import current_app, json, jsonify
from flask.typing import ResponseReturnValue
from sqlalchemy.orm import Session

from farm.charts.job.step_points import step_points
from farm.configuration.spec import MAX_WORLD_SIZE
from farm.gang.lifecycle import FINAL_JOB_STATES
from farm.messages.reports import Sample
from farm.store.engine import reading
from farm.store.series.series import epochs_of, samples_by_rank
from farm.store.series.step_ranges import step_series
from farm.store.sweeps.job_parts import find_attempt
from farm.store.sweeps.jobs import job_detail
from farm.values.codec import to_json
from web import etags, parameters, received
from web.api.schema import answers
from web.api.schema.description import described
from web.backend import backend, read_session
from web.job.attempts import ATTEMPT
from web.job.charts import KEPT_OF_WIDTH

bp = APIBlueprint("api_series", __name__, url_prefix="/api/v1", tag="Jobs")

_MAX_POINTS = 2000
_RANK = parameters.whole(
    "rank",
    "For samples of this rank alone, and steps and epochs of it instead of rank 0.",
    low=0,
    high=MAX_WORLD_SIZE,
)
_PARAMETERS = (ATTEMPT, _RANK)


@bp.get("/jobs/<job_id>/series")
@described(bp, answers.Series, parameters=_PARAMETERS, is_cacheable=True)
def get_series(job_id: str) -> ResponseReturnValue:
    """Return samples by rank, and one rank's steps and epochs, of one attempt: the last by default.

    Samples and steps are thinned to 2000 points each, over all ranks together: a sample then
    stands for the mean from its tick to the next one's. Ticks that were lost are missing.
    """
    given = parameters.read(_PARAMETERS)
    number, rank = received.row_id("job", job_id), given[_RANK]
    engine = backend().engine
    with read_session() as session:
        detail = job_detail(session, number)
        chosen = find_attempt(detail, given[ATTEMPT])
        if chosen is None:
            return jsonify(job_id=number, attempt=None, samples=[], steps=[], epochs=[])
        token, rank_count = chosen.attempt.id, len(chosen.ranks)
        is_over = detail.job.state in FINAL_JOB_STATES
        # A day of a wide gang takes seconds to thin, and clients that follow it ask repeatedly.
        series = backend().drawings.for_a_while(
            ("series", token, rank, is_over),
            lambda: _series(session, token, rank=rank, rank_count=rank_count),
            keep_s=lambda made: KEPT_OF_WIDTH * made.width_s,
            renew=partial(_series_again, token, rank=rank, rank_count=rank_count, engine=engine),
        )
    begin = json.dumps({"job_id": number, "attempt": chosen.attempt.number})
    response = current_app.response_class(
        f"{begin[:-1]}, {series.members}}}\n", mimetype="application/json"
    )
    return etags.answer(response) if is_over else response


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedSeries:
    """What does not change with who asks, as it is sent: to write thousands of points takes long.

    `members`: of the answer's object, without its braces. `width_s`: what one sample stands for.
    """

    members: str
    width_s: float


def _series_again(
    token: int, *, rank: int | None, rank_count: int, engine: sa.Engine
) -> _AskedSeries:
    with reading(engine) as session:
        return _series(session, token, rank=rank, rank_count=rank_count)


def _series(session: Session, token: int, *, rank: int | None, rank_count: int) -> _AskedSeries:
    share = _MAX_POINTS if rank is not None else max(1, _MAX_POINTS // max(1, rank_count))
    samples = samples_by_rank(session, token, rank=rank, max_points=share)
    steps = step_series(session, token, rank=rank or 0, max_ranges=_MAX_POINTS)
    series = {
        "samples": [{"rank": r, "samples": to_json(tuple(row))} for r, row in samples.items()],
        "steps": to_json(tuple(step_points(steps, max_points=_MAX_POINTS))),
        "epochs": to_json(tuple(epochs_of(session, token, rank=rank or 0))),
    }
    return _AskedSeries(members=json.dumps(series)[1:-1], width_s=_width_s(samples))


def _width_s(samples: Mapping[int, Sequence[Sample]]) -> float:
    widths = [
        (row[-1].tick - row[0].tick) / (len(row) - 1) for row in samples.values() if len(row) > 1
    ]
    return max(widths, default=0.0)
