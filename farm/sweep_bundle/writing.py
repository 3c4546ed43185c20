"""Writes a sweep as a bundle: its tables, figures, report and manifest."""

from __future__ import annotations

import base64
import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader
from sqlalchemy.orm import Session

from farm import __version__
from farm.cells.choice import read_choice
from farm.cells.reading import read_sweep
from farm.cells.result_table import notes, table
from farm.cells.table import SweepTable
from farm.charts.files.style import file_of, require
from farm.charts.plots import PlotKind, PlotRequest, plots_of
from farm.errors import FarmError
from farm.exporting import Form, write_export, write_rows, write_samples
from farm.measuring.measurement_table import CellKind
from farm.recommend.prices import Prices
from farm.recommend.sweeps.answers import MOST_ANSWERS, answers_for
from farm.store.engine import make_engine, reading
from farm.store.identity import stored_identity
from farm.store.measurements.export_parts import export_parts
from farm.store.sweeps.sweep_records import (
    AGENTS,
    ATTEMPTS,
    EPOCHS,
    JOBS,
    LOGS,
    STEPS,
    attempt_parts,
    epoch_parts,
    hardware_of,
    job_parts,
    log_parts,
    step_parts,
)
from farm.store.sweeps.sweeps import sweep_of_id, sweep_summary
from farm.store.tables import SweepRow
from farm.sweep_bundle.archive import write_archive
from farm.sweep_bundle.manifest import (
    FORMAT,
    MEASUREMENTS,
    SAMPLE_FILE,
    VERSION,
    Manifest,
    files_in,
    new_folder,
    write_manifest,
)
from farm.text.display import MISSING, short_fingerprint
from farm.text.log_text import printable
from farm.text.toml_text import document_text

