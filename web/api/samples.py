"""GET /api/v1/jobs/{id}/samples: every stored sample of one attempt, as an Arrow stream."""

from __future__ import annotations

import functools
import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from apiflask import APIBlueprint
from flask import Response, request
from flask.typing import ResponseReturnValue

from farm.configuration.spec import MAX_WORLD_SIZE
from farm.errors import InvalidSpec, NotFound
from farm.store.series.sample_pages import COLUMNS, SamplePage, SamplePosition, sample_page
from farm.store.series.sample_rows import WHOLE
from farm.store.sweeps.job_parts import find_attempt
from farm.store.sweeps.jobs import job_detail
from farm.store.tables import AttemptRow
from web import parameters, received
from web.api.schema.description import described
from web.backend import read_session
from web.job.attempts import ATTEMPT
from web.parameters import Args, Parameter

if TYPE_CHECKING:
    import pyarrow

bp = APIBlueprint("api_samples", __name__, url_prefix="/api/v1", tag="Jobs")

ARROW_STREAM = "application/vnd.apache.arrow.stream"
# Some 20 MB, and half a second of work.
_MOST_ROWS = 100_000
_WHOLE = {*WHOLE, "rank", "tick", "span_ticks"}
_POSITION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)


def _read_position(args: Args) -> SamplePosition | None:
    text = received.short_text(args, "after")
    if text is None:
        return None
    found = _POSITION.fullmatch(text)
    if found is None:
        raise InvalidSpec("after", text, "what the link to the next page has")
    return SamplePosition(int(found[1]), int(found[2]))


_RANK = parameters.whole("rank", "Of this rank alone.", low=0, high=MAX_WORLD_SIZE)
_ROWS = parameters.whole("limit", "The most rows of a page.", high=_MOST_ROWS)
_AFTER = Parameter(
    "after",
    "Where the page begins: as the link to the next page of the page before it has it.",
    {"type": "string", "pattern": f"^{_POSITION.pattern}$"},
    _read_position,
)
_PARAMETERS = (ATTEMPT, _RANK, _ROWS, _AFTER)


@bp.get("/jobs/<job_id>/samples")
@described(
    bp,
    None,
    meaning="An Arrow IPC stream. The header `Link` leads to the next page, if there is one.",
    content_type=ARROW_STREAM,
    parameters=_PARAMETERS,
    refusals={HTTPStatus.NOT_FOUND: "There is no such job, or no such attempt of it."},
)
def get_samples(job_id: str) -> ResponseReturnValue:
    """Return every stored sample of one attempt, by rank and second: the last attempt by default.

    A page has at most 100,000 rows. `span_ticks` is above 1 where `farm db prune` has put the means
    of so many seconds into one row. `extra` is the text of a JSON object of further metrics.
    """
    given = parameters.read(_PARAMETERS)
    number = received.row_id("job", job_id)
    with read_session() as session:
        chosen = find_attempt(job_detail(session, number), given[ATTEMPT])
        attempt = None if chosen is None else session.get(AttemptRow, chosen.attempt.id)
        if attempt is None:
            raise NotFound(f"job {number}: it has no such attempt yet")
        page = sample_page(
            session,
            attempt,
            most=given[_ROWS] or _MOST_ROWS,
            rank=given[_RANK],
            after=given[_AFTER],
        )
    response = Response(_arrow_stream(page), content_type=ARROW_STREAM)
    if page.last is not None:
        after = {"after": f"{page.last.rank}.{page.last.tick}"}
        query = urlencode({**request.args.to_dict(), **after})
        response.headers["Link"] = f'<{request.path}?{query}>; rel="next"'
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
        return pyarrow.int64() if name in _WHOLE else pyarrow.float64()

    return pyarrow.schema([(name, kind(name)) for name in COLUMNS])
