"""`farm export`: a sweep as files, or as runs of an experiment tracker."""

from __future__ import annotations

import io
from pathlib import Path

import click

from farm.cli.operating.row_bar import row_bar
from farm.cli.session import settings, store
from farm.exporting import Form, write_export, write_samples
from farm.processes.standard_output import print_data
from farm.processes.whole_file import open_whole
from farm.store.engine import reading
from farm.store.sweeps.sweeps import find_sweep
from farm.text.nouns import counted
from farm.trackers import TRACKERS
from farm.trackers.contracts import Tracker
from farm.trackers.sending import send_sweep

_BY_NAME = {tracker.name: tracker for tracker in TRACKERS}


@click.command()
@click.argument("sweep")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in Form]),
    help="Of the file.  [default: csv]",
)
@click.option("--out", type=click.Path(path_type=Path), help="File; standard output without it.")
@click.option("--samples", is_flag=True, help="Every sample of every second instead; needs --out.")
@click.option("--bundle", is_flag=True, help="All that is known, as the new folder --out.")
@click.option("--to", type=click.Choice(list(_BY_NAME)), help="Send to this tracker instead.")
@click.option("--uri", envvar="MLFLOW_TRACKING_URI", help="Of MLflow.", show_envvar=True)
def export(
    sweep: str,
    *,
    form: str | None,
    out: Path | None,
    samples: bool,
    bundle: bool,
    to: str | None,
    uri: str | None,
) -> None:
    """Write the measurements of a SWEEP (its id or name), one row for each finished job.

    The file appears whole or not at all. --to sends each job with its steps, epochs and samples;
    what was sent already is left as it is. --out is then the tracker's folder.
    """
    if to is not None:
        if form is not None or samples or bundle:
            raise click.UsageError(
                "--to sends all there is: leave out --format, --samples and --bundle"
            )
        _send(sweep, _BY_NAME[to], out=out, uri=uri)
    elif bundle:
        if form is not None or samples:
            raise click.UsageError("--bundle has all there is: leave out --format and --samples")
        if out is None:
            raise click.UsageError("--bundle needs --out FOLDER")
        _write_bundle(sweep, out)
    else:
        _write(sweep, Form(form or Form.CSV), out, samples=samples)


def _write(sweep: str, form: Form, out: Path | None, *, samples: bool) -> None:
    if out is None:
        if samples or form is Form.PARQUET:
            option = "--samples" if samples else "--format parquet"
            raise click.UsageError(f"{option} needs --out FILE")
        content = io.BytesIO()
        with store(settings()) as engine, reading(engine) as session:
            write_export(session, find_sweep(session, sweep).id, form, content)
        print_data(content.getvalue().decode())
        return
    noun, write = ("sample", write_samples) if samples else ("measurement", write_export)
    with store(settings()) as engine, reading(engine) as session:
        sweep_id = find_sweep(session, sweep).id
        with open_whole(out) as file:
            count = write(session, sweep_id, form, file)
    click.echo(f"{counted(count, noun)} written to {out}", err=True)


def _write_bundle(sweep: str, folder: Path) -> None:
    from farm.cli.measurements.bundle import write_bundle
    from farm.recommend.prices import load_prices

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
