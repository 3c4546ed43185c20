"""The page for a new sweep: a form or a file, a preview, then the queue.

A preview has an address of its own and is kept there for a while. The page can therefore be
reloaded while the expected duration is computed, and going back does not send the form again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import sqlalchemy as sa
from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from pydantic import AfterValidator

from farm.configuration.bundle import MAX_SCRIPT_BUNDLE_BYTES
from farm.configuration.model_files import files_of
from farm.configuration.scripts import CASE_KEYS, PREFIX, PYTHON_CAPABILITY
from farm.configuration.spec import EMULATOR_NAMES, NETWORK_CAPABILITY
from farm.errors import FarmError, InvalidSpec
from farm.gang.snapshots import LiveAgent
from farm.keys.api_tokens import Scope
from farm.notifications.addresses import check_reachable
from farm.recommend.cache.fits import PREPARING
from farm.recommend.cache.knowledge import RecommenderCache
from farm.recommend.prices import Prices
from farm.recommend.sweeps.expectation import Expectation, expected
from farm.registry import catalogue
from farm.store.engine import reading
from farm.store.measurements.imports import origin_names
from farm.store.sweeps.bundles import add_bundle, find_bundle
from farm.store.sweeps.sweeps import find_sweep, sweep_summary
from farm.submission import SubmissionPlan, SubmittedSweep, plan, submit, within_memory
from farm.text.display import byte_count
from farm.text.toml_text import document_text
from web import parameters, request_body
from web.access.authorization import MAX_BODY_BYTES, takes_up_to
from web.access.local_user import check_may_send_scripts
from web.access.scopes import costly, needs
from web.backend import backend, live_agents_now, now, read_session, wake_after, write_session
from web.errors import RefusedRequest, status_of
from web.new_sweep import form as sweep_form
from web.new_sweep import script_fields
from web.new_sweep.drafts import Draft, form_key
from web.new_sweep.form import Fields
from web.new_sweep.preview import summarise, unserved, widest_gang
from web.parameters import Parameters

bp = Blueprint("new_sweep", __name__)

_MOST_PREDICTED = 20_000  # jobs: a second's work
_MOST_SUGGESTED = 100  # labels, names of networks and the like
EXAMPLE_SWEEP = """\
name = "one machine or two?"
repetitions = 2

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "single"
world_size = 1
global_batch_size = [64, 256]

[[case]]
model = "small_cnn"
dataset = "digits"
strategy = "mwms_ring"
world_size = 2
global_batch_size = [64, 256]
"""

# Every form that posts here has one; see `web.new_sweep.drafts.Sent`.
bp.add_app_template_global(form_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownForms:
    """What stands in both forms, and what was wrong with which. `fields` None: as at first.

    `field`: the one at fault, None: no single one.
    """

    fields: Fields | None = None
    text: str = EXAMPLE_SWEEP
    field: str | None = None
    form_error: str | None = None
    file_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a draft is expected to take; `found` None goes with why, or is being worked out."""

    found: Expectation | None = None
    unknown_because: str | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether asking again will tell."""
        return self.found is None and self.unknown_because is None


class _Preparing(FarmError):
    """Predictions are being fitted: ask again."""


class NewSweepParameters(Parameters):
    """What the form begins with: a draft, or a sweep."""

    draft: str | None = None
    like: str | None = None


class DraftParameters(Parameters):
    """Which draft."""

    draft: str = ""


class FileForm(Parameters):
    """The text of a sweep file, and the key of its form."""

    # Browsers send a line's end as two characters, whatever the text was before.
    sweep: Annotated[str, AfterValidator(lambda text: text.replace("\r\n", "\n"))] | None = None
    key: str = ""


@bp.get("/sweeps/new")
def get_new_sweep() -> ResponseReturnValue:
    """Show the form. Query: `draft`, one to change; `like`, the id of a sweep to begin with."""
    query = parameters.read(NewSweepParameters)
    if query.draft is not None:
        draft = _draft(query.draft)
        fields = draft.fields or sweep_form.fields_of(request_body.parse_toml(draft.text))
        return _page(ShownForms(fields=fields, text=draft.text))
    if query.like is not None:
        number = request_body.row_id("sweep", query.like)
        with read_session() as session:
            sweep_summary(session, number)  # an id, and not another sweep's name
            spec = find_sweep(session, str(number)).spec
        return _page(ShownForms(fields=sweep_form.fields_of(spec), text=document_text(spec)))
    return _page(ShownForms())


@bp.post("/sweeps/preview")
@takes_up_to(MAX_SCRIPT_BUNDLE_BYTES + MAX_BODY_BYTES)
@needs(Scope.SUBMIT)
@costly
def post_preview() -> ResponseReturnValue:
    """Check the form, or the file if that was sent, and lead to what would become of it."""
    sent = parameters.read_from(FileForm, request.form).sweep
    is_file = sent is not None or "file" in request.files
    fields, text = None if is_file else sweep_form.read_fields(request.form), sent or ""
    try:
        if fields is not None:
            fields = _with_files(fields)
            fields = _with_script(fields)
        text = (_uploaded() or text) if fields is None else _text_of(fields)
        planned = _accepted(text)
    except (InvalidSpec, RefusedRequest) as error:
        shown = _refused_file(text, error) if fields is None else _refused_form(fields, error)
        return _page(shown), status_of(error)
    draft = Draft(text=text, fields=fields, summary=summarise(planned))
    ticket = backend().drafts.keep(draft, now=now())
    return redirect(url_for(".get_preview", draft=ticket), HTTPStatus.SEE_OTHER)


@bp.get("/sweeps/preview")
@needs(Scope.SUBMIT)
def get_preview() -> ResponseReturnValue:
    """Show what a sweep would become. Query: `draft`, as `POST /sweeps/preview` has led to it."""
    ticket = parameters.read(DraftParameters).draft
    draft = _draft(ticket)
    with read_session() as session:
        agents = live_agents_now(session)
    return render_template(
        "sweep_preview.html",
        ticket=ticket,
        draft=draft,
        summary=draft.summary,
        unserved=unserved(draft.summary, agents),
        agent_count=widest_gang(agents),
        expected=_expected(ticket, draft),
        prices=backend().prices.by_type,
    )


@bp.get("/sweeps/preview/sweep.toml")
@needs(Scope.SUBMIT)
def get_file() -> ResponseReturnValue:
    """Hand out a draft's sweep file. Query: `draft`."""
    draft = _draft(parameters.read(DraftParameters).draft)
    response = Response(draft.text, content_type="application/toml; charset=utf-8")
    response.headers["Content-Disposition"] = 'attachment; filename="sweep.toml"'
    return response


