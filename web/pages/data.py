"""The page "Data": origins, their measurements, and which of these are implausible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from pydantic import Field
from sqlalchemy.orm import Session

from farm.configuration.axes import AXES
from farm.errors import NotFound
from farm.importers import IMPORTERS
from farm.importers.contracts import Publication
from farm.keys.api_tokens import Scope
from farm.measuring.measurement import OWN_ORIGIN
from farm.measuring.quantities import QUANTITIES_BY_NAME
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.implausible import doubts
from farm.store.measurements.imports import OriginSummary, check_origin, origins, remove_origin
from farm.store.measurements.known_axes import hardware_of, known_axes
from farm.store.measurements.measurements import find_measurement, measurements_of
from farm.store.result_tables import MEASUREMENTS, MeasurementRow
from farm.store.series.samples import has_samples
from farm.text.plurals import counted
from web import parameters, request_body
from web.access.scopes import needs
from web.backend import backend, now, read_session, write_session
from web.exports import forms
from web.parameters import Parameters, StrippedText, Ticked

bp = Blueprint("data", __name__)

_MOST_SUSPECTS = 100  # that a page shows
_AXES = {axis.stored for axis in AXES}


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginCard:
    """An origin, and the study it is, if it is a published one."""

    summary: OriginSummary
    publication: Publication | None

    @property
    def is_own(self) -> bool:
        """Whether this farm measured it; that is never removed here."""
        return self.summary.origin == OWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A measurement that is hard to believe. It counts less, and stays."""

    row: MeasurementRow
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """`is_preliminary`: models are being fitted, ask again. `lacking`: why some say nothing."""

    found: Sequence[Suspect]
    is_preliminary: bool
    lacking: Sequence[str]
    left_out_count: int


class TableForm(Parameters):
    """The form of a table of one's own, or of a bundle."""

    origin: StrippedText = ""
    ignored: StrippedText = ""
    is_replacing: Ticked = Field(default=False, alias="replace")


class OriginNameParameters(Parameters):
    """Which origin."""

    name: str = ""


class OriginParameters(OriginNameParameters):
    """Which origin, and whether what is hard to believe is looked for."""

    suspicious: Ticked = False


@bp.get("/data")
def get_data() -> ResponseReturnValue:
    """List the origins, the studies that can be imported, and the form for a table."""
    parameters.query()
    return data_page(TableForm())


@bp.get("/data/origin")
def get_origin() -> ResponseReturnValue:
    """Show one origin. Query: `name`; `suspicious=yes` looks for what is hard to believe.

    Imported origins are searched without being asked. The farm's own is searched on request alone:
    the search fits a model, and may take time from measurements on the same machine.
    """
    query = parameters.read(OriginParameters)
    name, is_asked = query.name, query.suspicious
    with read_session() as session:
        card = _card(session, name)
        axes = known_axes(session, name)
        hardware = hardware_of(session, name)
        sample_forms = forms() if has_samples(session, name) else ()
        is_looked_for = is_asked or not card.is_own
        found = _suspects(session, name, backend().recommender_cache) if is_looked_for else None
    return render_template(
        "origin.html",
        card=card,
        axes=axes,
        hardware=hardware,
        suspects=found,
        sample_forms=sample_forms,
    )


@bp.get("/data/measurements/<measurement_id>")
def get_measurement(measurement_id: str) -> ResponseReturnValue:
    """Show one measurement, what its source printed, and what disturbed it."""
    parameters.query()
    with read_session() as session:
        row = find_measurement(session, request_body.row_id("measurement", measurement_id))
    return render_template("measurement.html", row=row, values=_values(row))


@bp.get("/data/remove")
def get_remove() -> ResponseReturnValue:
    """Ask whether an imported origin shall go. Query: `name`."""
    name = parameters.read(OriginNameParameters).name
    check_origin(name)
    with read_session() as session:
        card = _card(session, name)
    return render_template("remove.html", card=card)


@bp.post("/data/remove")
@needs(Scope.ADMIN)
def post_remove() -> ResponseReturnValue:
    """Remove all measurements of an imported origin."""
    name = parameters.read_from(OriginNameParameters, request.form).name
    with write_session() as session:
        count = remove_origin(session, name)
    flash(f"{name.strip()}: {counted(count, 'measurement')} removed.")
    return redirect(url_for(".get_data"), HTTPStatus.SEE_OTHER)


def data_page(
    form: TableForm,
    *,
    error: str | None = None,
    bundle: TableForm | None = None,
    bundle_error: str | None = None,
) -> str:
    """Render the list of origins, with the forms as they were sent, and what was wrong."""
    with read_session() as session:
        summaries = origins(session)
    present = {summary.origin for summary in summaries}
    return render_template(
        "data.html",
        cards=[_with_publication(summary) for summary in summaries],
        missing=[p for p in IMPORTERS if p.name not in present],
        form=form,
        error=error,
        bundle=bundle or TableForm(),
        bundle_error=bundle_error,
        now=now(),
    )


def _suspects(session: Session, origin: str, cache: RecommenderCache) -> Suspects:
    """Return what the models of an origin doubt. Never waits for a fit."""
    found = doubts(session, origin=origin, cache=cache, may_wait=False)
    messages: dict[int, list[str]] = {}
    for doubt in found.doubts:
        messages.setdefault(doubt.measurement_id, []).append(doubt.message)
    rows = measurements_of(session, sorted(messages)[:_MOST_SUSPECTS])
    return Suspects(
        found=[Suspect(row=row, messages=tuple(messages[row.id])) for row in rows],
        is_preliminary=found.is_preliminary,
        lacking=found.lacking,
        left_out_count=max(0, len(messages) - _MOST_SUSPECTS),
    )


def _card(session: Session, name: str) -> OriginCard:
    for summary in origins(session):
        if summary.origin == name:
            return _with_publication(summary)
    raise NotFound(f"origin {name[:80]!r}: nothing of it is in this store")


def _with_publication(summary: OriginSummary) -> OriginCard:
    published = {publication.name: publication for publication in IMPORTERS}
    return OriginCard(summary=summary, publication=published.get(summary.source or ""))


def _values(row: MeasurementRow) -> Sequence[tuple[str, object]]:
    """Return what is known of a measurement by its column, long ones left to parts of their own.

    The axes first, then the quantities, and last those of both that have no column.
    """
    names = sorted(
        MEASUREMENTS.keys(), key=lambda name: (name not in _AXES, name not in QUANTITIES_BY_NAME)
    )
    apart = {"id", "origin", "job_id", "flags", "details", "created_at"}
    known = [(name, getattr(row, name)) for name in names if name not in apart]
    known += (row.details.get("axes") or {}).items()
    known += (row.details.get("quantities") or {}).items()
    return [(name, value) for name, value in known if value is not None]
