"""`farm import`: published studies, or a table of anybody's measurements, into the store."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from farm.cli.output import json_option, print_json
from farm.cli.session import settings, store
from farm.core.imported import ImportedMeasurement
from farm.core.measurement import OK
from farm.errors import InvalidSpec
from farm.importers import IMPORTERS
from farm.importers.contracts import Publication, Reading
from farm.importers.published import read_publication
from farm.importers.sheet import MAX_BYTES
from farm.importers.table import read_table
from farm.store.engine import reading, writing
from farm.store.imports import Imported, check_origin, import_measurements, preview, source_of

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What is imported, and how: the name it is kept with, and where to read about it."""

    origin: str
    name: str
    citation: str | None
    is_replacing: bool
    is_dry_run: bool


@click.group("import")
def import_() -> None:
    """Put measurements made elsewhere into the store, as an origin of their own.

    All of a source is imported, or nothing of it. What is there already stays as it is, so the
    same source twice changes nothing.
    """


def _options(command: _F) -> _F:
    for option in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Check it, and say what would be imported."),
        click.option("--replace", is_flag=True, help="Remove what the source no longer has."),
    ):
        command = option(command)
    return command


def _command_of(publication: Publication) -> click.Command:
    @click.command(publication.name, help=f"{publication.what}.\n\n{publication.citation}.")
    @_options
    def command(*, replace: bool, dry_run: bool, as_json: bool) -> None:
        source = _Source(
            origin=publication.name,
            name=publication.name,
            citation=publication.citation,
            is_replacing=replace,
            is_dry_run=dry_run,
        )
        _import(read_publication(publication), source, as_json=as_json)

    return command


for _publication in IMPORTERS:
    import_.add_command(_command_of(_publication))


@import_.command()
@click.argument("file", metavar="FILE.csv", type=click.Path(path_type=Path))
@click.option("--origin", required=True, help="The name that this source gets; never 'farm'.")
@click.option("--ignore", multiple=True, help="A column to leave out; may be repeated.")
@_options
def table(
    *,
    file: Path,
    origin: str,
    ignore: tuple[str, ...],
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the measurement table FILE.csv, such as `farm export` writes; - is standard input.

    Required are world_size, global_batch_size and one of step_time_s and time_per_epoch_s; a
    status other than ok needs no time.
    """
    source = _Source(
        origin=check_origin(origin),
        name=f"table {file.name}",
        citation=None,
        is_replacing=replace,
        is_dry_run=dry_run,
    )
    _import(read_table(_content(file), ignored=ignore), source, as_json=as_json)


def _content(path: Path) -> bytes:
    """Return the file's content, one byte too many of what is too large."""
    try:
        with click.open_file(str(path), "rb") as file:
            content: bytes = file.read(MAX_BYTES + 1)
    except OSError as error:
        expected = f"a readable file ({error.strerror or error})"
        raise InvalidSpec("the table", str(path), expected) from None
    return content


def _import(read: Reading, source: _Source, *, as_json: bool) -> None:
    if source.is_replacing and not read.measurements:
        expected = "at least one row to replace the origin by; `farm origins --remove` removes it"
        raise InvalidSpec("--replace", "a table without rows", expected)
    with store(settings()) as engine:
        if source.is_dry_run:
            with reading(engine) as session:
                _refuse_mixing(session, source)
                done = preview(
                    session,
                    read.measurements,
                    origin=source.origin,
                    is_replacing=source.is_replacing,
                )
        else:
            with writing(engine) as session:
                _refuse_mixing(session, source)
                done = import_measurements(
                    session,
                    read.measurements,
                    origin=source.origin,
                    source=source.name,
                    now=dt.datetime.now(dt.UTC),
                    is_replacing=source.is_replacing,
                )
    if as_json:
        print_json(_json(read, source, done))
    else:
        _print(read, source, done)


def _refuse_mixing(session: Session, source: _Source) -> None:
    """A published study and a table of one's own are two origins, whatever they are called."""
    present = source_of(session, source.origin)
    published = {publication.name for publication in IMPORTERS}
    if present is not None and present != source.name and published & {present, source.name}:
        expected = (
            f"an origin that does not hold {present} already: take another name, or "
            "`farm origins --remove` it"
        )
        raise InvalidSpec("origin", source.origin, expected)


def _failed(read: Reading) -> dict[str, int]:
    return dict(sorted(Counter(m.status for m in read.measurements if m.status != OK).items()))


def _untimed(read: Reading) -> list[ImportedMeasurement]:
    return [m for m in read.measurements if m.status == OK and m.step_time_s is None]


def _json(read: Reading, source: _Source, done: Imported) -> dict[str, object]:
    return {
        "origin": source.origin,
        "source": source.name,
        "citation": source.citation,
        "is_dry_run": source.is_dry_run,
        "row_count": read.row_count,
        "repeated_count": read.repeated_count,
        "measurement_count": len(read.measurements),
        "added_count": done.added_count,
        "present_count": done.present_count,
        "removed_count": done.removed_count,
        "failed": _failed(read),
        "untimed_count": len(_untimed(read)),
        "flagged": [
            {"row": m.row_number, "kind": flag.kind, "message": flag.message}
            for m in read.measurements
            for flag in m.flags
        ],
        "noted": [
            {"row": m.row_number, "message": note} for m in read.measurements for note in m.notes
        ],
    }


def _print(read: Reading, source: _Source, done: Imported) -> None:
    verb = "would be " if source.is_dry_run else ""
    removed = f", {done.removed_count} {verb}removed" if source.is_replacing else ""
    click.echo(
        f"{source.origin}: {done.added_count} measurements {verb}added, {done.present_count} were "
        f"there already{removed}"
    )
    if read.repeated_count:
        count = len(read.measurements)
        click.echo(f"{read.row_count} rows print {count} measurements, some of them twice")
    for status, count in _failed(read).items():
        click.echo(f"{count} failed: {status}")
    if untimed := _untimed(read):
        click.echo(
            f"{len(untimed)} have neither step_time_s nor steps_per_epoch: their epochs are "
            "compared as they are, and no step is predicted from them"
        )
    _print_remarks("not used:", [(m, f.message) for m in read.measurements for f in m.flags])
    _print_remarks("used, and doubtful:", [(m, n) for m in read.measurements for n in m.notes])
    if source.citation:
        click.echo(f"Source: {source.citation}")


def _print_remarks(title: str, remarks: list[tuple[ImportedMeasurement, str]]) -> None:
    """Print each remark once, with the rows that it is about."""
    rows: dict[str, list[int]] = {}
    for measurement, remark in remarks:
        rows.setdefault(remark, []).append(measurement.row_number)
    if rows:
        click.echo(title)
    for remark, numbers in rows.items():
        named = ", ".join(map(str, numbers))
        click.echo(f"  row{'s' if len(numbers) > 1 else ''} {named}: {remark}")
