"""`farm import`: imports a published study, a table of measurements, or another farm's sweep."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from farm.cli.output import json_option, print_json
from farm.cli.session import settings, store
from farm.errors import InvalidSpec
from farm.importers import IMPORTERS
from farm.importers.contracts import Publication, Reading, read_publication
from farm.importers.sheet import MAX_SHEET_BYTES
from farm.importers.table import read_table
from farm.importing import (
    ImportSource,
    failed_counts,
    import_reading,
    import_samples,
    of_publication,
    of_table,
    preview_import,
    untimed,
)
from farm.measuring.imported import ImportedMeasurement
from farm.store.engine import reading, writing
from farm.store.measurements.imports import Imported
from farm.sweep_bundle.archive import bundle_folder
from farm.sweep_bundle.reading import read_bundle
from farm.text.plurals import counted

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportOptions:
    is_replacing: bool
    is_dry_run: bool
    as_json: bool


@click.group("import")
def import_() -> None:
    """Put measurements made elsewhere into the store, as an origin of their own.

    A source is imported as a whole, or not at all. Existing measurements are kept, so importing the
    same source twice changes nothing.
    """


def _options(command: _F) -> _F:
    for option in (
        json_option,
        click.option(
            "--dry-run", is_flag=True, help="Check the source, and print what would be imported."
        ),
        click.option(
            "--replace", is_flag=True, help="Remove measurements that the source no longer has."
        ),
    ):
        command = option(command)
    return command


def _command_of(publication: Publication) -> click.Command:
    @click.command(publication.name, help=f"{publication.what}.\n\n{publication.citation}.")
    @_options
    def command(*, replace: bool, dry_run: bool, as_json: bool) -> None:
        how = _ImportOptions(is_replacing=replace, is_dry_run=dry_run, as_json=as_json)
        _import(read_publication(publication), of_publication(publication), how)

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
    source = of_table(file.name, origin=origin)
    how = _ImportOptions(is_replacing=replace, is_dry_run=dry_run, as_json=as_json)
    _import(read_table(_content(file), ignored=ignore), source, how)


@import_.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--origin", help="Its origin; by default its farm and sweep.")
@_options
def bundle(
    *, folder: Path, origin: str | None, replace: bool, dry_run: bool, as_json: bool
) -> None:
    """Import a sweep of another farm: a FOLDER of `farm export --bundle`, or a ZIP file of one.

    Samples follow the measurements in parts; after an interruption import it again.
    """
    how = _ImportOptions(is_replacing=replace, is_dry_run=dry_run, as_json=as_json)
    with bundle_folder(folder) as opened:
        read = read_bundle(opened, origin=origin)
        _import(read.reading, read.source, how, samples=read.samples())
    if not as_json:
        click.echo(f"{counted(read.sample_count, 'sample')} of it")


def _content(path: Path) -> bytes:
    """Return the file's content, one byte too many of what is too large."""
    try:
        with click.open_file(str(path), "rb") as file:
            content: bytes = file.read(MAX_SHEET_BYTES + 1)
    except OSError as error:
        expected = f"a readable file ({error.strerror or error})"
        raise InvalidSpec("the table", str(path), expected) from None
    return content


def _import(
    read: Reading,
    source: ImportSource,
    how: _ImportOptions,
    *,
    samples: Iterable[Sequence[Mapping[str, Any]]] = (),
) -> None:
    with store(settings()) as engine:
        if how.is_dry_run:
            with reading(engine) as session:
                done = preview_import(session, read, source, is_replacing=how.is_replacing)
        else:
            with writing(engine) as session:
                done = import_reading(
                    session,
                    read,
                    source,
                    now=dt.datetime.now(dt.UTC),
                    is_replacing=how.is_replacing,
                )
            import_samples(engine, source.origin, samples, is_replacing=how.is_replacing)
    if how.as_json:
        print_json(_json(read, source, done, is_dry_run=how.is_dry_run))
    else:
        _print(read, source, done, how)


def _json(
    read: Reading, source: ImportSource, done: Imported, *, is_dry_run: bool
) -> dict[str, object]:
    return {
        "origin": source.origin,
        "source": source.name,
        "citation": source.citation,
        "is_dry_run": is_dry_run,
        "row_count": read.row_count,
        "repeated_count": read.repeated_count,
        "measurement_count": len(read.measurements),
        "added_count": done.added_count,
        "present_count": done.present_count,
        "removed_count": done.removed_count,
        "failed": failed_counts(read),
        "untimed_count": len(untimed(read)),
        "converted": list(read.conversions),
        "flagged": [
            {"row": m.row_number, "kind": flag.kind, "message": flag.message}
            for m in read.measurements
            for flag in m.flags
        ],
        "noted": [
            {"row": m.row_number, "message": note} for m in read.measurements for note in m.notes
        ],
    }


def _print(read: Reading, source: ImportSource, done: Imported, how: _ImportOptions) -> None:
    verb = "would be " if how.is_dry_run else ""
    removed = f", {done.removed_count} {verb}removed" if how.is_replacing else ""
    click.echo(
        f"{source.origin}: {counted(done.added_count, 'measurement')} {verb}added, "
        f"{counted(done.present_count, 'was', 'were')} "
        f"there already{removed}"
    )
    if read.repeated_count:
        count = len(read.measurements)
        click.echo(
            f"{counted(read.row_count, 'row prints', 'rows print')} "
            f"{counted(count, 'measurement')}, some of them twice"
        )
    for conversion in read.conversions:
        click.echo(f"converted: {conversion}")
    for status, count in failed_counts(read).items():
        click.echo(f"{count} failed: {status}")
    if without_step := untimed(read):
        click.echo(
            f"{len(without_step)} have neither step_time_s nor steps_per_epoch: their epochs are "
            "compared as they are, and no step is predicted from them"
        )
    flags = [(m, flag) for m in read.measurements for flag in m.flags]
    _print_remarks("not used:", [(m, f.message) for m, f in flags if not f.is_of_a_disturbance])
    _print_remarks("disturbed:", [(m, f.message) for m, f in flags if f.is_of_a_disturbance])
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