@bp.post("/sweeps")
@needs(Scope.SUBMIT)
def post_sweep() -> ResponseReturnValue:
    """Enqueue a sweep file: the uploaded one if there is one, else the text. Each form once."""
    form = parameters.read_from(FileForm, request.form)
    text = form.sweep or ""
    try:
        text = _uploaded() or text
        submitted, was_sent = backend().sent.once(form.key, text, enqueue=lambda: _enqueue(text))
    except (InvalidSpec, RefusedRequest) as error:
        return _page(_refused_file(text, error)), status_of(error)
    if was_sent:
        flash("This sweep is in the queue already: the form was sent twice.")
    else:
        flash(_confirmation(submitted))
    to = redirect(url_for("sweep.get_sweep", sweep_id=submitted.sweep_id), HTTPStatus.SEE_OTHER)
    return to if was_sent else wake_after(to)


def _enqueue(text: str) -> SubmittedSweep:
    planned = _accepted(text)
    with write_session() as session:
        return submit(session, planned, now=now())


def _confirmation(submitted: SubmittedSweep) -> str:
    jobs = "1 job is" if submitted.job_count == 1 else f"{submitted.job_count} jobs are"
    left_out = f"; {len(submitted.skipped)} impossible left out" if submitted.skipped else ""
    signed = [
        f" Messages to {one.address} are signed with {one.secret}" for one in submitted.notify
    ]
    return f"{jobs} in the queue{left_out}.{'.'.join(signed)}"


def _planned(text: str) -> SubmissionPlan:
    return plan(request_body.parse_toml(text))


def _accepted(text: str) -> SubmissionPlan:
    """Plan a sweep file that can be enqueued here and now."""
    planned = _planned(text)
    with read_session() as session:
        planned = within_memory(planned, live_agents_now(session))
    check_reachable(planned.sweep.notify, backend().settings.notify_allow)
    return planned


def _text_of(fields: Fields) -> str:
    return document_text(sweep_form.sweep_of(fields))


def _uploaded() -> str | None:
    upload = request.files.get("file")
    if upload is None or not upload.filename:
        return None
    content: bytes = upload.read(MAX_BODY_BYTES + 1)
    if len(content) > MAX_BODY_BYTES:
        raise InvalidSpec("file", upload.filename, f"at most {byte_count(MAX_BODY_BYTES)}")
    try:
        # Editors of another system begin a file with a mark that TOML does not know.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise InvalidSpec("file", upload.filename, "a TOML file, which is UTF-8 text") from None


