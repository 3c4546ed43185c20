"""GET /api/v1/events: notifies clients over an open connection when a sweep or job changes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus

from apiflask import APIBlueprint
from flask import Response
from flask.typing import ResponseReturnValue
from pydantic import Field

from farm.errors import InvalidSpec
from farm.store.stamps import check_there
from farm.store.tables import JobRow, SweepRow
from web import parameters
from web.access.limits import viewer
from web.api.schema.openapi import described
from web.backend import backend, read_session
from web.errors import RefusedRequest
from web.live.changes import ChangeKind, Subject, TooManyWatchers, Watcher
from web.parameters import Parameters, RowId

bp = APIBlueprint("api_events", __name__, url_prefix="/api/v1", tag="Events")

EVENT_STREAM = "text/event-stream"
# Or proxies take the connection for dead. Who has left is noticed with the second one.
_HEARTBEAT_S = 5.0
# Then the client connects again, if its token still counts: no thread is held for ever.
_STREAM_S = 120.0
_RETRY_MS = 1000
_RETRY_AFTER_S = 10

_TABLES: Mapping[ChangeKind, type[SweepRow | JobRow]] = {
    ChangeKind.SWEEP: SweepRow,
    ChangeKind.JOB: JobRow,
}


class EventsParameters(Parameters):
    """What is watched."""

    sweep: RowId | None = Field(None, description="Watch this sweep. Either this or `job`.")
    job: RowId | None = Field(None, description="Watch this job. Either this or `sweep`.")


@bp.get("/events")
@described(
    bp,
    None,
    meaning=(
        "Server-sent events named `changed`, each with `kind` and `id` as JSON; a comment every "
        "5 s. The stream ends after 2 minutes: connect again."
    ),
    content_type=EVENT_STREAM,
    query=EventsParameters,
    refusals={
        HTTPStatus.NOT_FOUND: "There is no such sweep or job.",
        HTTPStatus.SERVICE_UNAVAILABLE: "Too many are watching; see `Retry-After`.",
    },
)
def get_events() -> ResponseReturnValue:
    """Stream an event for each change of a sweep or a job (server-sent events).

    Read the sweep or the job again after an event. At most 40 streams are open at once, and 10 of
    one token or of one address.
    """
    subject = _subject(parameters.read(EventsParameters))
    with read_session() as session:
        check_there(session, _TABLES[subject.kind], subject.row_id)
    watching = ExitStack()
    try:
        watcher = watching.enter_context(backend().changes.watching(subject, viewer=viewer()))
    except TooManyWatchers:
        raise RefusedRequest(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "events: as many as possible are watching already; read again now and then instead",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        ) from None
    response = Response(_stream(watcher, subject), content_type=EVENT_STREAM)
    response.call_on_close(watching.close)
    response.headers["X-Accel-Buffering"] = "no"  # a proxy would keep events back
    return response


def _subject(query: EventsParameters) -> Subject:
    sweep_id, job_id = query.sweep, query.job
    if sweep_id is not None and job_id is None:
        return Subject(ChangeKind.SWEEP, sweep_id)
    if job_id is not None and sweep_id is None:
        return Subject(ChangeKind.JOB, job_id)
    raise InvalidSpec("sweep", sweep_id, "either a sweep or a job")


def _stream(watcher: Watcher, subject: Subject) -> Iterator[str]:
    ends_at = time.monotonic() + _STREAM_S
    data = json.dumps({"kind": subject.kind.value, "id": subject.row_id})
    yield f"retry: {_RETRY_MS}\n\n"
    while (rest_s := ends_at - time.monotonic()) > 0:
        if watcher.has_changed(within_s=min(_HEARTBEAT_S, rest_s)):
            yield f"event: changed\ndata: {data}\n\n"
        else:
            yield ": nothing has changed\n\n"
