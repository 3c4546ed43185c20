"""`farm export`: a sweep as files, or as runs of an experiment tracker."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import click
from sqlalchemy.orm import Session

from farm.cli.output import row_bar
from farm.cli.session import settings, store
from farm.exporting import Form, write_export, write_origin, write_origin_samples, write_samples
from farm.processes.standard_output import print_data
from farm.processes.whole_file import open_whole
from farm.store.engine import reading
from farm.store.sweeps.sweeps import find_sweep
from farm.text.plurals import counted
from farm.trackers import TRACKERS
from farm.trackers.contracts import Tracker
from farm.trackers.sending import send_sweep

_BY_NAME = {tracker.name: tracker for tracker in TRACKERS}


@click.command()
@click.argument("sweep", required=False)
@click.option("--origin", help="An imported origin, instead of a sweep.")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    help="Of the file.  [default: csv]",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Output file; standard output by default."
)
@click.option("--samples", is_flag=True, help="Write all samples instead; needs --out.")
@click.option("--bundle", is_flag=True, help="All data of the sweep, as the new folder --out.")
@click.option("--to", type=click.Choice(list(_BY_NAME)), help="Send to this tracker instead.")
@click.option("--uri", envvar="MLFLOW_TRACKING_URI", help="Address of MLflow.", show_envvar=True)
def export(
    sweep: str | None,
    *,
    origin: str | None,
    form: str | None,
    out: Path | None,
    samples: bool,
    bundle: bool,
    to: str | None,
    uri: str | None,
) -> None:
    """Write the measurements of a SWEEP (its id or name), one row for each finished job.

    The file is written atomically. --to sends each job with its steps, epochs and samples to a
    tracker, except jobs that were sent already. --out is then the tracker's folder.
    """
    if origin is not None:
        if sweep is not None or bundle or to is not None:
            raise click.UsageError(
                "--origin is instead of a SWEEP, and has neither --bundle nor --to"
            )
        write_all = write_origin_samples if samples else write_origin
        _write(partial(write_all, origin=origin), Form(form or Form.CSV), out, samples=samples)
    elif sweep is None:
        raise click.UsageError("name a SWEEP, or an --origin")
    elif to is not None:
        if form is not None or samples or bundle:
            raise click.UsageError(
                "--to sends everything: leave out --format, --samples and --bundle"
            )
        _send(sweep, _BY_NAME[to], out=out, uri=uri)
    elif bundle:
        if form is not None or samples:
            raise click.UsageError("--bundle contains everything: leave out --format and --samples")
        if out is None:
            raise click.UsageError("--bundle needs --out FOLDER")
        _write_bundle(sweep, out)
    else:
        write = write_samples if samples else write_export
        _write(partial(_of_sweep, write, sweep), Form(form or Form.CSV), out, samples=samples)


def _of_sweep(
    write: Callable[..., int], sweep: str, session: Session, *, form: Form, file: IO[bytes]
) -> int:
    return write(session, find_sweep(session, sweep).id, form, file)


def _write(write: Callable[..., int], form: Form, out: Path | None, *, samples: bool) -> None:
    """Call `write` with a session, a form and a file, and say how many rows it wrote."""
    if out is None:
        if samples or form is Form.PARQUET:
            option = "--samples" if samples else "--format parquet"
            raise click.UsageError(f"{option} needs --out FILE")
        content = io.BytesIO()
        with store(settings()) as engine, reading(engine) as session:
            write(session, form=form, file=content)
        print_data(content.getvalue().decode())
        return
    with store(settings()) as engine, reading(engine) as session, open_whole(out) as file:
        count = write(session, form=form, file=file)
    click.echo(
        f"{counted(count, 'sample' if samples else 'measurement')} written to {out}", err=True
    )


def _write_bundle(sweep: str, folder: Path) -> None:
    from farm.recommend.prices import load_prices
    from farm.sweep_bundle.writing import write_bundle

    loaded = settings()
    with store(loaded) as engine, reading(engine) as session:
        found = find_sweep(session, sweep)
        prices = load_prices(loaded.prices)
        manifest = write_bundle(session, found.id, folder, prices=prices)
    click.echo(f"{counted(len(manifest.files), 'file')} written to {folder}", err=True)


def _send(sweep: str, kind: type[Tracker], *, out: Path | None, uri: str | None) -> None:
    if out is not None and not kind.takes_folder:
        raise click.UsageError(f"--to {kind.name} writes no file: leave out --out")
    destination = out if kind.takes_folder else uri
    if not destination:
        option = "--out FOLDER" if kind.takes_folder else "--uri URI"
        raise click.UsageError(f"--to {kind.name} needs {option}")
    tracker = kind(str(destination))
    with store(settings()) as engine, row_bar("sending", noun="jobs") as show:
        done = send_sweep(engine, tracker, sweep, progress=show)
    former = f", {counted(done.former_count, 'job')} there already" if done.former_count else ""
    click.echo(f"{counted(done.sent_count, 'job')} sent to {kind.name}{former}", err=True)