def _with_files(fields: Fields) -> Fields:
    """Return the fields with the script's files that came with them, which are in the store then.

    So the form need not send them again where another of its fields is refused.

    Raises:
        InvalidSpec: they are not what a bundle can be.
        RefusedRequest: the farm takes none from this user.
    """
    upload = request.files.get(script_fields.FILES)
    if upload is None or not upload.filename:
        return fields
    check_may_send_scripts()
    bundle = script_fields.bundle_of_upload(upload.filename, upload.read())
    with write_session() as session:
        add_bundle(session, bundle, now=now())
    is_one_file = not upload.filename.lower().endswith(".zip")
    script = (*bundle.files,) if is_one_file else fields.chosen("script")
    own = {"script": script, "bundle_sha256": (bundle.sha256,), "script_sha256": ()}
    return Fields({name: texts for name, texts in {**fields.values, **own}.items() if texts})


def _with_script(fields: Fields) -> Fields:
    """Return the fields with the script's path in its bundle, if they name one.

    Raises:
        InvalidSpec: the store has no such bundle, or the bundle no such script.
    """
    sha256 = fields.text("bundle_sha256")
    if not sha256:
        return fields
    with read_session() as session:
        bundle = find_bundle(session, sha256)
    if bundle is None:
        expected = "a bundle that the server has: choose the script's files again"
        raise InvalidSpec("bundle_sha256", sha256, expected)
    script = script_fields.script_in(bundle, fields.text("script"))
    return Fields({**fields.values, "script": (script,)})


def _draft(ticket: str) -> Draft:
    draft = backend().drafts.find(ticket, now=now())
    if draft is None:
        gone = "draft: this preview was not kept any longer; fill in the form of a new sweep again"
        raise RefusedRequest(HTTPStatus.GONE, gone)
    return draft


def _refused_form(fields: Fields, error: InvalidSpec | RefusedRequest) -> ShownForms:
    if isinstance(error, RefusedRequest):
        return ShownForms(fields=fields, form_error=str(error))
    field, error = sweep_form.refused_field(error)
    return ShownForms(fields=fields, field=field, form_error=str(error))


def _refused_file(text: str, error: InvalidSpec | RefusedRequest) -> ShownForms:
    return ShownForms(text=text, file_error=str(error))


def _expected(ticket: str, draft: Draft) -> Expected:
    """Return what the farm's measurements let expect, as far as that is worked out."""
    if draft.summary.job_count > _MOST_PREDICTED:
        why = f"it has more than {_MOST_PREDICTED:,} jobs to begin with".replace(",", "\u202f")
        return Expected(unknown_because=why)
    behind = backend()
    engine, cache, prices = behind.engine, behind.recommender_cache, behind.prices
    try:
        made = behind.expectations.ask(
            ticket, lambda: _predict_sweep(engine, draft.text, cache, prices)
        )
    except _Preparing:
        return Expected()
    except FarmError as error:
        return Expected(unknown_because=str(error))
    return Expected(found=None if made is None else made.value)


def _predict_sweep(
    engine: sa.Engine, text: str, cache: RecommenderCache, prices: Prices
) -> Expectation:
    """Predict every job of a sweep file, outside of a request, which may wait for a first fit.

    Raises:
        _Preparing: that takes still longer.
    """
    jobs = _planned(text).expansion.jobs
    with reading(engine) as session:
        found = expected(session, jobs, prices=prices, cache=cache)
    if PREPARING in found.unknown:
        raise _Preparing(PREPARING)
    return found


def _names(agents: Iterable[LiveAgent], prefix: str) -> list[str]:
    """Return some of the names that agents have in capabilities that begin so."""
    capabilities = {one for agent in agents for one in agent.capabilities}
    named = (one.removeprefix(prefix) for one in capabilities if one.startswith(prefix))
    return sorted(named)[:_MOST_SUGGESTED]


def _page(shown: ShownForms) -> str:
    known = catalogue()
    with read_session() as session:
        agents = live_agents_now(session)
        measured = origin_names(session)
    agent_count = widest_gang(agents)
    fields = shown.fields or sweep_form.first_fields(known, agent_count=agent_count)
    labels = sorted({f"{name}={value}" for agent in agents for name, value in agent.labels})
    return render_template(
        "new_sweep.html",
        shown=shown,
        fields=fields,
        known=known,
        uses_servers=any(facts.uses_servers for facts in known.strategies.values()),
        emulators=EMULATOR_NAMES,
        further=sweep_form.FURTHER,
        script_keys=CASE_KEYS,
        script_names={
            "script": _names(agents, PREFIX),
            "python": _names(agents, PYTHON_CAPABILITY),
        },
        ticked=sweep_form.TICKED,
        networks=_names(agents, NETWORK_CAPABILITY),
        model_files=sorted(set().union(*(files_of(agent.capabilities) for agent in agents))),
        labels=labels[:_MOST_SUGGESTED],
        agent_count=agent_count,
        beyond=sweep_form.beyond(
            fields.text("world_size"), fields.text("ranks_per_agent"), agent_count
        ),
        origins=measured,
    )
