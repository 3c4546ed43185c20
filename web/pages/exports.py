"""Downloads of a sweep: measurements as a file, charts as images."""

from __future__ import annotations

from functools import partial

from flask import Blueprint, Response, request
from flask.typing import ResponseReturnValue

from farm.cells.choice import query_names, read_choice
from farm.charts.chart import Bars, Figure
from farm.charts.heat_map import HeatMap
from farm.errors import NotFound
from farm.exporting import Form, write_export, write_origin_samples
from farm.store.measurements.imports import check_origin
from farm.store.series.samples import has_samples
from farm.store.sweeps.sweeps import find_sweep, sweep_summary
from web import parameters, request_body
from web.access.scopes import costly
from web.backend import backend, read_session, sweep_reading
from web.drawing.downloads import can_draw, picture_file
from web.exports import chart_of, exported_file, file_answer, file_name
from web.pages.data import OriginNameParameters

bp = Blueprint("exports", __name__)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
_FORMS = {form.value: form for form in Form}


@bp.get("/sweeps/<sweep_id>/export.<form>")
@costly
def get_export(sweep_id: str, form: str) -> ResponseReturnValue:
    """Return the measurements of a sweep, one row each: as csv, json or parquet."""
    parameters.query()
    number, kind = request_body.row_id("sweep", sweep_id), _form_of(form)
    with read_session() as session:
        sweep_summary(session, number)
        name = find_sweep(session, str(number)).name
        file = exported_file(partial(write_export, session, number, kind))
    named = f"{file_name(number, name)}.{kind.value}"
    return file_answer(file, media_type=kind.media_type, name=named)


@bp.get("/data/samples.<form>")
@costly
def get_samples(form: str) -> ResponseReturnValue:
    """Return the samples of an imported origin, one row each: as csv, json or parquet.

    Query: `name`.
    """
    origin, kind = parameters.read(OriginNameParameters).name, _form_of(form)
    check_origin(origin)
    with read_session() as session:
        if not has_samples(session, origin):
            raise NotFound(f"origin {origin[:80]!r}: there are no samples of it")
        file = exported_file(partial(write_origin_samples, session, origin, kind))
    return file_answer(file, media_type=kind.media_type, name=f"samples.{kind.value}")


@bp.get("/sweeps/<sweep_id>/charts/<name>.svg")
@costly
def get_chart(sweep_id: str, name: str) -> ResponseReturnValue:
    """Return a chart as a drawing that scales. Query: as the sweep's page takes it."""
    response = _picture(sweep_id, name, form="svg", media_type="image/svg+xml; charset=utf-8")
    # Opened in a browser it is a page of this server, and takes its own styles alone.
    response.headers["Content-Security-Policy"] = _POLICY
    return response


@bp.get("/sweeps/<sweep_id>/charts/<name>.png")
@costly
def get_picture(sweep_id: str, name: str) -> ResponseReturnValue:
    """Return a chart as a picture for paper. Query: as the sweep's page takes it."""
    return _picture(sweep_id, name, form="png", media_type="image/png")


def _form_of(name: str) -> Form:
    """Raises NotFound: there is no such kind of file."""
    kind = _FORMS.get(name)
    if kind is None:
        raise NotFound(f"export {name[:40]!r} does not exist, only {', '.join(_FORMS)}")
    return kind


def _picture(sweep_id: str, name: str, *, form: str, media_type: str) -> Response:
    """Return a chart as a file. It takes a second or two, once for each state of the sweep."""
    if not can_draw():
        raise NotFound("pictures need matplotlib: pip install 'benchfarm[plot]'")
    chart, title, token = _chart(sweep_id, name)
    key = (sweep_id, name, form, *sorted(request.args.items()))
    content, _ = backend().papers.get(
        key,
        lambda _: (picture_file(chart, form), token),
        is_good=lambda made: made.value[1] is token,
    )
    response = Response(content, content_type=media_type)
    response.headers["Content-Disposition"] = f'inline; filename="{title}-{name}.{form}"'
    return response


def _chart(sweep_id: str, name: str) -> tuple[Figure | Bars | HeatMap, str, object]:
    """Return a chart, the name of its sweep as files have it, and what tells the cells apart.

    Raises:
        NotFound: there is no such sweep, or no such chart of it.
    """
    args = parameters.query(*query_names(request.args))
    number = request_body.row_id("sweep", sweep_id)
    with read_session() as session:
        sweep_summary(session, number)
        sweep_name = find_sweep(session, str(number)).name
        table = sweep_reading(session, number).table
    chart = chart_of(table, read_choice(args, table), name)
    if chart is None:
        raise NotFound(f"chart {name[:40]!r}: this sweep has none, or nothing to draw in it yet")
    return chart, file_name(number, sweep_name), table.token