# `farm plot` draws the others: a history is of other sweeps too, and predictions of cells from each
# other fit models for minutes.
_KINDS = tuple(k for k in PlotKind if k not in (PlotKind.HISTORY, PlotKind.PREDICTION))
_FORMS = ("svg", "png")
MOST_REPORT_ROWS = 1000  # of a table of the report; the files have all
_WHOLE = frozenset(
    {
        *("job_id", "attempt_id", "repetition", "number", "rank", "process"),
        *("epoch", "step_count", "step", "first_character"),
    }
)
_TEXTS = frozenset({"kind", "text", AGENTS, *JOBS, *ATTEMPTS}) - _WHOLE
_Parts = Callable[[Session, int], Iterator[list[dict[str, object]]]]
# Beside measurements and samples: name, form, columns and rows.
_TABLES: Sequence[tuple[str, Form, Iterable[str], _Parts]] = (
    ("jobs.csv", Form.CSV, JOBS, job_parts),
    ("attempts.csv", Form.CSV, [*ATTEMPTS, AGENTS], attempt_parts),
    ("epochs.csv", Form.CSV, EPOCHS, epoch_parts),
    ("steps.parquet", Form.PARQUET, STEPS, step_parts),
    ("logs.parquet", Form.PARQUET, LOGS, log_parts),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """`rows`: a text for each of the titles. `notes`: lines below it."""

    title: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigure:
    title: str
    summary: str
    svg: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """`facts`: what it is of, each with its name. `answers`: what is recommended, in sentences."""

    title: str
    facts: Sequence[tuple[str, str]]
    answers: Sequence[str]
    tables: Sequence[ReportTable]
    figures: Sequence[ReportFigure]
    undrawn: Sequence[str] = ()


def write_bundle(session: Session, sweep_id: int, folder: Path, *, prices: Prices) -> Manifest:
    """Write a sweep as a new folder, which appears whole or not at all; return its manifest.

    The same sweep gives the same bytes.

    Raises:
        FarmError: the folder is there already or cannot be written, or a library is missing.
    """
    require()
    sweep = sweep_of_id(session, sweep_id)
    read = read_sweep(session, sweep_id, prices=prices).table
    hardware = hardware_of(session, sweep_id)
    columns, rows = table(read.measured)
    titles = [column.title for column in columns]
    cells = ReportTable(title="Cells", titles=titles, rows=rows, notes=notes(read.measured))
    with new_folder(folder) as partial:
        _write_tables(session, sweep, hardware, partial)
        figures, undrawn = _figures(session, sweep_id, read, partial)
        facts = _manifest(session, sweep)
        summary = sweep_summary(session, sweep_id)
        jobs = ", ".join(f"{n} {state.value}" for state, n in summary.counts.items() if n)
        report = BundleReport(
            title=f"Sweep {sweep.name}",
            facts=[
                ("sweep", str(sweep_id)),
                ("submitted", facts.created_at),
                ("farm", facts.farm_id or "unknown: none has run on this store"),
                ("written by", f"benchfarm {facts.benchfarm_version}"),
                ("jobs", jobs or "none"),
            ],
            answers=[one.sentence for one in answers_for(session, sweep_id, most=MOST_ANSWERS)],
            tables=[cells, *_left_out(session, sweep_id, read), _agents(hardware)],
            figures=figures,
            undrawn=undrawn,
        )
        (partial / "report.html").write_text(report_html(report), encoding="utf-8")
        manifest = dataclasses.replace(facts, files=files_in(partial))
        write_manifest(partial, manifest)
    return manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveExport:
    """A sweep to be written as a ZIP file."""

    database_url: str
    sweep_id: int
    file: Path
    prices: Prices


def export_archive(request: ArchiveExport) -> None:
    """Write the bundle of a sweep as a new ZIP file. Takes seconds, so servers do it in a process.

    Its folder is beside the file, so that who removes that folder removes what a crash has left.

    Raises:
        FarmError: there is no such sweep, the file cannot be written, or a library is missing.
    """
    engine = make_engine(request.database_url)
    try:
        with (
            tempfile.TemporaryDirectory(dir=request.file.parent) as temporary,
            reading(engine) as session,
        ):
            folder = Path(temporary) / "bundle"
            write_bundle(session, request.sweep_id, folder, prices=request.prices)
            write_archive(folder, request.file)
    finally:
        engine.dispose()


def report_html(report: BundleReport) -> str:
    """Return the report as a page that opens from disk.

    It has no script and loads nothing, and its content security policy says so. All text is
    escaped, since agents, trainers and submitters of sweeps supply much of it.
    """
    environment = Environment(
        loader=PackageLoader("farm.sweep_bundle"),
        autoescape=True,
        trim_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )
    environment.filters["base64"] = lambda svg: base64.b64encode(svg).decode()
    return environment.get_template("report.html").render(report=report, most_rows=MOST_REPORT_ROWS)


def _write_tables(
    session: Session, sweep: SweepRow, hardware: Sequence[Mapping[str, object]], folder: Path
) -> None:
    """Write a sweep's measurements, samples, jobs, attempts, steps, logs, and what it ran on.

    `sweep.toml` is what was submitted, with its defaults as they are stored.
    """
    (folder / "sweep.toml").write_text(document_text(sweep.spec), encoding="utf-8")
    for name, form, write in (
        (MEASUREMENTS, Form.CSV, write_export),
        ("measurements.parquet", Form.PARQUET, write_export),
        (SAMPLE_FILE, Form.PARQUET, write_samples),
    ):
        with (folder / name).open("wb") as file:
            write(session, sweep.id, form, file)
    for name, form, columns, parts in _TABLES:
        kinds = {column: _kind(column) for column in columns}
        with (folder / name).open("wb") as file:
            write_rows(kinds, parts(session, sweep.id), form, file)
    environment = {"farm": __version__, "agents": hardware}
    text = json.dumps(environment, indent=2, sort_keys=True, allow_nan=False)
    (folder / "environment.json").write_text(f"{text}\n", encoding="utf-8")


def _manifest(session: Session, sweep: SweepRow) -> Manifest:
    """Return the manifest of a bundle that has no files yet."""
    identity = stored_identity(session)
    return Manifest(
        format=FORMAT,
        version=VERSION,
        benchfarm_version=__version__,
        farm_id=None if identity is None else identity.farm_id,
        sweep_id=sweep.id,
        sweep_name=sweep.name,
        created_at=sweep.created_at.isoformat(),
        files={},
    )


def _kind(column: str) -> CellKind:
    if column in _WHOLE:
        return CellKind.WHOLE
    return CellKind.TEXT if column in _TEXTS else CellKind.NUMBER


def _figures(
    session: Session, sweep_id: int, read: SweepTable, folder: Path
) -> tuple[list[ReportFigure], list[str]]:
    """Draw what the sweep has data for; return the figures, and why others were not drawn."""
    request = PlotRequest(sweep_id=sweep_id, choice=read_choice({}, read))
    drawn, undrawn = [], []
    (folder / "figures").mkdir()
    for kind in _KINDS:
        try:
            for plot in plots_of(session, read, request, kind):
                figure = plot.draw()
                files = {form: file_of(figure, form) for form in _FORMS}
                for form, content in files.items():
                    (folder / "figures" / f"{plot.name}.{form}").write_bytes(content)
                drawn.append(ReportFigure(title=plot.title, summary=plot.summary, svg=files["svg"]))
        except FarmError as error:
            undrawn.append(f"No {kind.value}: {error}")
    return drawn, undrawn


def _left_out(session: Session, sweep_id: int, read: SweepTable) -> Iterator[ReportTable]:
    """Yield what disturbed measurements, what has no measurement, and what was never a job."""
    flags = [
        (str(row["job_id"]), flag["kind"], flag["message"])
        for rows in export_parts(session, sweep_id)
        for row in rows
        for flag in _listed(row["flags"])
    ]
    yield ReportTable(title="Disturbances", titles=("job", "kind", "what"), rows=flags)
    failed = [
        tuple(str(row[name] or MISSING) for name in ("job_id", "state", "failure_kind", "reason"))
        for rows in job_parts(session, sweep_id)
        for row in rows
        if row["state"] != "succeeded"
    ]
    titles = ("job", "state", "kind", "reason")
    yield ReportTable(title="Jobs without a measured time", titles=titles, rows=failed)
    skipped = [(line,) for line in read.skipped]
    yield ReportTable(title="Cells that cannot run", titles=("why",), rows=skipped)


def _listed(flags: object) -> list[dict[str, str]]:
    assert isinstance(flags, list)
    return flags


def _agents(found: Sequence[Mapping[str, object]]) -> ReportTable:
    rows = []
    for one in found:
        hardware = one["hardware"]
        assert isinstance(hardware, dict)
        known = (f"{name}: {value}" for name, value in sorted(hardware.items()) if value)
        fingerprint = short_fingerprint(str(one["fingerprint"] or MISSING))
        rows.append((str(one["agent_id"]), fingerprint, "; ".join(known)))
    return ReportTable(title="Environment", titles=("agent", "fingerprint", "hardware"), rows=rows)
