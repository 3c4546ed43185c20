"""GET /api/v1/jobs/{id}/series and /samples: an attempt second by second, thinned or as stored."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import sqlalchemy as sa
from apiflask import APIBlueprint
from flask import Response, current_app, json, jsonify, request
from flask.typing import ResponseReturnValue
from pydantic import Field, PlainValidator, WithJsonSchema
from sqlalchemy.orm import Session

from farm.charts.job.steps import step_points
from farm.errors import NotFound
from farm.gang.lifecycle import FINAL_JOB_STATES
from farm.messages.reports import Sample
from farm.store.engine import reading
from farm.store.series.samples import (
    SAMPLE_COLUMNS,
    WHOLE_COLUMNS,
    SamplePage,
    SamplePosition,
    sample_page,
)
from farm.store.series.series import epochs_of, samples_by_rank
from farm.store.series.step_ranges import step_series
from farm.store.sweeps.jobs import job_detail
from farm.store.tables import AttemptRow
from farm.values.codec import to_json
from web import etags, parameters, request_body
from web.api.schema import answers
from web.api.schema.openapi import described
from web.backend import backend, read_session
from web.job.charts import KEPT_OF_WIDTH
from web.parameters import WHOLE, AttemptParameters, RankNumber

if TYPE_CHECKING:
    import pyarrow

bp = APIBlueprint("api_series", __name__, url_prefix="/api/v1", tag="Jobs")

_MAX_POINTS = 2000
ARROW_STREAM = "application/vnd.apache.arrow.stream"
# Some 20 MB, and half a second of work.
_MOST_ROWS = 100_000
_POSITION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_POSITION_SCHEMA = WithJsonSchema({"type": "string", "pattern": f"^{_POSITION.pattern}$"})


def _read_position(text: str) -> SamplePosition:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise ValueError("the value in the link to the next page")
    return SamplePosition(int(found[1]), int(found[2]))


class SeriesParameters(AttemptParameters):
    """Of whom the series are."""

    rank: RankNumber | None = Field(
        None,
        description="For samples of this rank alone, and steps and epochs of it instead of rank 0.",
    )


class SamplesParameters(AttemptParameters):
    """Which page of the samples."""

    rank: RankNumber | None = Field(None, description="Of this rank alone.")
    limit: Annotated[int, Field(ge=1, le=_MOST_ROWS), WHOLE] = Field(
        _MOST_ROWS, description="The most rows of a page."
    )
    after: Annotated[SamplePosition, PlainValidator(_read_position), _POSITION_SCHEMA] | None = (
        Field(
            None,
            description="Where the page begins: as the link to the next page has it.",
        )
    )


@bp.get("/jobs/<job_id>/series")
@described(bp, answers.Series, query=SeriesParameters, is_cacheable=True)
def get_series(job_id: str) -> ResponseReturnValue:
    """Return samples by rank, and one rank's steps and epochs, of one attempt: the last by default.

    Samples and steps are thinned to 2000 points each, over all ranks together: a sample then
    stands for the mean from its tick to the next one's. Ticks that were lost are missing. Several
    ranks of one agent are one here, numbered by their agent's place in the gang: samples are of all
    of them, steps and epochs of the first.
    """
    query = parameters.read(SeriesParameters)
    number, rank = request_body.row_id("job", job_id), query.rank
    engine = backend().engine
    with read_session() as session:
        detail = job_detail(session, number)
        chosen = detail.find_attempt(query.attempt)
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
    """The cached part of an answer, as JSON text, since writing thousands of points takes long.

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


@bp.get("/jobs/<job_id>/samples")
@described(
    bp,
    None,
    meaning="An Arrow IPC stream. The header `Link` leads to the next page, if there is one.",
    content_type=ARROW_STREAM,
    query=SamplesParameters,
    refusals={HTTPStatus.NOT_FOUND: "There is no such job, or no such attempt of it."},
)
def get_samples(job_id: str) -> ResponseReturnValue:
    """Return every stored sample of one attempt, by rank and second: the last attempt by default.

    A page has at most 100,000 rows. `span_ticks` is above 1 if `farm db prune` has replaced that
    many seconds by their means. `extra` is the text of a JSON object of further metrics.
    """
    query = parameters.read(SamplesParameters)
    number = request_body.row_id("job", job_id)
    with read_session() as session:
        chosen = job_detail(session, number).find_attempt(query.attempt)
        attempt = None if chosen is None else session.get(AttemptRow, chosen.attempt.id)
        if attempt is None:
            raise NotFound(f"job {number}: it has no such attempt yet")
        page = sample_page(
            session,
            attempt,
            most=query.limit,
            rank=query.rank,
            after=query.after,
        )
    response = Response(_arrow_stream(page), content_type=ARROW_STREAM)
    if page.last is not None:
        # With the attempt's number: another may begin before the next page is asked for.
        behind = {"attempt": attempt.number, "after": f"{page.last.rank}.{page.last.tick}"}
        following = urlencode({**request.args.to_dict(), **behind})
        response.headers["Link"] = f'<{request.path}?{following}>; rel="next"'
    return response


def _arrow_stream(page: SamplePage) -> bytes:
    import pyarrow

    schema = _schema()
    arrays = [
        pyarrow.array(values, type=field.type)
        for field, values in zip(schema, page.columns, strict=True)
    ]
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


@functools.cache
def _schema() -> pyarrow.Schema:
    import pyarrow

    def kind(name: str) -> pyarrow.DataType:
        if name == "extra":
            return pyarrow.string()
        return pyarrow.int64() if name in WHOLE_COLUMNS else pyarrow.float64()

    return pyarrow.schema([(name, kind(name)) for name in SAMPLE_COLUMNS])
