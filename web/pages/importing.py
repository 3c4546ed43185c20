"""The pages that import a published study, a table after a preview, or another farm's sweep."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path, PurePath

from flask import Blueprint, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import FileStorage
from werkzeug.wrappers import Response

from farm.errors import InvalidSpec, NotFound
from farm.importers import IMPORTERS
from farm.importers.contracts import read_publication
from farm.importers.table import check_table, read_table
from farm.importing import (
    ImportSource,
    failed_counts,
    import_reading,
    of_publication,
    of_table,
    preview_import,
    untimed,
)
from farm.keys.api_tokens import Scope
from farm.processes.subprocess_call import run_in_subprocess
from farm.store.measurements.imports import Imported
from farm.sweep_bundle.reading import ArchiveImport, import_archive
from farm.text.plurals import counted
from web.access.authorization import takes_up_to
from web.access.scopes import needs
from web.backend import Upload, backend, now, read_session, write_session
from web.exports import one_bundle
from web.pages.data import TableForm, data_page
from web.parameters import read_from

bp = Blueprint("importing", __name__)

MAX_TABLE_BYTES = 5 * 2**20
MAX_BUNDLE_BYTES = 64 * 2**20
# `farm import bundle` takes larger ones. So many samples take a minute.
_MOST_UNPACKED_BYTES = 4 * MAX_BUNDLE_BYTES
_MOST_SAMPLES = 500_000
_REFUSED_SHOWN = 200
_ROWS_SHOWN = 20
_NAME_CHARACTERS = 100


class PreviewedForm(TableForm):
    """The form of a table that was looked at."""

    ticket: str = ""


@bp.post("/data/studies/<name>")
@needs(Scope.SUBMIT)
def post_study(name: str) -> ResponseReturnValue:
    """Import a published study."""
    publication = next((p for p in IMPORTERS if p.name == name), None)
    if publication is None:
        raise NotFound(f"study {name[:80]!r} does not exist")
    read, source = read_publication(publication), of_publication(publication)
    with write_session() as session:
        done = import_reading(session, read, source, now=now())
    return _imported(source, done)


@bp.post("/data/preview")
@needs(Scope.SUBMIT)
@takes_up_to(MAX_TABLE_BYTES)
def post_preview() -> ResponseReturnValue:
    """Read a table and say what importing it would do, or which of its cells cannot be used.

    Nothing is stored. The file is kept for some minutes, for the button that imports it.
    """
    form = read_from(TableForm, request.form)
    try:
        upload = _uploaded()
        source = of_table(upload.name, origin=form.origin)
        checked = check_table(upload.content, ignored=_ignored(form))
        if checked.reading is None:
            page = render_template(
                "refused.html",
                source=source,
                refused=checked.refused[:_REFUSED_SHOWN],
                count=len(checked.refused),
            )
            return page, HTTPStatus.UNPROCESSABLE_ENTITY
        with read_session() as session:
            would = preview_import(session, checked.reading, source, is_replacing=form.is_replacing)
    except InvalidSpec as error:
        return data_page(form, error=str(error)), HTTPStatus.UNPROCESSABLE_ENTITY
    return render_template(
        "preview.html",
        form=form,
        source=source,
        read=checked.reading,
        would=would,
        failed=failed_counts(checked.reading),
        untimed_count=len(untimed(checked.reading)),
        ticket=backend().uploads.keep(upload, now=now()),
        rows_shown=_ROWS_SHOWN,
    )


@bp.post("/data/import")
@needs(Scope.SUBMIT)
def post_import() -> ResponseReturnValue:
    """Import the table that was looked at: all of it, or nothing."""
    form = read_from(PreviewedForm, request.form)
    upload = backend().uploads.find(form.ticket, now=now())
    if upload is None:
        gone = "file: it was not kept any longer, choose it again"
        return data_page(form, error=gone), HTTPStatus.GONE
    try:
        source = of_table(upload.name, origin=form.origin)
        read = read_table(upload.content, ignored=_ignored(form))
        with write_session() as session:
            done = import_reading(session, read, source, now=now(), is_replacing=form.is_replacing)
    except InvalidSpec as error:
        return data_page(form, error=str(error)), HTTPStatus.UNPROCESSABLE_ENTITY
    backend().uploads.forget(form.ticket)
    return _imported(source, done)


@bp.post("/data/bundle")
@needs(Scope.SUBMIT)
@takes_up_to(MAX_BUNDLE_BYTES)
def post_bundle() -> ResponseReturnValue:
    """Import the sweep of another farm, as a ZIP file, if all of it is good."""
    form = read_from(TableForm, request.form)
    try:
        file = _chosen("a ZIP file")
        with one_bundle(), tempfile.TemporaryDirectory(prefix="farm-bundle-") as folder:
            path = Path(folder) / "bundle.zip"
            file.save(path)
            archive = ArchiveImport(
                database_url=backend().engine.url.render_as_string(hide_password=False),
                file=path,
                origin=form.origin or None,
                is_replacing=form.is_replacing,
                most_bytes=_MOST_UNPACKED_BYTES,
                most_samples=_MOST_SAMPLES,
            )
            found = run_in_subprocess(import_archive, archive)
    except InvalidSpec as error:
        page = data_page(TableForm(), bundle=form, bundle_error=str(error))
        return page, HTTPStatus.UNPROCESSABLE_ENTITY
    return _imported(found.source, found.done, sample_count=found.sample_count)


def _ignored(form: TableForm) -> Sequence[str]:
    return [name.strip() for name in form.ignored.split(",") if name.strip()]


def _uploaded() -> Upload:
    """Return the table of the form; of its name no more than can be shown.

    Raises:
        InvalidSpec: none was chosen.
    """
    file = _chosen("a CSV file")
    name = PurePath(file.filename or "").name[:_NAME_CHARACTERS]
    shown = name if name.isprintable() and name else "without a name"
    return Upload(content=file.read(), name=shown)


def _chosen(expected: str) -> FileStorage:
    file = request.files.get("file")
    if file is None or not file.filename:
        raise InvalidSpec("file", None, expected)
    return file


def _imported(source: ImportSource, done: Imported, *, sample_count: int = 0) -> Response:
    removed = f", {done.removed_count} removed" if done.removed_count else ""
    samples = f"; {counted(sample_count, 'sample')} of it" if sample_count else ""
    flash(
        f"{source.origin}: {counted(done.added_count, 'measurement')} added, "
        f"{counted(done.present_count, 'was', 'were')} there "
        f"already{removed}{samples}."
    )
    return redirect(url_for("data.get_origin", name=source.origin), HTTPStatus.SEE_OTHER)
